"""Ragged store, which holds the tokens of all sequences of a split end to end in memory-mapped files."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, ClassVar, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from seqclf.data.ragged import Ragged, take
from seqclf.system.json_result import JsonResult
from seqclf.system.state_validation import read_json

if TYPE_CHECKING:
    from seqclf.data.encoding.field_encoder import FieldEncoder


# Version of the stored data. Increase it if a change stores other data for the same files and options, or the old data
# of the cache would be reused (tests/data/storage/test_format.py fails then).
FORMAT = 4


class DamagedError(Exception):
    """Raised if a folder of the cache is not whole and must be built again."""


# Original texts of evaluation rows, for reports: tokens have lost spaces, capitals and unknown words.

IDS, TEXTS, GROUP_NAMES = "ids.arrow", "texts.arrow", "group_names.arrow"


class StoredTexts(NamedTuple):
    """Original texts of the rows of a split, in a file with one column for each field.

    `rows`: (N,) positions of the selected rows in the file, or None for all.
    """

    path: Path
    rows: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> StoredTexts:
        """Select the rows at the (M,) positions `rows`. The file is not read."""
        return StoredTexts(self.path, rows if self.rows is None else self.rows[rows])

    def of_row(self, row: int) -> dict[str, str]:
        position = row if self.rows is None else int(self.rows[row])
        with pa.memory_map(str(self.path)) as source:  # only the memory pages with this row are read
            table = pa.ipc.open_file(source).read_all()
            return {name: table.column(name)[position].as_py() for name in table.column_names}


def staged_text(name: str) -> str:
    """Return the name of the staged column with the texts of a field. Its space prevents a clash with a field."""
    return f"text of {name}"


def text_columns(
    columns: pa.RecordBatch, staged: Mapping[str, pa.Array], encoders: Mapping[str, FieldEncoder]
) -> dict[str, pa.Array]:
    """Return dict column → original texts, for text fields that are not in `staged` as text."""
    return {
        staged_text(name): columns.column(name)
        for name, encoder in encoders.items()
        if encoder.holds_text and not pa.types.is_string(staged[name].type)
    }


def original_texts(staged: pa.RecordBatch, encoders: Mapping[str, FieldEncoder]) -> pa.RecordBatch | None:
    """Return the original texts of staged rows, with one column for each text field, or None."""
    names = [name for name, encoder in encoders.items() if encoder.holds_text]
    if not names:
        return None
    present = set(staged.schema.names)
    return pa.record_batch(
        {name: staged.column(staged_text(name) if staged_text(name) in present else name) for name in names}
    )


class Split(NamedTuple):
    """N labelled sequences of one split.

    `labels`: (N,) int64 class codes. `ids`: (N,) strings. `row_numbers`: (N,) int64 row numbers in the source file,
    from 1. `original_lengths`: (N,) int64 before truncation; None without `data.max_length`. `groups`: (N,) int64
    numbers (see `SplitPolicy.groups`); None if rows are independent. `texts`: original texts; None for train, and
    without text fields. `group_names`: (N,) strings of `data.group`, null for a row without one, or None.
    `weights`, `costs`: (N,) float64 of `data.weight` and `data.cost`, or None.
    """

    sequences: Ragged
    labels: np.ndarray
    ids: pa.Array
    row_numbers: np.ndarray
    original_lengths: np.ndarray | None = None
    groups: np.ndarray | None = None
    texts: StoredTexts | None = None
    group_names: pa.Array | None = None
    weights: np.ndarray | None = None
    costs: np.ndarray | None = None

    @property
    def mean_weights(self) -> np.ndarray | None:
        """(N,) weights divided by their mean, None if rows have none."""
        return None if self.weights is None else self.weights / np.maximum(self.weights.mean(), np.finfo(float).tiny)

    @property
    def lengths_before_truncation(self) -> np.ndarray:
        """(N,) number of tokens in each row before truncation."""
        return self.sequences.lengths if self.original_lengths is None else self.original_lengths


def release_pages(sequences: Ragged) -> None:
    """Release the memory pages of memory-mapped tokens, which are read again when they are used."""
    for tokens in sequences.fields.values():
        mapped = getattr(tokens, "_mmap", None)  # NumPy has no public attribute for the memory map of an array
        if mapped is not None and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def size_in_bytes(sequences: Ragged) -> int:
    return sum(values.nbytes for values in (*sequences.fields.values(), *sequences.static.values()))


def sample_split(split: Split, max_tokens: int, seed: int) -> Split:
    """Return a random sample of the rows, in their order, with about `max_tokens` tokens, or all of a small split."""
    rows = sampled_rows(split.sequences, max_tokens, seed)
    return split if len(rows) == len(split.sequences) else subset(split, rows)


def sampled_rows(sequences: Ragged, max_tokens: int, seed: int) -> np.ndarray:
    """Return the ascending (M,) positions of the rows of `sample_split`."""
    if sequences.offsets[-1] <= max_tokens:
        return np.arange(len(sequences))
    lengths = sequences.lengths
    order = np.random.default_rng(seed).permutation(len(lengths))
    count = int(np.searchsorted(np.cumsum(lengths[order]), max_tokens))
    return np.sort(order[: max(1, count)])


def subset(split: Split, rows: np.ndarray) -> Split:
    """Copy the rows at the (M,) positions `rows` into memory."""
    optional = {name: getattr(split, name) for name in ("original_lengths", "groups", "weights", "costs")}
    return Split(
        take(split.sequences, rows),
        split.labels[rows],
        split.ids.take(pa.array(rows)),
        split.row_numbers[rows],
        **{name: None if values is None else values[rows] for name, values in optional.items()},
        texts=None if split.texts is None else split.texts.take(rows),
        group_names=None if split.group_names is None else split.group_names.take(pa.array(rows)),
    )


class ArrayFormat(TypedDict):
    """Type and shape of an array in a file of raw bytes. `dtype`: NumPy's name. `shape`: without the first axis."""

    dtype: str
    shape: list[int]


class SplitWriter:
    """Writes the encoded rows of a split to a new folder by batches, in a `with` statement that closes the files."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder = folder
        self.files: dict[str, BinaryIO] = {}
        self.formats: dict[str, ArrayFormat] = {}  # array name → data type and shape
        # Strings are written to Arrow files, other arrays as raw bytes, which can be memory-mapped.
        self.tables: dict[str, pa.RecordBatchFileWriter] = {}  # file name → writer of an Arrow file
        self._open_table(IDS, pa.schema([("id", pa.string())]))

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for table in self.tables.values():
            table.close()
        for file in self.files.values():
            file.close()
        if error[0] is None:  # the file split.json shows that the split is complete
            (self.folder / "split.json").write_text(json.dumps(self.formats))

    def append(self, rows: Split, texts: pa.RecordBatch | None = None) -> None:
        """Append N rows, and their original texts. What is optional comes always or never."""
        for name, tokens in rows.sequences.fields.items():
            self._write(f"field.{name}", tokens)
        for name, column in rows.sequences.static.items():
            self._write(f"static.{name}", column)
        arrays = {"lengths": rows.sequences.lengths, "labels": rows.labels, "rows": rows.row_numbers}
        for name, values in {**arrays, "original_lengths": rows.original_lengths, "groups": rows.groups}.items():
            if values is not None:
                self._write(name, values.astype(np.int64))
        for name, values in (("weights", rows.weights), ("costs", rows.costs)):
            if values is not None:
                self._write(name, values)
        self._write_table(IDS, pa.record_batch([rows.ids], names=["id"]))
        if texts is not None:
            self._write_table(TEXTS, texts)
        if rows.group_names is not None:
            self._write_table(GROUP_NAMES, pa.record_batch([rows.group_names], names=["group"]))

    def _open_table(self, file: str, schema: pa.Schema) -> None:
        self.files[file] = (self.folder / file).open("wb")
        self.tables[file] = pa.ipc.new_file(self.files[file], schema)

    def _write_table(self, file: str, rows: pa.RecordBatch) -> None:
        if file not in self.tables:
            self._open_table(file, rows.schema)
        self.tables[file].write_batch(rows)

    def _write(self, name: str, values: np.ndarray) -> None:
        file = f"{name}.bin"
        if file not in self.files:
            self.files[file] = (self.folder / file).open("wb")
            self.formats[name] = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        self.files[file].write(np.ascontiguousarray(values).view(np.uint8).data)


def open_split(folder: Path) -> Split:
    """Open a split whose files are memory-mapped. Raises ValueError if their numbers of rows or tokens differ."""
    formats = read_json(folder / "split.json")
    arrays = {name: _mapped(folder / f"{name}.bin", **array_format) for name, array_format in formats.items()}
    lengths = np.asarray(arrays.pop("lengths"))
    fields, static = (
        {name.removeprefix(start): values for name, values in arrays.items() if name.startswith(start)}
        for start in ("field.", "static.")
    )
    ids = _mapped_strings(folder / IDS)
    group_names = _mapped_strings(folder / GROUP_NAMES) if (folder / GROUP_NAMES).is_file() else None
    labels, row_numbers = np.asarray(arrays["labels"]), np.asarray(arrays["rows"])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    named = ("original_lengths", "groups", "weights", "costs")
    optional = {name: np.asarray(arrays[name]) for name in named if name in arrays}
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"{folder}: a sequence has no tokens")
    strings = [ids] if group_names is None else [ids, group_names]
    counts = {len(values) for values in (labels, row_numbers, *strings, *optional.values(), *static.values())}
    if counts != {len(lengths)} or {len(tokens) for tokens in fields.values()} != {offsets[-1]}:
        raise ValueError(f"{folder}: the files are of different lengths")
    texts = StoredTexts(folder / TEXTS) if (folder / TEXTS).is_file() else None
    sequences = Ragged(offsets, fields, static)
    return Split(sequences, labels, ids, row_numbers, **optional, texts=texts, group_names=group_names)


def _mapped_strings(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all().column(0).combine_chunks()


def _mapped(path: Path, dtype: str, shape: list[int]) -> np.ndarray:
    size = path.stat().st_size // (np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)))
    if size == 0:  # an empty file cannot be memory-mapped
        return np.empty((0, *shape), dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(size, *shape))


@dataclass(kw_only=True)
class SplitCounts(JsonResult):
    """Counts of one split, which are updated while it is written, and stored with the dataset.

    `used`: rows in the split. `truncated`: truncated rows. `tokens`, `unknown_tokens`: tokens, and those with a value
    outside the vocabulary. `refused`, `unknown_labels`: rejected rows, and those whose label is no class. `events`,
    `refused_events`: events of an event table, and those in rejected sequences or on malformed lines; otherwise None.
    `excluded`: rows that `data.exclude` leaves out of the source of the split.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"events", "refused_events"})

    used: int = 0
    truncated: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    refused: int = 0
    unknown_labels: int = 0
    events: int | None = None
    refused_events: int | None = None
    excluded: int = 0
