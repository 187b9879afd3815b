"""A survey in the terminal, after what `show_dataset` said of its fields and splits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.table import Table
from rich.text import Text

from seqclf.data.splitting.leakage import leak_lines
from seqclf.reporting.console import MOST_CLASSES, console
from seqclf.reporting.describe.rows import (
    about_truncation,
    alone_rows,
    baseline_rows,
    by_size,
    imbalance,
    last_split,
    limits,
)
from seqclf.reporting.formatting import NONE, ends, listed, number, percent, score, shortened

PERCENTILES = ("p5", "p50", "p95", "max")
LONGEST_WARNING = 400
SHORT = {"positive_recall": "pos. recall", "average_precision": "avg. prec."}


def show_survey(found: dict[str, Any]) -> None:
    """Classes and their lengths, padding, fields and the baseline; last the warnings that were not shown before."""
    _show_classes(found)
    _show_costs(found)
    _show_fields(found)
    _show_baseline(found)
    told = leak_lines(found["leaks"])
    for line in found["warnings"]:
        if line not in told:
            _say(f"data: {shortened(line, LONGEST_WARNING)}", "yellow")


def _say(line: str, style: str = "") -> None:
    """A line of which nothing is taken for markup: it may hold labels and names of columns."""
    console.print(Text(line, style), soft_wrap=True)


def _print(headings: Iterable[str], rows: Iterable[Iterable[str]], text_columns: int = 1) -> None:
    """A table whose first columns are text and the others numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    for place, heading in enumerate(headings):
        table.add_column(heading, justify="left" if place < text_columns else "right", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def _show_classes(found: dict[str, Any]) -> None:
    """Rows, share and lengths by class, the largest first; of many classes the largest and the smallest."""
    splits, lengths = list(found["rows"]), found["lengths"]
    first, left_out, last = ends(by_size(found), MOST_CLASSES - 1)

    def row(entry: dict[str, Any]) -> list[str]:
        own = lengths["by_class"].get(entry["label"])
        counts = [number(entry[split]) for split in splits]
        spread = [number(own[name]) if own else NONE for name in PERCENTILES]
        return [shortened(entry["label"], 28), *counts, percent(entry["share"]), *spread]

    totals = [number(found["rows"][split]["used"]) for split in splits]
    rows = [["all", *totals, "100%", *(number(lengths["all"][name]) for name in PERCENTILES)]]
    rows += map(row, first)
    if left_out:
        rows.append([f"… {left_out:,} more"])
    rows += map(row, last)
    _say("rows by class, and percentiles of their lengths:")
    _print(["class", *splits, "share", *PERCENTILES], rows)
    ratio = imbalance(found)
    if ratio is not None and ratio > 1:
        largest, *_, smallest = sorted(found["classes"], key=lambda entry: -entry["train"])
        most, least = (shortened(entry["label"], 40) for entry in (largest, smallest))
        _say(f"'{most}' has {number(ratio)} training rows for each of '{least}'")


def _show_costs(found: dict[str, Any]) -> None:
    """What padding and a limit on the length cost."""
    batches = found["batches"]
    _say(
        f"padding: {percent(batches['padding_efficiency'])} of what is computed is sequence, in "
        f"{number(batches['batches'])} batches of {number(batches['rows_per_batch'])} rows; "
        f"{percent(batches['padding_efficiency_static'])} if all were padded to the longest"
    )
    would = [
        f"max_length={row['max_length']} {percent(row['cut_rows'])} of rows, {percent(row['lost_steps'])} of steps"
        for row in limits(found)
    ]
    _say(f"truncation: {about_truncation(found)}")
    if would:
        _say(f"  would cut: {'; '.join(would)}")


def _show_fields(found: dict[str, Any]) -> None:
    """Unknown and missing values of the fields, and what never changes."""

    def row(name: str, field: dict[str, Any]) -> list[str]:
        unknown = ", ".join(f"{split} {percent(share)}" for split, share in field.get("unknown", {}).items() if share)
        shares = field.get("missing") or {}
        worst = max(shares, key=lambda column: shares[column], default=None)
        missing = percent(sum(shares.values()) / len(shares)) if shares else NONE
        if worst is not None and len(shares) > 1:
            missing += f" (most: {shortened(worst, 20)} {percent(shares[worst])})"
        constant = "all of it" if field["constant"] else listed(field.get("constant_channels", []), 3)
        return [
            shortened(name, 28),
            field["kind"],
            unknown or ("none" if "unknown" in field else NONE),
            missing,
            constant or NONE,
        ]

    first, left_out, last = ends(list(found["fields"].items()), MOST_CLASSES)
    rows = [row(*item) for item in first]
    if left_out:
        rows.append([f"… {left_out:,} more"])
    rows += [row(*item) for item in last]
    _print(["field", "kind", "unknown", "missing", "constant"], rows, text_columns=5)


def _show_baseline(found: dict[str, Any]) -> None:
    """Scores of models that do not see the order, on the last split."""
    rows = baseline_rows(found)
    if not rows:
        return
    _say(f"without the order of the steps, on {last_split(found)}; to beat: {found['baseline']['model']}")
    names = list(next(iter(rows.values())))
    headings = [SHORT.get(name, name) for name in names]
    _print(["model", *headings], ([model, *(score(own.get(name)) for name in names)] for model, own in rows.items()))
    alone = [f"{shortened(name, 28)} {recall:.4f}" for name, recall in alone_rows(found)]
    if alone:
        _say(f"recall of each field alone: {listed(alone, MOST_CLASSES)}")
