"""An encoded dataset on disk: its splits, encoders and schema, counts of its rows, and a summary of its sequences."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import numpy as np

from seqclf.data.encoding.declaration import stored_schema
from seqclf.data.encoding.encoders import input_specs, load_encoder_files, load_encoders
from seqclf.data.encoding.field_encoder import EncoderState, FieldEncoder
from seqclf.data.field_spec import FieldSpec, number_specs, token_specs
from seqclf.data.ragged import Ragged, take
from seqclf.data.reading.sources import ReaderOptions
from seqclf.data.schema.schema import Schema
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.store import DamagedError, Split, SplitCounts, open_split
from seqclf.errors import InputError
from seqclf.system.json_result import JsonObject
from seqclf.system.state_validation import COUNT, Each, read_json, require

LAGS = (1, 2, 4, 8)  # distances of tokens whose values are compared
MAX_ROWS, MAX_TOKENS = 500, 200_000  # sample of the training rows
STANDARD_ERRORS = 3  # standard errors of chance that are subtracted from an autocorrelation
MIN_DEVIATION = 1e-6  # below it, a channel of a sequence is constant
MAX_VALUE = 1e15  # larger values are clipped, so that no square overflows


class SequenceSummary(TypedDict):
    """`order`: see `order_strength`; None without number fields. `median`, `longest`: lengths in tokens."""

    order: float | None
    median: int
    longest: int


def summarize_sequences(sequences: Ragged, fields: Iterable[FieldSpec]) -> SequenceSummary:
    """Return the summary of the training sequences. `fields`: specs of the encoded fields."""
    numbers = [spec["name"] for spec in number_specs(token_specs(fields))]
    lengths = sequences.lengths
    if not len(lengths):
        return {"order": None, "median": 1, "longest": 1}
    order = round(order_strength(sequences, numbers), 4) if numbers else None
    return {"order": order, "median": int(np.median(lengths)), "longest": int(lengths.max())}


def order_strength(sequences: Ragged, names: Iterable[str]) -> float:
    """Return the largest autocorrelation within sequences of any channel, at a distance of 1, 2, 4 or 8 tokens.

    Three standard errors are subtracted, so that random order gives about 0, however few. At most 500 rows are read.

    >>> tokens = np.sin(np.arange(1000) / 5)[:, None]
    >>> waves = Ragged(np.arange(0, 1001, 100), {"x": tokens})
    >>> mixed = Ragged(waves.offsets, {"x": np.random.default_rng(0).permutation(tokens)})
    >>> round(order_strength(waves, ["x"]), 1), order_strength(mixed, ["x"]) < 0.1
    (0.9, True)
    """
    chosen = np.random.default_rng(0).permutation(len(sequences))[:MAX_ROWS]
    total = np.cumsum(sequences.lengths[chosen])
    chosen = np.sort(chosen[: max(1, int(np.searchsorted(total, MAX_TOKENS)))])
    sampled = take(sequences, chosen)
    values = np.concatenate([np.asarray(sampled.fields[name], np.float64) for name in names], axis=1)
    values = np.clip(values, -MAX_VALUE, MAX_VALUE)
    starts, lengths = sampled.offsets[:-1], sampled.lengths
    row = np.repeat(np.arange(len(lengths)), lengths)
    scored = values - (np.add.reduceat(values, starts) / lengths[:, None])[row]
    deviation = np.sqrt(np.add.reduceat(scored**2, starts) / lengths[:, None])
    scored /= np.maximum(deviation, MIN_DEVIATION * (1 + np.abs(values).max(axis=0)))[row]
    power = np.maximum((scored**2).mean(axis=0), MIN_DEVIATION)
    position = np.arange(len(row)) - starts[row]
    best = 0.0
    for lag in LAGS:
        later = np.flatnonzero(position >= lag)
        if not len(later):
            break
        # A sequence of n tokens in random order has an autocorrelation of -1 / n, because its mean was subtracted.
        chance = (1 / lengths[row[later]]).mean()
        products = (scored[later] * scored[later - lag]).mean(axis=0)
        best = max(best, float(np.abs(products / power + chance).max()) - STANDARD_ERRORS / len(later) ** 0.5)
    return best


READER = {"header": bool, "encoding": str, "quote": (str, None), "delimiter": (str, None), "query": (str, None)}
MAX_SHOWN = 10  # labels in an error
THRESHOLD = "threshold"  # name of the split of held-out rows
SHAPE_KEYS = ("name", "kind", "size", "width", "node_classes")  # keys of a spec that decide the model's shape


class DatasetDescription(TypedDict):
    """Description of a dataset in plain values, by which a checkpoint or bundle encodes new data in the same way.

    `fields`: specs of the inputs of the model. `encoders`: dict field → state of its encoder. `class_counts`: training
    rows of each class. `rows`: dict split → number of rows. `sequences`: see `summarize_sequences`.
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
    sequences: SequenceSummary


@dataclass(frozen=True)
class Dataset:
    """An encoded dataset.

    `positive`: label of the positive class, by default the rarer of two classes in train (`positive_is_guessed`); None
    with more classes. `report`: dict split → counts of its rows, rejected rows and tokens. `digest`: hash of the
    encoded data. `reader`: options with which the source files were read. `notes`: lines on what was inferred.
    `reused`: True if an earlier run prepared it. `held_out`: rows of validation that only set thresholds, or None.
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
    notes: list[str]
    reused: bool
    positive_is_guessed: bool = False
    held_out: Split | None = None

    @property
    def all_splits(self) -> dict[str, Split]:
        """Dict name → split, with the held-out rows as the last one."""
        return self.splits if self.held_out is None else {**self.splits, THRESHOLD: self.held_out}

    def description(self) -> DatasetDescription:
        fields = input_specs(self.encoders, self.classes)
        return {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "positive": self.positive,
            "fields": fields,
            "encoders": {name: encoder.state() for name, encoder in self.encoders.items()},
            "class_counts": np.bincount(self.splits["train"].labels, minlength=len(self.classes)).tolist(),
            "digest": self.digest,
            "reader": self.reader,
            "rows": {name: len(split.sequences) for name, split in self.splits.items()},
            "sequences": summarize_sequences(self.splits["train"].sequences, fields),
        }

    def vectors(self) -> dict[str, np.ndarray]:
        """Return dict field → (size, D) float32, for the fields with pretrained vectors."""
        return {name: encoder.vectors for name, encoder in self.encoders.items() if encoder.vectors is not None}


def described_encoders(description: Mapping[str, Any]) -> dict[str, FieldEncoder]:
    """Return the encoders of a `Dataset.description()`, which may be part of an untrusted checkpoint.

    Raises InputError if the schema, the encoders and the specs of the model inputs (`fields`) contradict each other.
    """
    require(description, {"schema": dict, "encoders": dict, "reader": READER, "digest": str, "rows": Each(COUNT)})
    schema, states = stored_schema(description["schema"]), description["encoders"]
    if set(states) != {field.name for field in schema.fields}:
        raise InputError("encoders", f"not those of the fields: {', '.join(map(repr, states))}")
    encoders = load_encoders(schema.fields, states.__getitem__)
    classes = description["classes"]
    # Without this check, an index that is too large for an embedding would fail much later.
    if [_shape(spec) for spec in description["fields"]] != [_shape(spec) for spec in input_specs(encoders, classes)]:
        raise InputError("fields", "not what the encoders give")
    return encoders


def _shape(spec: Mapping[str, object]) -> list[object]:
    return [spec.get(key) for key in SHAPE_KEYS]


def open_dataset(folder: Path, positive: str | None, reused: bool) -> Dataset:
    """Open a prepared dataset, memory-mapped (see `Dataset`). Raises DamagedError if files do not fit."""
    try:
        state = read_json(folder / "dataset.json")
        schema = stored_schema(state["schema"])
        splits = {name: open_split(folder / name) for name in state["splits"]}
        encoders = load_encoder_files(schema.fields, folder / "encoders")
        report = {name: SplitCounts.from_dict(counts) for name, counts in state["report"].items()}
        leaks = LeakReport.from_dict(state["leaks"])
        stored = {key: state[key] for key in ("classes", "digest", "reader", "notes")}
        if max(split.labels.max(initial=0) for split in splits.values()) >= len(stored["classes"]):
            raise ValueError("a label is of no class")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(f"{folder}: {error}") from error
    chosen = _positive(positive, stored["classes"], splits["train"].labels)
    is_guessed = positive is None and chosen is not None
    parts: dict[str, Any] = {"schema": schema, "encoders": encoders, "splits": splits, "report": report, "leaks": leaks}
    return Dataset(folder=folder, positive=chosen, positive_is_guessed=is_guessed, reused=reused, **parts, **stored)


def _positive(label: str | None, classes: list[str], labels: np.ndarray) -> str | None:
    """Return `label`, or else the rarer of two classes, or None if there are more."""
    if label is None:
        return classes[int(np.bincount(labels, minlength=2).argmin())] if len(classes) == 2 else None
    check_positive(label, classes)
    return label


def check_positive(label: str, classes: list[str], key: str = "data.positive") -> None:
    """Raise InputError, with the config `key`, unless there are two classes and `label` is one of them."""
    shown = ", ".join(classes[:MAX_SHOWN]) + ", …" * (len(classes) > MAX_SHOWN)
    if label not in classes:
        like = next((each for each in classes if spelled_alike(each) == spelled_alike(label)), None)
        remedy = f"the labels are {shown}" if like is None else f"did you mean '{like}'?"
        raise InputError(f"{key}={label}", "no such label", remedy)
    if len(classes) != 2:
        alike = next((same for same in labels_alike(classes) if len(same) > 1), None)
        remedy = f"spell {' and '.join(map(repr, alike))} alike" if alike else f"set {key}=null"
        raise InputError(f"{key}={label}", f"needs two classes, not {len(classes)} ({shown})", remedy)


def spelled_alike(label: str) -> str:
    """Return a label without what spellings of one label differ in: spaces, case and the form of letters.

    >>> spelled_alike(" Fraud") == spelled_alike("fraud")
    True
    """
    return " ".join(unicodedata.normalize("NFC", label).casefold().split())


def labels_alike(labels: Iterable[str]) -> list[list[str]]:
    """Return the labels in groups of which each may be spellings of one label."""
    groups: dict[str, list[str]] = {}
    for label in labels:
        groups.setdefault(spelled_alike(label), []).append(label)
    return list(groups.values())


UNNAMED = "files"  # default of the option data.name
IN_MEMORY, HASHED = "table in memory", r"[0-9a-f]{32}"  # its file in the cache has a hash for a name


def data_title(name: str, train: str | None) -> str:
    """Return the name of the data, by default that of its training file, or `IN_MEMORY`.

    >>> data_title("files", "data/cards.csv.gz"), data_title("fraud", "cards.csv")
    ('cards', 'fraud')
    """
    if name != UNNAMED or train is None:
        return name
    # a query or a glob has no usable file name
    stem = Path(train).name.split(".")[0] if len(train.splitlines()) == 1 else ""
    if re.fullmatch(HASHED, stem):
        return IN_MEMORY
    return stem if re.fullmatch(r"[\w -]+", stem) else UNNAMED
