"""Ragged store: a split on disk, memory-mapped, with the tokens of all sequences end to end."""

from __future__ import annotations

import json
import mmap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, TypedDict

import numpy as np
import pyarrow as pa

from seqclf.data.ragged import Ragged, take
from seqclf.data.storage.checksums import Blocks, ChecksumFile
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    from seqclf.data.encoding.encoder import FieldEncoder


# Original texts of evaluation rows, stored beside their tokens for reports.
#
# Tokens do not tell what a text looked like: spaces, capitals and unknown words are lost. Training rows have no texts
# in the store, as reports show none of them. The texts of the other splits stay on disk until a row is shown.

IDS, TEXTS, GROUP_NAMES = "ids.arrow", "texts.arrow", "group_names.arrow"


class StoredTexts(NamedTuple):
    """Texts of the rows of a split, by field. `rows`: (N,) positions in the file, None for all of its rows in order."""

    path: Path
    rows: np.ndarray | None = None

    def take(self, rows: np.ndarray) -> StoredTexts:
        """Return the texts of some rows: (M,) positions. Nothing is read."""
        return StoredTexts(self.path, rows if self.rows is None else self.rows[rows])

    def of_row(self, row: int) -> dict[str, str]:
        """Read the text of each field of one row."""
        position = row if self.rows is None else int(self.rows[row])
        with pa.memory_map(str(self.path)) as source:  # only the pages of this row are read
            table = pa.ipc.open_file(source).read_all()
            return {name: table.column(name)[position].as_py() for name in table.column_names}


def staged_text(name: str) -> str:
    """Return the staged column of the texts of a field. With a space, so that no field can have its name."""
    return f"text of {name}"


def text_columns(
    columns: pa.RecordBatch, staged: Mapping[str, pa.Array], encoders: Mapping[str, FieldEncoder]
) -> dict[str, pa.Array]:
    """Return the columns to stage next to `staged`, so that `original_texts` has the text of each field of texts.

    `columns`: the canonical columns. A field that is staged as its text needs no further column.
    """
    return {
        staged_text(name): columns.column(name)
        for name, encoder in encoders.items()
        if encoder.holds_text and not pa.types.is_string(staged[name].type)
    }


def original_texts(staged: pa.RecordBatch, encoders: Mapping[str, FieldEncoder]) -> pa.RecordBatch | None:
    """Return the texts of staged rows by field, None for a dataset without texts."""
    names = [name for name, encoder in encoders.items() if encoder.holds_text]
    if not names:
        return None
    present = set(staged.schema.names)
    return pa.record_batch(
        {name: staged.column(staged_text(name) if staged_text(name) in present else name) for name in names}
    )


class Split(NamedTuple):
    """N labelled sequences.

    `labels`: (N,) int64 class codes. `ids`: (N,) strings. `row_numbers`: (N,) int64, those of the source
    file, from 1. `original_lengths`: (N,) int64 lengths before truncation, None without a limit. `groups`: (N,) int64,
    equal for rows of one group (`data.group`); a row without a group is one of its own. Without that option, equal for
    equal sequences if `data.split.by` is distinct, else None. `texts`: the original texts of evaluation rows, None for
    fields that hold none. `group_names`: (N,) strings, the values of `data.group`, null where a row has none. None
    without that option.
    """

    sequences: Ragged
    labels: np.ndarray
    ids: pa.Array
    row_numbers: np.ndarray
    original_lengths: np.ndarray | None = None
    groups: np.ndarray | None = None
    texts: StoredTexts | None = None
    group_names: pa.Array | None = None

    @property
    def lengths_before_truncation(self) -> np.ndarray:
        """(N,) lengths, those before truncation if there is a limit."""
        return self.sequences.lengths if self.original_lengths is None else self.original_lengths


def release_pages(sequences: Ragged) -> None:
    """Return the memory of memory-mapped tokens to the system. They are read again at the next use."""
    for tokens in sequences.fields.values():
        mapped = getattr(tokens, "_mmap", None)  # numpy has no public way to the mapping
        if mapped is not None and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def size_in_bytes(sequences: Ragged) -> int:
    """Return the size of all tokens."""
    return sum(tokens.nbytes for tokens in sequences.fields.values())


def sample_split(split: Split, max_tokens: int, seed: int) -> Split:
    """Return random rows of about `max_tokens` tokens in total, in their order, or the split if it has no more."""
    rows = sampled_rows(split.sequences, max_tokens, seed)
    return split if len(rows) == len(split.sequences) else subset(split, rows)


def sampled_rows(sequences: Ragged, max_tokens: int, seed: int) -> np.ndarray:
    """Return the positions (M,) of the rows that `sample_split` takes, ascending."""
    if sequences.offsets[-1] <= max_tokens:
        return np.arange(len(sequences))
    lengths = sequences.lengths
    order = np.random.default_rng(seed).permutation(len(lengths))
    count = int(np.searchsorted(np.cumsum(lengths[order]), max_tokens))
    return np.sort(order[: max(1, count)])


def subset(split: Split, rows: np.ndarray) -> Split:
    """Copy some rows of a split into memory. `rows`: (M,) positions."""
    original_lengths, groups = (
        None if values is None else values[rows] for values in (split.original_lengths, split.groups)
    )
    return Split(
        take(split.sequences, rows),
        split.labels[rows],
        split.ids.take(pa.array(rows)),
        split.row_numbers[rows],
        original_lengths,
        groups,
        None if split.texts is None else split.texts.take(rows),
        None if split.group_names is None else split.group_names.take(pa.array(rows)),
    )


class ArrayFormat(TypedDict):
    """Format of an array in a file of raw bytes: NumPy's name of its type, its shape without the first dimension."""

    dtype: str
    shape: list[int]


class SplitWriter:
    """Appends encoded rows to a new folder, with one batch in memory at a time.

    Use it in a `with` block, which closes the files. Afterwards `checksums` holds those of the files by name.
    """

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder = folder
        self.files: dict[str, ChecksumFile] = {}
        self.formats: dict[str, ArrayFormat] = {}  # by the name of the array
        # Arrow has a layout for strings; all other arrays are raw bytes that can be mapped.
        self.tables: dict[str, pa.RecordBatchFileWriter] = {}  # by the name of the file
        self._open_table(IDS, pa.schema([("id", pa.string())]))

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, *error: object) -> None:
        for table in self.tables.values():
            table.close()
        for file in self.files.values():
            file.close()
        if error[0] is None:  # split.json marks a complete split
            (self.folder / "split.json").write_text(json.dumps(self.formats))

    def append(
        self,
        sequences: Ragged,
        labels: np.ndarray,
        ids: pa.Array,
        row_numbers: np.ndarray,
        original_lengths: np.ndarray | None = None,
        groups: np.ndarray | None = None,
        texts: pa.RecordBatch | None = None,
        group_names: pa.Array | None = None,
    ) -> None:
        """Append N rows. The arguments are those of `Split`. The optional ones must be passed always or never.

        `texts`: a column of original texts for each field that has them.
        """
        for name, tokens in sequences.fields.items():
            self._write(f"field.{name}", tokens)
        self._write("lengths", sequences.lengths.astype(np.int64))
        self._write("labels", labels.astype(np.int64))
        self._write("rows", row_numbers.astype(np.int64))
        for name, values in (("original_lengths", original_lengths), ("groups", groups)):
            if values is not None:
                self._write(name, values.astype(np.int64))
        self._write_table(IDS, pa.record_batch([ids], names=["id"]))
        if texts is not None:
            self._write_table(TEXTS, texts)
        if group_names is not None:
            self._write_table(GROUP_NAMES, pa.record_batch([group_names], names=["group"]))

    def _open_table(self, file: str, schema: pa.Schema) -> None:
        self.files[file] = ChecksumFile(self.folder / file)
        self.tables[file] = pa.ipc.new_file(self.files[file], schema)

    def _write_table(self, file: str, rows: pa.RecordBatch) -> None:
        if file not in self.tables:
            self._open_table(file, rows.schema)
        self.tables[file].write_batch(rows)

    def _write(self, name: str, values: np.ndarray) -> None:
        file = f"{name}.bin"
        if file not in self.files:
            self.files[file] = ChecksumFile(self.folder / file)
            self.formats[name] = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        self.files[file].write(np.ascontiguousarray(values).view(np.uint8).data)

    @property
    def checksums(self) -> dict[str, Blocks]:
        return {name: file.blocks() for name, file in self.files.items()}


def open_split(folder: Path) -> Split:
    """Map the files of a split into memory. Tokens are not read until they are used.

    Raises ValueError if the files contradict each other.
    """
    formats = json.loads((folder / "split.json").read_text())
    arrays = {name: _mapped(folder / f"{name}.bin", **array_format) for name, array_format in formats.items()}
    lengths = np.asarray(arrays.pop("lengths"))
    fields = {name.removeprefix("field."): tokens for name, tokens in arrays.items() if name.startswith("field.")}
    ids = _mapped_strings(folder / IDS)
    group_names = _mapped_strings(folder / GROUP_NAMES) if (folder / GROUP_NAMES).is_file() else None
    labels, row_numbers = np.asarray(arrays["labels"]), np.asarray(arrays["rows"])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    optional = {name: np.asarray(arrays[name]) for name in ("original_lengths", "groups") if name in arrays}
    # Everything downstream relies on these two checks: lengths of at least 1, and arrays that fit them.
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"{folder}: a sequence has no tokens")
    strings = [ids] if group_names is None else [ids, group_names]
    counts = {len(values) for values in (labels, row_numbers, *strings, *optional.values())}
    if counts != {len(lengths)} or {len(tokens) for tokens in fields.values()} != {offsets[-1]}:
        raise ValueError(f"{folder}: the files are of different lengths")
    texts = StoredTexts(folder / TEXTS) if (folder / TEXTS).is_file() else None
    return Split(Ragged(offsets, fields), labels, ids, row_numbers, **optional, texts=texts, group_names=group_names)


def _mapped_strings(path: Path) -> pa.Array:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all().column(0).combine_chunks()


def _mapped(path: Path, dtype: str, shape: list[int]) -> np.ndarray:
    size = path.stat().st_size // (np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)))
    if size == 0:  # an empty file cannot be mapped
        return np.empty((0, *shape), dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(size, *shape))


# Counts of one split: its rows, tokens and refusals.


@dataclass(kw_only=True)
class SplitCounts(JsonResult):
    """Counts of one split, which grow while it is written and are kept with the dataset.

    `used` rows, of which `truncated` were cut. `tokens`, and `unknown_tokens` with a value outside the vocabulary.
    `refused` rows. Event tables only: `events`, the rows of the source, and `refused_events`, those lost with a refused
    sequence or on a malformed line. Folders only: `hidden_files`, which were not read.
    """

    # Absent where the source can have no such rows, while a 0 is written: nothing was lost.
    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"events", "refused_events", "hidden_files"})

    used: int = 0
    truncated: int = 0
    tokens: int = 0
    unknown_tokens: int = 0
    refused: int = 0
    events: int | None = None
    refused_events: int | None = None
    hidden_files: int | None = None
