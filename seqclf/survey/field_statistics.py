"""What a field holds: what is unknown or missing, and what never changes."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.schema.fields import Field
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import sample_split
from seqclf.survey.baseline import MOST_STEPS


def look_at_field(dataset: Dataset, name: str, encoder: Encoder) -> dict[str, Any]:
    """Kind, what is unknown or missing, and whether it ever changes."""
    field, spec = encoder.field, encoder.spec()
    found: dict[str, Any] = {"kind": field.kind, "columns": list(field.columns), "describe": field.describe()}
    values = {split: sample_split(own, MOST_STEPS, 0).sequences.fields[name] for split, own in dataset.splits.items()}
    train = values["train"]
    if spec["kind"] == "category":
        found["size"] = spec["size"]
        found["unknown"] = {split: float((own == 0).mean()) for split, own in values.items()}
        found["constant"] = bool(len(train) and (train == train[0]).all())
        return found
    width = field.width or 1
    if field.kind == "number" and field.option("missing") != "refuse" and field.option("mask"):
        shares = 1 - np.asarray(train[:, width : 2 * width]).mean(axis=0)
        found["missing"] = {column: float(share) for column, share in zip(_channels(field), shares, strict=True)}
    own = np.asarray(train[:, :width])
    still = (own == own[:1]).all(axis=0)
    found["constant"] = bool(still.all())
    if field.kind == "number" and not still.all():
        absent = found.get("missing", {})  # one that is only sometimes there says something by being there
        names = _channels(field)
        found["constant_channels"] = [
            name for name, flat in zip(names, still, strict=True) if flat and not absent.get(name)
        ]
    if field.kind == "number":
        found["extremes"] = encoder.extremes()  # type: ignore[attr-defined]
    return found


def _channels(field: Field) -> list[str]:
    width = field.width or 1
    return list(field.columns) if len(field.columns) == width else [f"{field.name}[{place}]" for place in range(width)]
