"""A survey as one HTML page, for somebody who has not seen the data yet."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqclf.reporting.describe.length_histogram import is_geometric, length_picture
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
from seqclf.reporting.html import (
    Html,
    alerts,
    bar,
    folded,
    heading,
    joined,
    page,
    paragraph,
    picture,
    section,
    span,
    table,
)
from seqclf.system.atomic_files import write_output

MOST_ROWS = 100  # of a table
LONG_TABLE = 25  # rows that are shown unasked
MOST_WARNINGS = 100
LONGEST_WARNING = 400
NARROW_IN, BROAD_IN = 4.2, 8.6
PERCENTILES = ("p5", "p50", "p95", "max")


def write_page(found: dict[str, Any], path: Path) -> None:
    """`found`: of `seqclf.survey`. The page needs no other file and no network, and stays small for any data."""
    sections = (_classes, _lengths, _batches, _truncation, _fields, _leaks, _columns, _baseline, _rows)
    parts = [_warnings(found), *(make(found) for make in sections)]
    write_output(path, page(shortened(found["name"]), summary(found), parts))


def summary(found: dict[str, Any]) -> str:
    """What the data is, in one sentence."""
    lengths, largest = found["lengths"]["all"], by_size(found)[0]
    span_of = (
        f"{number(lengths['min'])} to {number(lengths['max'])} steps, half of them at most {number(lengths['p50'])}"
    )
    return (
        f"{number(lengths['rows'])} sequences in {number(len(found['classes']))} classes, of {span_of}; the largest "
        f"class, {shortened(largest['label'], 40)}, holds {percent(largest['share'])} of them."
    )


def _warnings(found: dict[str, Any]) -> Html:
    lines = found["warnings"]
    if not lines:
        return paragraph("Nothing stood out that should be looked at before training.")
    shown = [shortened(line, LONGEST_WARNING) for line in lines[:MOST_WARNINGS]]
    left_out = len(lines) - len(shown)
    return alerts([*shown, *([f"and {left_out:,} more warnings"] if left_out else [])])


def _cut(rows: Sequence[Sequence[object]]) -> list[Sequence[object]]:
    """At most so many rows that the page stays small; the first ones and the last few."""
    first, left_out, last = ends(rows, MOST_ROWS)
    return [*first, *([[f"… {left_out:,} more"]] if left_out else []), *last]


def _foldable(title: str, part: Html, rows: int) -> Html:
    return folded(title, part) if rows > LONG_TABLE else part


def _classes(found: dict[str, Any]) -> Html:
    splits, classes = list(found["rows"]), by_size(found)
    most = classes[0]["share"]
    rows: list[Sequence[object]] = [
        [
            shortened(entry["label"], 40) + (" (positive)" if entry["label"] == found["positive"] else ""),
            bar(entry["share"] / most),
            percent(entry["share"]),
            *(number(entry[split]) for split in splits),
        ]
        for entry in classes
    ]
    ratio = imbalance(found)
    told = "All classes have the same number of training rows."
    if ratio is None:
        told = "At least one class has no training row."
    elif ratio > 1:
        told = f"The largest class has {number(ratio)} training rows for each of the smallest."
    columns = {"class": "text", "": "bar", "share": "number", **dict.fromkeys(splits, "number")}
    return section("Classes", paragraph(told), table(columns, _cut(rows)))


def _lengths(found: dict[str, Any]) -> Html:
    lengths = found["lengths"]
    everything = lengths["all"]
    drawn = picture(
        length_picture(lengths, NARROW_IN),
        length_picture(lengths, BROAD_IN),
        f"Histogram of the lengths: median {number(everything['p50'])}, 5% below {number(everything['p5'])}, 5% above "
        f"{number(everything['p95'])}",
    )
    geometric = is_geometric(lengths["histogram"]["edges"])
    told = "Each panel has a height of its own, so that rare classes can be compared; the line is the median."
    if geometric:
        told += " The bins grow with the length."
    place = _scale(everything, geometric)

    def row(label: str, own: dict[str, float]) -> list[object]:
        strip = span(place(own["p5"]), place(own["p95"]), place(own["p50"]))
        return [label, strip, *(number(own[name]) for name in PERCENTILES)]

    known = [entry["label"] for entry in by_size(found) if entry["label"] in lengths["by_class"]]
    rows = _cut([row(shortened(label, 40), lengths["by_class"][label]) for label in known])
    columns = {"class": "text", "p5 to p95, and median": "bar", **dict.fromkeys(PERCENTILES, "number")}
    listing = table(columns, [row("all rows", everything), *rows], strong=0)
    return section("Lengths", paragraph(told, soft=True), drawn, _foldable("Lengths by class", listing, len(rows)))


def _scale(everything: dict[str, float], geometric: bool) -> Any:
    """From a length to its place between the shortest (0) and the longest (1)."""
    bend = math.log if geometric else float
    low, high = bend(everything["min"]), bend(everything["max"])
    return lambda length: (bend(length) - low) / ((high - low) or 1)


def _batches(found: dict[str, Any]) -> Html:
    batches = found["batches"]
    told = (
        f"Share of what is computed that is sequence and not padding, in {number(batches['batches'])} batches of "
        f"{number(batches['rows_per_batch'])} rows each epoch."
    )
    shares = {
        "batches of similar lengths": batches["padding_efficiency"],
        "everything padded to the longest": batches["padding_efficiency_static"],
    }
    rows = [[name, bar(share), percent(share)] for name, share in shares.items()]
    return section("Padding", paragraph(told), table({"": "text", " ": "bar", "sequence": "number"}, rows))


def _truncation(found: dict[str, Any]) -> Html:
    rows = [[number(row["max_length"]), percent(row["cut_rows"]), percent(row["lost_steps"])] for row in limits(found)]
    columns = dict.fromkeys(("if max_length were", "rows cut", "steps lost"), "number")
    told = paragraph(f"Now: {about_truncation(found)}.")
    return section("Truncation", told, *([table(columns, rows)] if rows else []))


def _fields(found: dict[str, Any]) -> Html:
    def row(name: str, field: dict[str, Any]) -> list[object]:
        unknown = [f"{split} {percent(share)}" for split, share in field.get("unknown", {}).items() if share]
        still = field.get("constant_channels", [])
        return [
            shortened(name),
            field["kind"],
            listed(field["columns"]),
            shortened(field["describe"], 120) or NONE,
            number(field["size"]) if "size" in field else NONE,
            ", ".join(unknown) or ("none" if "unknown" in field else NONE),
            "all of it" if field["constant"] else listed(still) or NONE,
        ]

    columns = dict.fromkeys(("field", "kind", "columns", "read as", "categories", "unknown", "constant"), "text")
    rows = _cut([row(*item) for item in found["fields"].items()])
    parts: list[Html] = [table(columns | {"categories": "number"}, rows, stacked=True)]
    if found["ignored"]:
        parts.append(paragraph(f"Columns that no field reads: {listed(found['ignored'], 30)}.", soft=True))
    return section("Fields", *parts, _missing(found))


def _missing(found: dict[str, Any]) -> Html:
    """Shares of the training steps without a value, of all fields that keep count, the worst first."""
    shares = [
        (column, name, share)
        for name, field in found["fields"].items()
        for column, share in (field.get("missing") or {}).items()
    ]
    if not shares:
        return Html("")
    alone = len({name for _, name, _ in shares}) == 1
    rows = [
        [shortened(column if alone else f"{column} ({name})"), bar(share), percent(share)]
        for column, name, share in sorted(shares, key=lambda item: -item[2])
    ]
    mean = sum(share for *_, share in shares) / len(shares)
    told = f"On average {percent(mean)} of the values are missing in the steps of train."
    listing = table({"channel": "text", "": "bar", "missing": "number"}, _cut(rows))
    return joined([heading("Missing values"), paragraph(told), _foldable("Each channel", listing, len(rows))])


def _leaks(found: dict[str, Any]) -> Html:
    leaks, used = found["leaks"], {name: counts["used"] for name, counts in found["rows"].items()}
    doubled = leaks["rows"] - leaks["distinct"]

    def row(told: str, count: int, total: int) -> list[object]:
        return [told, number(count), percent(count / max(1, total))]

    rows = [row("rows that repeat an earlier row", doubled, leaks["rows"])]
    for name, count in leaks["seen_before"].items():
        rows.append(row(f"rows of {name} with a sequence of an earlier split", count, used[name]))
    for name, count in (leaks["ids_seen_before"] or {}).items():
        rows.append(row(f"rows of {name} with an id of an earlier split", count, used[name]))
    rows.append(row("rows whose sequence also stands under another label", leaks["conflicting_rows"], leaks["rows"]))
    for name, count in leaks.get("dropped", {}).items():
        rows.append([f"rows of {name} dropped for this", number(count), ""])
    told = f"{number(leaks['rows'])} rows hold {number(leaks['distinct'])} distinct sequences"
    conflicts = leaks["conflicting_sequences"]
    told += f"; {number(conflicts) if conflicts else 'none'} of them under more than one label."
    if leaks["ids_seen_before"] is None:
        told += " Ids were not compared, as the rows have none."
    return section("Leaks", paragraph(told), table({"": "text", "rows": "number", "share": "number"}, rows))


def _columns(found: dict[str, Any]) -> Html:
    if not found["columns"]:
        return Html("")
    rows: list[Sequence[object]] = []
    for entry in sorted(found["columns"], key=lambda entry: not entry["revealing"]):
        told = "gives the label away" if entry["revealing"] else ""
        if "beside" in entry:
            told += f" next to {shortened(entry['beside'], 40)} (together {entry['auroc_together']:.3f})"
        rows.append([shortened(entry["column"]), f"{entry['auroc']:.3f}", told])
    told = (
        "Columns that no field reads, and how well each alone tells the label: area under the ROC curve, 0.5 is "
        "chance. One that gives the label away is an outcome, not an input."
    )
    columns = {"column": "text", "AUROC": "number", "": "text"}
    return section("Columns that reveal the label", paragraph(told), table(columns, _cut(rows)))


def _baseline(found: dict[str, Any]) -> Html:
    rows = baseline_rows(found)
    if not rows:
        return section("Baseline", paragraph("No order-blind baseline was fitted (baseline=false)."))
    chosen = found["baseline"]["model"]
    told = (
        f"Scores on {last_split(found)} of models that see which steps a sequence has, but not their order. A sequence "
        f"model has to beat {chosen}; if it does not, the order tells nothing, or it did not learn it."
    )
    headings = {"recall": "macro recall", "f1": "macro F1", "auroc": "AUROC"}
    body = [
        [headings.get(name, name.replace("_", " ")), *(score(own.get(name)) for own in rows.values())]
        for name in next(iter(rows.values()))
    ]
    parts = [paragraph(told), table({"": "text", **dict.fromkeys(rows, "number")}, body)]
    alone = [[shortened(name), bar(recall), score(recall)] for name, recall in alone_rows(found)]
    if alone:
        columns = {"field": "text", "": "bar", "macro recall": "number"}
        parts += [heading("Each field alone"), table(columns, _cut(alone))]
    return section("Without the order of the steps", *parts)


def _rows(found: dict[str, Any]) -> Html:
    names = {"used": "rows", "refused": "refused", "truncated": "cut", "tokens": "tokens"}
    rows = [[split, *(number(counts[key]) for key in names)] for split, counts in found["rows"].items()]
    return section("Splits", table({"split": "text", **dict.fromkeys(names.values(), "number")}, rows))
