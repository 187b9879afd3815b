"""A split on disk, ragged and memory-mapped: the steps of all sequences end to end, and where each begins."""

from __future__ import annotations

import json
import mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.caching.checksums import Blocks, ChecksumFile


class Ragged(NamedTuple):
    """Encoded sequences. `offsets`: (N + 1,) int64, steps of row i in [offsets[i], offsets[i + 1]);
    `fields[name]`: (S,) int32 or (S, D) float32."""

    offsets: np.ndarray
    fields: dict[str, np.ndarray]

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1


class Split(NamedTuple):
    """Sequences with `labels` (N,) int64, `ids` (N,) strings and `rows`, (N,) int64 positions in the source file.

    `original_lengths`: (N,) int64 lengths before truncation, None without a limit. `groups`: (N,) int64, equal for rows
    that a split keeps together (`data.split.by` distinct or group), None without groups.
    """

    sequences: Ragged
    labels: np.ndarray
    ids: pa.Array
    rows: np.ndarray
    original_lengths: np.ndarray | None = None
    groups: np.ndarray | None = None

    @property
    def lengths_before_truncation(self) -> np.ndarray:
        """(N,) lengths before anything was cut."""
        return self.sequences.lengths if self.original_lengths is None else self.original_lengths


def release_pages(sequences: Ragged) -> None:
    """Give the pages of memory-mapped steps back to the system; they are read again when they are used again."""
    for steps in sequences.fields.values():
        mapped = getattr(steps, "_mmap", None)
        if mapped is not None and hasattr(mapped, "madvise"):
            mapped.madvise(mmap.MADV_DONTNEED)


def size_in_bytes(sequences: Ragged) -> int:
    return sum(steps.nbytes for steps in sequences.fields.values())


def sample_split(split: Split, most_steps: int, seed: int) -> Split:
    """The split, or as many of its rows, drawn at random and in their order, as have about `most_steps` steps."""
    lengths = split.sequences.lengths
    if split.sequences.offsets[-1] <= most_steps:
        return split
    order = np.random.default_rng(seed).permutation(len(lengths))
    count = int(np.searchsorted(np.cumsum(lengths[order]), most_steps))
    return subset(split, np.sort(order[: max(1, count)]))


def subset(split: Split, rows: np.ndarray) -> Split:
    """Some rows of a split, by their positions (M,), copied into memory."""
    original_lengths, groups = (
        None if values is None else values[rows] for values in (split.original_lengths, split.groups)
    )
    ids = split.ids.take(pa.array(rows))
    return Split(take(split.sequences, rows), split.labels[rows], ids, split.rows[rows], original_lengths, groups)


def take(sequences: Ragged, rows: np.ndarray) -> Ragged:
    """Some sequences, in the order of `rows`, or all of them as they are where `rows` counts them."""
    if len(rows) == len(sequences) and (np.diff(rows) == 1).all():
        return sequences
    starts, counts = sequences.offsets[rows], sequences.lengths[rows]
    offsets = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], counts)
    return Ragged(offsets, {name: steps[places] for name, steps in sequences.fields.items()})


class SplitWriter:
    """Appends encoded rows to a folder; memory stays at one batch. Use it in a `with` block, which closes the files;
    then `checksums` gives those of the files by name."""

    def __init__(self, folder: Path):
        folder.mkdir(parents=True)
        self.folder = folder
        self.files: dict[str, ChecksumFile] = {}
        self.kinds: dict[str, dict[str, Any]] = {}
        self.files["ids.arrow"] = ChecksumFile(folder / "ids.arrow")
        self.ids = pa.ipc.new_file(self.files["ids.arrow"], pa.schema([("id", pa.string())]))

    def __enter__(self) -> SplitWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.ids.close()
        for file in self.files.values():
            file.close()
        if error[0] is None:
            (self.folder / "split.json").write_text(json.dumps(self.kinds))

    def append(
        self,
        sequences: Ragged,
        labels: np.ndarray,
        ids: pa.Array,
        rows: np.ndarray,
        original_lengths: np.ndarray | None = None,
        groups: np.ndarray | None = None,
    ) -> None:
        for name, steps in sequences.fields.items():
            self._write(f"field.{name}", steps)
        self._write("lengths", sequences.lengths.astype(np.int64))
        self._write("labels", labels.astype(np.int64))
        self._write("rows", rows.astype(np.int64))
        for name, values in (("original_lengths", original_lengths), ("groups", groups)):
            if values is not None:
                self._write(name, values.astype(np.int64))
        self.ids.write_batch(pa.record_batch([ids], names=["id"]))

    def _write(self, name: str, values: np.ndarray) -> None:
        file = f"{name}.bin"
        if file not in self.files:
            self.files[file] = ChecksumFile(self.folder / file)
            self.kinds[name] = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        self.files[file].write(np.ascontiguousarray(values).view(np.uint8).data)

    @property
    def checksums(self) -> dict[str, Blocks]:
        return {name: file.blocks() for name, file in self.files.items()}


def open_split(folder: Path) -> Split:
    """Map a split's files into memory; steps are not read until they are used. Raises ValueError if files disagree."""
    kinds = json.loads((folder / "split.json").read_text())
    arrays = {name: _mapped(folder / f"{name}.bin", **kind) for name, kind in kinds.items()}
    lengths = np.asarray(arrays.pop("lengths"))
    fields = {name.removeprefix("field."): steps for name, steps in arrays.items() if name.startswith("field.")}
    with pa.memory_map(str(folder / "ids.arrow")) as source:
        ids = pa.ipc.open_file(source).read_all().column("id").combine_chunks()
    labels, rows = np.asarray(arrays["labels"]), np.asarray(arrays["rows"])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    optional = {name: np.asarray(arrays[name]) for name in ("original_lengths", "groups") if name in arrays}
    if len(lengths) and lengths.min() < 1:
        raise ValueError(f"{folder}: a sequence has no tokens")
    counts = {len(values) for values in (labels, rows, ids, *optional.values())}
    if counts != {len(lengths)} or {len(steps) for steps in fields.values()} != {offsets[-1]}:
        raise ValueError(f"{folder}: the files are of different lengths")
    return Split(Ragged(offsets, fields), labels, ids, rows, **optional)


def _mapped(path: Path, dtype: str, shape: list[int]) -> np.ndarray:
    size = path.stat().st_size // (np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64)))
    if size == 0:
        return np.empty((0, *shape), dtype)
    return np.memmap(path, dtype=dtype, mode="r", shape=(size, *shape))
