"""The verdict of a report in plain words and few numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqclf.reporting.formatting import NONE, percent, score, shortened


def interval(ends: Sequence[float] | None) -> str:
    return NONE if ends is None else f"{ends[0]:.3f} to {ends[1]:.3f}"


def headline(found: Mapping[str, Any], split: str, positive: str | None) -> str:
    """What the model does, in one or two sentences, and whether the rows it is judged by are independent of it."""
    caution = dependence(found, split)
    told = _result(found, split, positive)
    return told if caution is None else f"{told} {caution}"


def dependence(found: Mapping[str, Any], split: str) -> str | None:
    """A caution where the rows of a split chose something about the model that they judge."""
    used = found.get("used_for")
    if not used:
        return None
    return (
        f"These {split} rows also chose the {' and the '.join(used)}, so the scores are better than new data "
        "will give; hold out a test (data.test=FILE or data.split.test=0.2) for an independent result."
    )


def _result(found: Mapping[str, Any], split: str, positive: str | None) -> str:
    rows = found["rows"]
    if positive is not None:
        block = found["positive"]
        own, label = found.get("intervals", {}).get("positive", {}), shortened(positive, 40)
        if not block["rows"]:
            return f"{split} has no row of {label} among {rows:,}; nothing can be said of how many are found."
        told = f"Finds {percent(block['recall'])} of {label}{_within(own.get('recall'))} on {split}"
        if not block["alerts"]:
            return f"{told}: it never says {label}."
        right = f"{percent(block['precision'])} of its alerts are right{_within(own.get('precision'))}"
        return f"{told}; {right}. {block['alerts']:,} of {rows:,} sequences are alerts, {block['rows']:,} are {label}."
    known = {label: value for label, value in found["recall_by_class"].items() if value is not None}
    worst = min(known, key=lambda label: known[label])
    within = _within(found.get("intervals", {}).get("accuracy"))
    return (
        f"Right on {percent(found['accuracy'])}{within} of {rows:,} {split} sequences; mean recall over "
        f"{len(known)} classes {percent(found['recall'])}, the lowest {percent(known[worst])} ({shortened(worst, 40)})."
    )


BETWEEN = (
    "Between: 95% confidence intervals of the scores on more data of this kind. They hold for any distribution of "
    "scores, also where no row went wrong, and are therefore wide where rows are few."
)


def _within(ends: Sequence[float] | None) -> str:
    return "" if ends is None else f" (between {percent(ends[0])} and {percent(ends[1])})"


def verdict_rows(
    metrics: Mapping[str, Any], baseline: Mapping[str, Any] | None, positive: str | None
) -> tuple[list[str], list[list[str]]]:
    """Column names and rows: the split that is judged and its intervals, the order-blind baseline and the majority
    class on it, then the other splits."""
    split = list(metrics)[-1]
    found = metrics[split]
    names = ["recall", "precision", "f1", "accuracy"]
    if positive is not None:
        names = ["recall", "precision", "f1", "average_precision", "auroc", "accuracy"]

    def row(title: str, own: Mapping[str, Any]) -> list[str]:
        return [title, *(score(_inside(own, name, positive).get(name)) for name in names)]

    def between(own: Mapping[str, Any]) -> list[str]:
        return ["between", *(interval(_inside(own["intervals"], name, positive).get(name)) for name in names)]

    rows = [row(f"this model, {split}", found)]
    if "intervals" in found:
        rows.append(between(found))
    if baseline is not None:
        rows.append(row(f"order-blind ({baseline['model']})", baseline))
    majority = found["majority"]
    own: dict[str, Any] = dict(majority)
    if positive is not None:
        always = majority["label"] == positive
        share = majority["accuracy"] if always else None
        own["positive"] = {
            "recall": float(always),
            "precision": share,
            "f1": majority["f1_of_label"] if always else 0.0,
        }
    rows.append(row(f"always {shortened(majority['label'], 20)}", own))
    rows += [row(name, block) for name, block in metrics.items() if name != split]
    return [name.replace("_", " ") for name in names], rows


def _inside(own: Mapping[str, Any], name: str, positive: str | None) -> Mapping[str, Any]:
    """Where a score stands: with a positive label in the block of that, except accuracy."""
    return own if positive is None or name == "accuracy" else own.get("positive", {})
