"""Files of a training run that match one of its checkpoints: decision, epochs and bundle (exported model)."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seqclf.bundle.runtime import Classifier
from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.evaluation.decision import Decision
from seqclf.system.json_result import JsonObject


@dataclass(frozen=True)
class RunFiles:
    """Contents of a run folder that match one checkpoint.

    `decision`: decision from metrics.json. If metrics.json belongs to another checkpoint, the decision is argmax.
    `history`: rows of metrics.csv, empty if the file is missing or has no row for the checkpoint. `best_epoch`: epoch
    of the checkpoint, counted from 0. `bundle`: folder of the bundle exported from the checkpoint, or `None`.
    `threshold`: halting threshold of an adaptive network, which is infinite if the network reads all tokens.
    """

    decision: Decision
    history: list[JsonObject]
    best_epoch: int | None
    bundle: Path | None
    threshold: float = math.inf

    @classmethod
    def of(cls, checkpoint: Path, trained_steps: int, *, is_refitted: bool = False) -> RunFiles:
        """Read the run folder of a checkpoint.

        `trained_steps`: number of optimizer steps that the checkpoint was trained for. `is_refitted`: True if it was
        trained on validation rows too, so that no epoch in metrics.csv is its own. A file is ignored if it is
        missing, damaged or belongs to another checkpoint, because a walkthrough needs only the checkpoint. A damaged
        decision raises InputError, because predicted labels would then follow a wrong rule.
        """
        run = checkpoint.absolute().parent.parent
        metrics = _metrics(run / "metrics.json")
        is_scored = metrics.get("step") == trained_steps and ("refit" in metrics) == is_refitted
        history = _history(run / "metrics.csv")
        history = [] if is_refitted else history
        best = next((int(row["epoch"]) for row in history if row.get("step") == trained_steps), None)
        bundle = run / "bundle"
        return cls(
            decision=_decision(metrics) if is_scored else Decision(),
            history=history if best is not None else [],
            best_epoch=best,
            bundle=bundle if is_scored and bundle.is_dir() else None,
            threshold=_threshold(metrics) if is_scored else math.inf,
        )

    def bundle_error(self, sequences: Ragged, logits: np.ndarray) -> float | None:
        """Return the largest difference between `logits` (B, C) and the logits of the bundle.

        Return `None` if there is no bundle, or if the bundle cannot be loaded.
        """
        if self.bundle is None:
            return None
        try:
            of_bundle = Classifier(self.bundle, device="cpu").logits(sequences)
        except InputError:  # the bundle was moved, is damaged or has an earlier version
            return None
        return float(np.abs(of_bundle - logits).max())


def _metrics(path: Path) -> JsonObject:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _decision(metrics: JsonObject) -> Decision:
    try:
        return Decision.from_dict(metrics["decision"])
    except (KeyError, TypeError, ValueError):
        raise InputError(
            "metrics.json of the run", "its decision cannot be read", "remove the file, or train again"
        ) from None


def _threshold(metrics: JsonObject) -> float:
    halting = metrics.get("halting")
    threshold = halting.get("threshold") if isinstance(halting, dict) else None
    return threshold if isinstance(threshold, float) and threshold >= 0 else math.inf


def _history(path: Path) -> list[JsonObject]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [{name: _cell(name, cell) for name, cell in row.items() if cell} for row in csv.DictReader(file)]
    except (OSError, ValueError, TypeError, csv.Error):  # TypeError: a row has more cells than columns
        return []
    return rows if all("epoch" in row for row in rows) else []


def _cell(name: str, cell: str) -> float | int:
    return int(cell) if name in ("epoch", "step") else float(cell)
