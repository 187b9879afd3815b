"""An encoded dataset on disk: splits, encoders, schema and the report of its making."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqclf.data.caching.checksums import DamagedError, verify
from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.encoders import load_encoder_files, load_encoders
from seqclf.data.schema.schema import Schema
from seqclf.data.storage.ragged import Split, open_split
from seqclf.errors import InputError
from seqclf.system.stored_state import COUNT, Each, require

READER = {"header": bool, "encoding": str, "quote": (str, None), "delimiter": (str, None)}
SPEC = ("name", "kind", "size", "width")  # what the shape of a model depends on


@dataclass(frozen=True)
class Dataset:
    """An encoded dataset.

    `report` counts rows, refusals, truncations and unknown tokens of each split; `leaks` what they share (see
    `leaks.find_leaks`); `digest` is of the content; `reader` says how text files were read. `positive` is, where two
    classes leave it open, the rarer in train.
    """

    folder: Path
    schema: Schema
    classes: list[str]
    positive: str | None
    encoders: dict[str, Encoder]
    splits: dict[str, Split]
    report: dict[str, Any]
    leaks: dict[str, Any]
    digest: str
    reader: dict[str, Any]
    reused: bool

    def description(self) -> dict[str, Any]:
        """What a checkpoint or a bundle needs to read new data the same way; plain values only."""
        return {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "positive": self.positive,
            "fields": [encoder.spec() for encoder in self.encoders.values()],
            "encoders": {name: encoder.state() for name, encoder in self.encoders.items()},
            "class_counts": np.bincount(self.splits["train"].labels, minlength=len(self.classes)).tolist(),
            "digest": self.digest,
            "reader": self.reader,
            "rows": {name: len(split.sequences) for name, split in self.splits.items()},
        }

    def vectors(self) -> dict[str, np.ndarray]:
        """Pretrained vectors of the fields that have them, (size, D) float32 each."""
        return {name: encoder.vectors for name, encoder in self.encoders.items() if encoder.vectors is not None}


def described_encoders(description: Mapping[str, Any]) -> dict[str, Encoder]:
    """The encoders of a `Dataset.description()`, which may be of a checkpoint from anywhere.

    Raises InputError unless schema, encoders and what a model was built for (`fields`) are of one another.
    """
    require(description, {"schema": dict, "encoders": dict, "reader": READER, "digest": str, "rows": Each(COUNT)})
    schema, states = Schema.from_dict(description["schema"]), description["encoders"]
    if set(states) != {field.name for field in schema.fields}:
        raise InputError(f"encoders {', '.join(map(repr, states))} are not those of the fields")
    encoders = load_encoders(schema.fields, states.__getitem__)
    built = [{key: spec.get(key) for key in SPEC} for spec in description["fields"]]
    if built != [{key: encoder.spec().get(key) for key in SPEC} for encoder in encoders.values()]:
        raise InputError("fields are not what the encoders give")
    return encoders


def open_dataset(folder: Path, positive: str | None, reused: bool, verify_all: bool) -> Dataset:
    """Map a prepared dataset. `positive`: what the user set; `verify_all`: read all of it and compare its checksums.

    Raises DamagedError.
    """
    verify(folder, verify_all, ("lengths.bin", "labels.bin"))
    try:
        state = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        schema = Schema.from_dict(state["schema"])
        opened = {name: open_split(folder / name) for name in state["splits"]}
        encoders = load_encoder_files(schema.fields, folder / "encoders")
        plain = {key: state[key] for key in ("classes", "report", "leaks", "digest", "reader")}
        if max(split.labels.max(initial=0) for split in opened.values()) >= len(plain["classes"]):
            raise ValueError("a label is of no class")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedError(f"{folder}: {error}") from error
    positive = _positive(positive, plain["classes"], opened["train"].labels)
    return Dataset(folder, schema, positive=positive, encoders=encoders, splits=opened, reused=reused, **plain)


def _positive(chosen: str | None, classes: list[str], labels: np.ndarray) -> str | None:
    """The label whose recall matters: as set, or the rarer of two classes in `labels` (N,)."""
    if chosen is None:
        return classes[int(np.bincount(labels, minlength=2).argmin())] if len(classes) == 2 else None
    check_positive(chosen, classes)
    return chosen


def check_positive(chosen: str, classes: list[str]) -> None:
    """Raise unless `chosen` is one of two labels."""
    if chosen not in classes:
        raise InputError(f"data.positive={chosen}: no such label; the labels are {', '.join(classes)}")
    if len(classes) != 2:
        raise InputError(f"data.positive={chosen}: needs two classes; the data has {len(classes)}")
