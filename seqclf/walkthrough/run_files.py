"""Files of the run that a checkpoint belongs to: its decision, its epochs and its bundle, where they are of it."""

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

TEXTS = ("observation",)  # columns of metrics.csv that hold no number


@dataclass(frozen=True)
class RunFiles:
    """Content of a run folder that belongs to one checkpoint.

    `decision`: of metrics.json, or the most probable class where the file is of another checkpoint. `history`: the rows
    of metrics.csv, none where it is missing. `best_epoch`: that of the checkpoint, from 0. `bundle`: exported from it.
    `threshold`: of the halting score of an adaptive network, infinite where it reads everything.
    """

    decision: Decision
    history: list[JsonObject]
    best_epoch: int | None
    bundle: Path | None
    threshold: float = math.inf

    @classmethod
    def of(cls, checkpoint: Path, trained_steps: int) -> RunFiles:
        """Read the files of the folder that `checkpoint`, after `trained_steps` optimizer steps, is in.

        A file that is missing, damaged or of another checkpoint is left out: the checkpoint alone can be shown. Raises
        InputError for a decision that cannot be read, since labels would follow another rule.
        """
        run = checkpoint.absolute().parent.parent
        metrics = _metrics(run / "metrics.json")
        is_scored = metrics.get("step") == trained_steps
        history = _history(run / "metrics.csv")
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
        """Return the largest difference between `logits` (B, C) and those of the bundle, None without a usable one."""
        if self.bundle is None:
            return None
        try:
            of_bundle = Classifier(self.bundle, device="cpu").logits(sequences)
        except InputError:  # moved, damaged or of an earlier version; the walkthrough shows the checkpoint
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
    except (OSError, ValueError, TypeError, csv.Error):  # TypeError: more cells than columns
        return []
    return rows if all("epoch" in row for row in rows) else []


def _cell(name: str, cell: str) -> float | int | str:
    if name in TEXTS:
        return cell
    return int(cell) if name in ("epoch", "step") else float(cell)
