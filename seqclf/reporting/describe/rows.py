"""What the terminal and the page both tell of a survey (see `seqclf.survey`): its rows, still as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAJORITY = "majority class"
POSITIVE = ("recall", "average_precision", "auroc")


def by_size(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The classes, the largest first."""
    return sorted(found["classes"], key=lambda entry: -entry["share"])


def imbalance(found: Mapping[str, Any]) -> float | None:
    """Training rows of the largest class for each of the smallest; None where a class has none."""
    counts = [entry["train"] for entry in found["classes"]]
    return max(counts) / min(counts) if min(counts) else None


def last_split(found: Mapping[str, Any]) -> str:
    return list(found["rows"])[-1]


def about_truncation(found: Mapping[str, Any]) -> str:
    """What `max_length` is, and what it did."""
    done = found["truncation"]
    if done["max_length"] is None:
        return "no limit on the length (max_length=null)"
    cut = ", ".join(f"{count:,} of {name}" for name, count in done["cut_rows"].items() if count)
    return f"max_length={done['max_length']}, truncate={done['truncate']}; rows cut: {cut or 'none'}"


def limits(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Each `max_length` that would cut anything, with the shares of `cut_rows` and `lost_steps`."""
    return [row for row in found["truncation"]["if"] if row["cut_rows"]]


def baseline_rows(found: Mapping[str, Any]) -> dict[str, dict[str, float | None]]:
    """Scores on the last split by model, first of all those of the majority class; empty without a baseline.

    `accuracy`, macro `recall` and `f1`; with a positive class `positive_recall`, `average_precision` and `auroc`.
    """
    split = last_split(found)
    models = (found.get("baseline") or {}).get("models", {})
    scored = {name: by_split[split] for name, by_split in models.items() if split in by_split}
    return {MAJORITY: majority_scores(found), **{name: _row(own) for name, own in scored.items()}} if scored else {}


def _row(own: Mapping[str, Any]) -> dict[str, float | None]:
    positive = own.get("positive") or {}
    block = {"positive_recall" if name == "recall" else name: positive[name] for name in POSITIVE if name in positive}
    return {name: own[name] for name in ("accuracy", "recall", "f1")} | block


def majority_scores(found: Mapping[str, Any]) -> dict[str, float | None]:
    """What always answering the largest class of train would score on the last split.

    As in `seqclf.evaluation.metrics`, macro means are over classes that occur as truth or as prediction.
    """
    split = last_split(found)
    chosen = max(found["classes"], key=lambda entry: entry["train"])
    rows = {entry["label"]: entry[split] for entry in found["classes"]}
    total, right = sum(rows.values()), rows[chosen["label"]]
    seen = sum(count > 0 or label == chosen["label"] for label, count in rows.items())
    row: dict[str, float | None] = {
        "accuracy": right / max(1, total),
        "recall": (right > 0) / seen,
        "f1": 2 * right / max(1, right + total) / seen,
    }
    if found["positive"] is not None:
        positives = rows[found["positive"]]
        both = 0 < positives < total
        row["positive_recall"] = float(chosen["label"] == found["positive"]) if positives else None
        row |= {"average_precision": positives / total if both else None, "auroc": 0.5 if both else None}
    return row


def alone_rows(found: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Macro recall that each of several fields reaches without the others, the best first."""
    return sorted((found.get("alone") or {}).items(), key=lambda item: -item[1])
