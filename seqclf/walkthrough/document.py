"""A walkthrough as a document: some rows at every stage of a model, for readers who are new to such models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqclf.documents.blocks import Document, Section, Text
from seqclf.documents.formatting import shortened
from seqclf.report.model_card import network_kind
from seqclf.walkthrough.stages import Stage


def walkthrough_document(
    stages: Sequence[Stage], refused: Sequence[str], model: Mapping[str, Any], weights: int, checkpoint: Path
) -> Document:
    """Build a document with one section for each stage.

    `refused`: one reason for each rejected row. `model`: config of the network. `weights`: number of weights.
    """
    sections = [
        Section(
            f"{number}. {stage.title}",
            [
                Text(f"Module {stage.module}.", soft=True, page_only=True) if stage.module else None,
                Text(stage.text, page_only=True),
                Text(stage.note) if stage.note else None,
                *stage.blocks,
            ],
            aside=stage.shape_text,
        )
        for number, stage in enumerate(stages, start=1)
    ]
    return Document(
        "From rows to labels",
        "Rows on the way through a trained model, stage by stage: the shape of the data, its values, and why it "
        f"changes. The model has {weights:,} weights.",
        sections,
        facts={"model": [_model_text(model)], "checkpoint": [str(checkpoint)]},
        alerts=[f"left out: {shortened(reason, 390)}" for reason in refused],
    )


def _model_text(model: Mapping[str, Any]) -> str:
    """Describe a model config in a few words.

    >>> _model_text({"cell": "lstm", "bidirectional": True, "pooling": "max", "members": 2})
    '2 networks: bidirectional LSTM, pooling max'
    """
    members = int(model.get("members", 1))
    networks = "" if members == 1 else f"{members} networks: "
    pooling = model.get("pooling")
    kind = f"{'bidirectional ' if model.get('bidirectional') else ''}{network_kind(model)}"
    return networks + kind + (f", pooling {pooling}" if pooling else "")
