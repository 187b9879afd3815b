"""An encoded dataset on disk: splits, encoders, schema and the counts of its preparation."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoder import EncoderState, FieldEncoder
from seqclf.data.encoding.encoders import input_specs, load_encoder_files, load_encoders
from seqclf.data.field_spec import FieldSpec
from seqclf.data.reading.sources import ReaderOptions, is_sql_file
from seqclf.data.schema.schema import Schema
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.checksums import DamagedError, verify
from seqclf.data.storage.store import Split, SplitCounts, open_split
from seqclf.errors import InputError
from seqclf.system import progress
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import COUNT, Each, Where, require

READER = {
    "header": bool,
    "encoding": str,
    "quote": (str, None),
    "delimiter": (str, None),
    # The config takes the name of a file too, which a bundle from elsewhere must not choose.
    "query": (Where(str, lambda text: not is_sql_file(text), "a query, not a file"), None),
}
SHAPE_KEYS = ("name", "kind", "size", "width", "node_classes")  # of an encoder's spec; they decide the shape of a model


class DatasetDescription(TypedDict):
    """Plain values by which a checkpoint or a bundle reads new data as it was read in training.

    `fields`: what the model must know of its inputs. `encoders`: their states by field. `class_counts`: training rows
    by class. `rows`: by split.
    """

    schema: JsonObject
    classes: list[str]
    positive: str | None
    fields: list[FieldSpec]
    encoders: dict[str, EncoderState]
    class_counts: list[int]
    digest: str
    reader: ReaderOptions
    rows: dict[str, int]


@dataclass(frozen=True)
class Dataset:
    """An encoded dataset.

    `positive`: the label whose recall matters. Unless set, it is the rarer of two classes in train, else None;
    `positive_is_guessed` then.
    `report`: counts of rows, refusals and tokens by split. `leaks`: counts of what splits share. `digest`: hash of the
    encoded content. `reader`: options with which text files were read. `reused`: the dataset was prepared by an earlier
    run.
    """

    folder: Path
    schema: Schema
    classes: list[str]
    positive: str | None
    encoders: dict[str, FieldEncoder]
    splits: dict[str, Split]
    report: dict[str, SplitCounts]
    leaks: LeakReport
    digest: str
    reader: ReaderOptions
    reused: bool
    positive_is_guessed: bool = False

    def description(self) -> DatasetDescription:
        return {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "positive": self.positive,
            "fields": input_specs(self.encoders, self.classes),
            "encoders": {name: encoder.state() for name, encoder in self.encoders.items()},
            "class_counts": np.bincount(self.splits["train"].labels, minlength=len(self.classes)).tolist(),
            "digest": self.digest,
            "reader": self.reader,
            "rows": {name: len(split.sequences) for name, split in self.splits.items()},
        }

    def vectors(self) -> dict[str, np.ndarray]:
        """Return the pretrained vectors of the fields that have them: name → (size, D) float32."""
        return {name: encoder.vectors for name, encoder in self.encoders.items() if encoder.vectors is not None}


def described_encoders(description: Mapping[str, Any]) -> dict[str, FieldEncoder]:
    """Return the encoders of a `Dataset.description()`, which may come from an untrusted checkpoint.

    Raises InputError unless schema, encoders and the model's inputs (`fields`) agree with one another.
    """
    require(description, {"schema": dict, "encoders": dict, "reader": READER, "digest": str, "rows": Each(COUNT)})
    schema, states = stored_schema(description["schema"]), description["encoders"]
    if set(states) != {field.name for field in schema.fields}:
        raise InputError("encoders", f"not those of the fields: {', '.join(map(repr, states))}")
    encoders = load_encoders(schema.fields, states.__getitem__)
    classes = description["classes"]
    # A checkpoint could name other sizes than its encoders give; indices beyond an embedding would fail much later.
    if [_shape(spec) for spec in description["fields"]] != [_shape(spec) for spec in input_specs(encoders, classes)]:
        raise InputError("fields", "not what the encoders give")
    return encoders


def _shape(spec: Mapping[str, object]) -> list[object]:
    return [spec.get(key) for key in SHAPE_KEYS]


def open_dataset(folder: Path, positive: str | None, reused: bool, verify_all: bool) -> Dataset:
    """Map a prepared dataset into memory.

    `positive`: label set by the user. `verify_all`: read all files and compare their checksums. Raises DamagedError if
    the folder is not as it was written.
    """
    with progress.stage("checking the cached data", unit="MB"):
        verify(folder, verify_all, ("lengths.bin", "labels.bin"))
    try:
        state = json.loads((folder / "dataset.json").read_text(encoding="utf-8"))
        schema = stored_schema(state["schema"])
        # Mapped and not read: a dataset may be larger than memory.
        splits = {name: open_split(folder / name) for name in state["splits"]}
        encoders = load_encoder_files(schema.fields, folder / "encoders")
        report = {name: SplitCounts.from_dict(counts) for name, counts in state["report"].items()}
        leaks = LeakReport.from_dict(state["leaks"])
        stored = {key: state[key] for key in ("classes", "digest", "reader")}
        # Checked here, as an index beyond the classes would fail deep inside training.
        if max(split.labels.max(initial=0) for split in splits.values()) >= len(stored["classes"]):
            raise ValueError("a label is of no class")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{folder}: {error}") from error
    chosen = _positive(positive, stored["classes"], splits["train"].labels)
    return Dataset(
        folder=folder,
        schema=schema,
        positive=chosen,
        positive_is_guessed=positive is None and chosen is not None,
        encoders=encoders,
        splits=splits,
        report=report,
        leaks=leaks,
        reused=reused,
        **stored,
    )


def _positive(label: str | None, classes: list[str], labels: np.ndarray) -> str | None:
    """The positive label: as set, else the rarer of two classes in `labels` (N,), else None."""
    if label is None:
        return classes[int(np.bincount(labels, minlength=2).argmin())] if len(classes) == 2 else None
    check_positive(label, classes)
    return label


def check_positive(label: str, classes: list[str]) -> None:
    """Raise InputError unless `label` is one of two classes."""
    if label not in classes:
        raise InputError(f"data.positive={label}", "no such label", f"the labels are {', '.join(classes)}")
    if len(classes) != 2:
        raise InputError(f"data.positive={label}", "needs two classes", f"the data has {len(classes)}")


# Title of a data set on pages.

UNNAMED = "files"  # data.name of conf/data/files.yaml


def data_title(name: str, train: str | None) -> str:
    """Return the name of the data, or that of the training file where the name is the default one of `data=files`.

    >>> data_title("files", "data/cards.csv.gz"), data_title("fraud", "cards.csv")
    ('cards', 'fraud')
    """
    if name != UNNAMED or train is None:
        return name
    # A query is no path, and a pattern has no name of its own.
    stem = Path(train).name.split(".")[0] if len(train.splitlines()) == 1 else ""
    return stem if re.fullmatch(r"[\w -]+", stem) else UNNAMED
