"""A stage of the pipeline from raw rows to labels, and the document of all stages. This module does not import PyTorch.

In the shapes of this package, B is the number of rows, T the number of tokens after padding, D the number of channels,
and C the number of classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.documents.blocks import Block, Document, Section, Text
from seqclf.documents.formatting import shortened


@dataclass(frozen=True)
class Stage:
    """One stage of the pipeline.

    `title`: name of the stage for readers. `text`: explanation of the stage for a page, or "". `blocks`: texts, tables
    and heat maps of the stage. `values`: array of the stage, or `None` for lists of rows. `axes`: name of each axis of
    `values`.
    """

    title: str
    text: str
    blocks: Sequence[Block | None]
    values: np.ndarray | None = None
    axes: tuple[str, ...] = ()

    @property
    def shape(self) -> str:
        """The shape of `values` with axis names, such as "(4, 3) = (rows, tokens)", or "" if there are no values."""
        return "" if self.values is None else f"{shape_text(self.values)} = ({', '.join(self.axes)})"


def shape_text(array: np.ndarray) -> str:
    return f"({', '.join(f'{size:,}' for size in array.shape)})"


def walkthrough_document(stages: Sequence[Stage], refused: Sequence[str], facts: Mapping[str, str]) -> Document:
    """Build a document with one section for each stage.

    `refused`: one reason for each rejected row. `facts`: see `Document`.
    """
    sections = []
    for number, stage in enumerate(stages, start=1):
        explanation = Text(stage.text, page_only=True) if stage.text else None
        sections.append(Section(f"{number}. {stage.title}", [explanation, *stage.blocks], aside=stage.shape))
    return Document(
        "From rows to labels",
        "Rows on the way through a trained model, stage by stage: the shape of the data, its values, and why it "
        "changes. The values are recorded in one forward pass.",
        sections,
        facts={name: [text] for name, text in facts.items()},
        alerts=[f"left out: {shortened(reason, 390)}" for reason in refused],
    )
