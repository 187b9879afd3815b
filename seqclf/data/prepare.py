"""Source files → an encoded dataset on disk, once per state of the files and the options.

Pass one reads each source, refuses bad rows and stages the rest; then rows are assigned to splits, encoders are fit on
the training rows alone, and pass two encodes every split. The folder appears under its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf import __version__
from seqclf.build import build
from seqclf.data import schema as schemas
from seqclf.data import sources, splits
from seqclf.data.canonical import FILE, ID, LABEL, ROW, quoted
from seqclf.data.dataset import DamagedError, Dataset, open_dataset
from seqclf.data.encoders import fit_encoders, save_encoders
from seqclf.data.options import DataOptions
from seqclf.data.quarantine import Quarantine
from seqclf.data.rows import Refusal, too_long_reason
from seqclf.data.sources import Source
from seqclf.data.staging import Staged, check_columns, stage
from seqclf.data.store import SplitWriter, cut
from seqclf.errors import InputError

SPLITS = ("train", "validation", "test")
FORMAT = 2


def prepare(options: DataOptions) -> Dataset:
    """Read, check, split and encode the data, or map what an earlier run prepared from the same files and options."""
    cache = Path(options.cache_dir).expanduser()
    options = with_generated(options)
    if options.train is None:
        raise InputError("data.train is not set; give a file, a glob, a URL or a .sql file: data.train=train.parquet")
    given = {name: source for name in SPLITS if (source := options.source(name)) is not None}
    folder = cache / f"{options.name}-{_fingerprint(options, given)}"
    if folder.is_dir():
        try:
            return open_dataset(folder, options.positive, reused=True)
        except DamagedError:
            shutil.rmtree(folder)
    with _scratch(cache) as work:
        _Preparation(options, given, work).run()
        _publish(work / "dataset", folder)
    return open_dataset(folder, options.positive, reused=False)


@contextmanager
def _scratch(cache: Path) -> Iterator[Path]:
    """A folder of the cache that is gone at the end, with all that was not published."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        folder = tempfile.TemporaryDirectory(dir=cache, prefix=".preparing-")
    except OSError as error:
        raise InputError(f"data.cache_dir={cache}: cannot be written ({error.strerror}); name another folder") from None
    with folder as work:
        yield Path(work)


def _publish(built: Path, folder: Path) -> None:
    try:
        built.replace(folder)
    except OSError:
        if not folder.is_dir():  # it is there if another process made the same meanwhile
            raise


def _fingerprint(options: DataOptions, given: Mapping[str, Source]) -> str:
    states = [sources.source_digest(source) for source in given.values()]
    if any(sources.is_remote(source) for source in given.values()):
        states.append(os.urandom(8).hex())  # what a URL gives may change without a sign
    keys = {key: value for key, value in asdict(options).items() if key not in ("cache_dir", "positive")}
    text = json.dumps([FORMAT, __version__, keys, states], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def with_generated(options: DataOptions) -> DataOptions:
    """Options that point to the files of their generator, if they name one; it writes once per set of arguments."""
    if options.generator is None:
        return options
    cache = Path(options.cache_dir).expanduser()
    key = hashlib.sha256(json.dumps(dict(options.generator), sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / f"generated-{options.name}-{key}"
    if not folder.is_dir():
        with _scratch(cache) as work:
            (work / "files").mkdir()
            build(options.generator, folder=work / "files")
            _publish(work / "files", folder)
    train, validation, test = (str(folder / f"{name}.parquet") for name in SPLITS)
    return replace(options, generator=None, train=train, validation=validation, test=test)


class _Preparation:
    """The state of one preparation: read, split, fit, encode."""

    def __init__(self, options: DataOptions, given: Mapping[str, Source], work: Path):
        self.options = options
        self.given = given
        self.work = work
        self.target = work / "dataset"
        self.quarantine = Quarantine(options.on_bad_row, options.max_bad_share)
        self.report: dict[str, Any] = {}
        column = options.split["column"]
        self.split_column = None if column is None else str(column)
        self.shares = {name: options.split[name] for name in ("validation", "test") if name not in given}
        splits.check(options.split["by"], self.split_column, self.shares, options.split["seed"])
        if self.shares.get("validation") == 0:
            raise InputError("data.split.validation=0 leaves no validation; give data.validation=FILE or a share")

    def run(self) -> None:
        first = self.given["train"]
        self.schema = schemas.build_schema(
            sources.sample(first, schemas.INFERENCE_ROWS),
            str(first),
            label=self.options.label,
            id=self.options.id,
            fields=self.options.fields,
            list_separator=self.options.list_separator,
            max_length=self.options.max_length,
            truncate=self.options.truncate,
        )
        for name, source in self.given.items():
            split_by = [("data.split.column", self.split_column)] if name == "train" and self.split_column else []
            check_columns(source, self.schema, split_by)
        staged = {name: self._stage(name, source) for name, source in self.given.items()}
        parts = self._assign(staged["train"])
        self.classes = self._classes(staged["train"], parts)
        self.encoders = fit_encoders(self.schema.fields, lambda name: self._training_column(staged, parts, name))
        save_encoders(self.encoders, self.target / "encoders")
        digests = {}
        for name in SPLITS:
            origin, part = (name, None) if name in staged and name != "train" else ("train", SPLITS.index(name))
            if part is not None and not (parts == part).any():
                continue
            chosen = parts == part if part is not None else None
            digests[name] = self._encode(name, staged[origin], chosen)
        self.quarantine.write(self.target / "quarantine.jsonl")
        content = [self.classes, digests, {name: encoder.state() for name, encoder in self.encoders.items()}]
        state = {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "splits": list(digests),
            "report": self.report,
            "digest": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
            "reader": {key: getattr(self.options, key) for key in ("header", "encoding", "quote", "delimiter")},
        }
        (self.target / "dataset.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")

    def _stage(self, name: str, source: Source) -> Staged:
        key = self._split_key(source) if name == "train" else None
        return stage(source, self.schema, self.quarantine, self.work / f"{name}.arrow", key)

    def _split_key(self, source: Source) -> str | None:
        """The SQL of what rows of one split share."""
        by, column = self.options.split["by"], quoted(self.split_column or "")
        if by == "time":
            return f"COALESCE(TRY_CAST({column} AS DOUBLE), epoch(TRY_CAST({column} AS TIMESTAMP)))"
        if by == "group":
            return f"CAST(hash(CAST({column} AS VARCHAR)) >> 1 AS BIGINT)"
        return sources.content_key(source, self.schema) if by == "distinct" else None

    def _assign(self, train: Staged) -> np.ndarray:
        """(N,) which of SPLITS each row of the training source belongs to."""
        chosen = self.options.split
        if train.keys is not None and np.isnan(train.keys.astype(np.float64)).any():
            raise InputError(
                f"{train.source}: data.split.column={chosen['column']} has values that are not times; "
                "mend them, or name another column"
            )
        shares = {name: float(self.shares.get(name, 0.0)) for name in ("validation", "test")}
        codes = np.unique(train.labels.to_numpy(), return_inverse=True)[1]
        parts = splits.assign(
            codes, {"train": 1 - sum(shares.values()), **shares}, chosen["by"], train.keys, chosen["seed"]
        )
        for position, name in enumerate(SPLITS):
            if (name == "train" or shares[name] > 0) and not (parts == position).any():
                raise InputError(
                    f"{train.source}: data.split.by={chosen['by']} leaves none of {len(parts)} rows for {name}; "
                    f"give more rows, another share, or a file of its own: data.{name}=FILE"
                )
        return parts

    def _classes(self, train: Staged, parts: np.ndarray) -> list[str]:
        """The labels of the training rows; whole numbers in their order, all else by spelling."""
        found = pc.unique(train.labels.filter(pa.array(parts == 0))).to_pylist()
        if len(found) < 2:
            raise InputError(
                f"{train.source}: column '{self.schema.label}' has one class only ('{found[0]}') in the training rows; "
                "a classifier needs two or more: check data.label"
            )
        try:
            return sorted(found, key=lambda label: (int(label), label))
        except ValueError:
            return sorted(found)

    def _training_column(self, staged: Mapping[str, Staged], parts: np.ndarray, name: str) -> Callable:
        def columns() -> Iterator[pa.Array]:
            start = 0
            for batch in staged["train"].batches():
                chosen = parts[start : start + batch.num_rows] == 0
                start += batch.num_rows
                yield batch.column(name).filter(pa.array(chosen))

        return columns

    def _encode(self, name: str, staged: Staged, chosen: np.ndarray | None) -> dict[str, str]:
        """Write one split; returns the digest of each part of its content."""
        digests: dict[str, Any] = defaultdict(hashlib.sha256)
        counts: Counter[str] = Counter()
        start, before = 0, len(self.quarantine.refusals)
        with SplitWriter(self.target / name) as writer:
            for batch in staged.batches():
                if chosen is not None:
                    start, own = start + batch.num_rows, chosen[start : start + batch.num_rows]
                    batch = batch.filter(pa.array(own))
                if batch.num_rows:
                    self._encode_batch(batch, writer, digests, counts)
        refused = [*staged.refused, *self.quarantine.refusals[before:]]
        if not counts["used"]:
            why = refused[-1] if refused else "they are empty"
            raise InputError(f"{staged.source}: none of the rows for {name} can be used: {why}")
        self.quarantine.check_share(str(staged.source), staged.rows, refused)
        if chosen is not None and name != "train":  # what a shared file refused is counted once, with train
            refused = self.quarantine.refusals[before:]
        self.report[name] = {**counts, "refused": len(refused)}
        return {part: digest.hexdigest() for part, digest in digests.items()}

    def _encode_batch(
        self, batch: pa.RecordBatch, writer: SplitWriter, digests: dict[str, Any], counts: Counter[str]
    ) -> None:
        encoded = {name: encoder.encode(batch.column(name)) for name, encoder in self.encoders.items()}
        lengths = next(iter(encoded.values()))[0]
        labels = pc.fill_null(pc.index_in(batch.column(LABEL), value_set=pa.array(self.classes)), -1)
        labels = labels.to_numpy(zero_copy_only=False).astype(np.int64)
        limit = self.schema.max_length
        too_long = np.zeros(len(lengths), bool) if limit is None else lengths > limit
        if too_long.any() and self.schema.truncate == "error":
            column = self.schema.fields[0].column
            raise InputError(
                f"{self._refusal(batch, int(np.flatnonzero(too_long)[0]), column, too_long_reason(lengths, limit))}"
                f" ({int(too_long.sum())} such rows so far)"
            )
        refused = []
        for row in np.flatnonzero(labels < 0):
            text = f"is '{batch.column(LABEL)[int(row)]}', which never occurs in the training rows"
            refused.append(self._refusal(batch, int(row), self.schema.label or LABEL, text))
        self.quarantine.add(refused)
        keep = np.flatnonzero(labels >= 0)
        fields = {name: steps for name, (_, steps) in encoded.items()}
        sequences = cut(lengths, fields, keep, limit, self.schema.truncate)
        taken = pa.array(keep)
        rows = batch.column(ROW).take(taken).to_numpy(zero_copy_only=False)
        writer.append(sequences, labels[keep], batch.column(ID).take(taken), rows)
        for part, values in {"lengths": sequences.lengths, "labels": labels[keep], **sequences.fields}.items():
            digests[part].update(np.ascontiguousarray(values).tobytes())
        counts.update(used=len(keep), truncated=int(too_long[keep].sum()), steps=int(sequences.offsets[-1]))
        unknown = sum(int((steps == 0).sum()) for steps in sequences.fields.values() if steps.ndim == 1)
        counts.update(unknown_steps=unknown)

    def _refusal(self, batch: pa.RecordBatch, row: int, column: str, reason: str) -> Refusal:
        return Refusal(batch.column(FILE)[row].as_py(), batch.column(ROW)[row].as_py(), column, reason)
