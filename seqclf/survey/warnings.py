"""What of a survey should be looked at before training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.data.splitting.leakage import leak_lines

RARE_ROWS = 10
IMBALANCED = 10.0  # rows of the largest class for each of the smallest
TOO_EASY = 0.99
MANY_UNKNOWN = 0.05


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """A line for each thing in a survey that should be looked at before training."""
    lines = leak_lines(found["leaks"])
    rows = {entry["label"]: entry["train"] for entry in found["classes"]}
    most, least = max(rows.values()), min(rows.values())
    if least and most / least >= IMBALANCED:
        rare = min(rows, key=lambda label: rows[label])
        lines.append(
            f"classes are imbalanced: {most / least:.0f} rows of the largest for each of '{rare}'; watch recall, and "
            "try loss.class_weights=balanced"
        )
    few = [label for label, count in rows.items() if count < RARE_ROWS]
    if few:
        shown = ", ".join(few[:10])
        lines.append(f"{len(few)} classes have fewer than {RARE_ROWS} training rows: {shown}; no model learns them")
    for name, field in found["fields"].items():
        lines += field.get("extremes", [])
        if field["constant"]:
            lines.append(f"field {name} is the same in every step; leave it out")
        if field.get("constant_channels"):
            lines.append(f"field {name}: constant channels: {', '.join(field['constant_channels'])}; leave them out")
        for split, share in field.get("unknown", {}).items():
            if split != "train" and share > MANY_UNKNOWN and share > 2 * field["unknown"]["train"]:
                lines.append(f"field {name}: {share:.1%} of the steps of {split} are values unseen in training")
    for entry in found["columns"]:
        if entry["revealing"]:
            how = f"AUROC {entry['auroc']:.3f} alone"
            if "beside" in entry:
                how = f"AUROC {entry['auroc_together']:.3f} next to '{entry['beside']}'"
            lines.append(f"column '{entry['column']}' gives the label away ({how}); it is not used, keep it out")
    for name, recall in (found.get("alone") or {}).items():
        if recall >= TOO_EASY:
            lines.append(
                f"field {name} alone, without its order, reaches a recall of {recall:.3f}; will it be known when you "
                "predict?"
            )
    return lines
