"""The section of suspected wrong labels."""

from __future__ import annotations

import json
from collections import Counter

import pyarrow as pa

from seqclf.documents.blocks import Section, Table, Text
from seqclf.documents.formatting import label_text, number, percent, printable
from seqclf.evaluation.suspects import ABOUT, suspects_of, unseen_rows
from seqclf.report.reported import Reported

SHOWN = 20  # rows of the table


def suspects_section(reported: Reported) -> Section | None:
    """Return the rows whose label the model contradicts, None without rows of the data."""
    result = reported.result
    if not result.rows:
        return None
    found = suspects_of(unseen_rows(result), result.decision, pa.array(result.classes, pa.string()))
    about = json.loads(found.schema.metadata[ABOUT])
    groups = Counter(name for name in found["group"].to_pylist() if name is not None)
    text = f"Of {number(about['rows'])} rows, the model contradicts the label of {number(len(found))}"
    if groups:
        (name, most), *_ = groups.most_common(1)
        text += f", in {number(len(groups))} groups (at most {number(most)} in one: {label_text(name)})"
    text += (
        f". If all labels were right and its probabilities calibrated, about {number(round(about['by_chance']))} would "
        "be contradicted by chance."
    )
    columns = ("id", "group", "split", "label", "proposed", "probability", "label_probability")
    kept = [name for name in columns if name != "group" or groups]
    rows = [[_cell(name, row[name]) for name in kept] for row in found.slice(0, SHOWN).to_pylist()]
    kinds = {name.replace("_", " "): "number" if "probability" in name else "text" for name in kept}
    return Section("Suspected wrong labels", [Text(text), *([Table(kinds, rows)] if rows else [])])


def _cell(name: str, value: str | float | None) -> str:
    if isinstance(value, float):
        return percent(value)
    return "" if value is None else printable(value) if name == "id" else label_text(value)
