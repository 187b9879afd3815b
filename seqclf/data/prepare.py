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
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf import __version__
from seqclf.build import locate
from seqclf.data import schema as schemas
from seqclf.data import sources, splits
from seqclf.data.dataset import Dataset, open_dataset
from seqclf.data.encoders import fit_encoders, save_encoders
from seqclf.data.quarantine import Quarantine
from seqclf.data.rows import Refusal, too_long_reason
from seqclf.data.sources import Source
from seqclf.data.staging import Staged, stage
from seqclf.data.store import SplitWriter, cut
from seqclf.errors import InputError

SPLITS = ("train", "validation", "test")
FORMAT = 1


@dataclass(frozen=True)
class DataOptions:
    """The keys of conf/data/files.yaml, which explains each and holds the defaults."""

    name: str
    generator: Mapping[str, Any] | None
    train: str | None
    validation: str | None
    test: str | None
    label: str | None
    positive: str | None
    id: str | None
    fields: Mapping[str, Any] | None
    header: bool
    encoding: str
    quote: str | None
    delimiter: str | None
    list_separator: str | None
    max_length: int | None
    truncate: str
    on_bad_row: str
    max_bad_share: float
    split: Mapping[str, Any]
    cache_dir: str

    @classmethod
    def build(cls, **options: Any) -> DataOptions:
        label, positive = options["label"], options["positive"]
        if label is None:
            raise InputError("data.label is not set; name the column that holds the label: data.label=COLUMN")
        texts = {"label": str(label), "positive": None if positive is None else str(positive)}
        return cls(**{**options, **texts})

    def source(self, split: str) -> Source | None:
        path = getattr(self, split)
        key = f"data.{split}"
        return path and Source(str(path), key, self.header, self.encoding, self.quote, self.delimiter)


def prepare(options: DataOptions) -> Dataset:
    """Read, check, split and encode the data, or map what an earlier run prepared from the same files and options."""
    cache = Path(options.cache_dir).expanduser()
    options = with_generated(options)
    if options.train is None:
        raise InputError("data.train is not set; give a file, a glob, a URL or a .sql file: data.train=train.parquet")
    given = {name: source for name in SPLITS if (source := options.source(name)) is not None}
    folder = cache / f"{options.name}-{_fingerprint(options, given)}"
    reused = (folder / "dataset.json").is_file()
    if not reused:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".preparing-") as work:
            _Preparation(options, given, Path(work)).run()
            _publish(Path(work) / "dataset", folder)
    return open_dataset(folder, options.positive, reused)


def _publish(built: Path, folder: Path) -> None:
    try:
        os.replace(built, folder)
    except OSError:  # another process prepared the same data meanwhile, or a damaged folder is in the way
        if not (folder / "dataset.json").is_file():
            shutil.rmtree(folder, ignore_errors=True)
            os.replace(built, folder)


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
    arguments = dict(options.generator)
    key = hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest()[:16]
    folder = cache / f"generated-{options.name}-{key}"
    if not folder.is_dir():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix=".generating-") as work:
            (Path(work) / "files").mkdir()
            locate(arguments.pop("_target_"))(Path(work) / "files", **arguments)
            if not folder.is_dir():
                os.replace(Path(work) / "files", folder)
    return replace(options, generator=None, **{name: str(folder / f"{name}.parquet") for name in SPLITS})


class _Preparation:
    """The state of one preparation: read, split, fit, encode."""

    def __init__(self, options: DataOptions, given: Mapping[str, Source], work: Path):
        self.options = options
        self.given = given
        self.work = work
        self.target = work / "dataset"
        self.quarantine = Quarantine(options.on_bad_row, options.max_bad_share)
        self.report: dict[str, Any] = {}

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
        staged = {name: self._stage(name, source) for name, source in self.given.items()}
        parts = self._assign(staged["train"])
        self.classes = self._classes(staged["train"], parts)
        self.schema = schemas.with_widths(
            self.schema, {field.name: field.width or 1 for field in self.schema.fields if field.kind == "number"}
        )
        self.encoders = fit_encoders(self.schema.fields, lambda name: self._training_column(staged, parts, name))
        digests = {}
        for name in SPLITS:
            origin, part = (name, None) if name in staged and name != "train" else ("train", SPLITS.index(name))
            if part is not None and not (parts == part).any():
                continue
            chosen = parts == part if part is not None else None
            digests[name] = self._encode(name, staged[origin], chosen)
        save_encoders(self.encoders, self.target / "encoders")
        self.quarantine.write(self.target / "quarantine.jsonl")
        state = {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "splits": list(digests),
            "report": self.report,
            "digest": hashlib.sha256(json.dumps(digests).encode()).hexdigest(),
            "reader": {key: getattr(self.options, key) for key in ("header", "encoding", "quote", "delimiter")},
        }
        (self.target / "dataset.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")

    def _stage(self, name: str, source: Source) -> Staged:
        key = self._split_key() if name == "train" else None
        if key is not None and self.options.split["by"] in ("time", "group"):
            types = sources.column_types(source)
            schemas.require_columns([("data.split.column", self.options.split["column"])], types, str(source))
        return stage(source, self.schema, self.quarantine, self.work / f"{name}.arrow", key)

    def _split_key(self) -> str | None:
        """The SQL of what rows of one split share."""
        by, column = self.options.split["by"], self.options.split["column"]
        if by in ("time", "group") and column is None:
            raise InputError(f"data.split.by={by} needs data.split.column=COLUMN")
        quoted = '"' + str(column).replace('"', '""') + '"'
        if by == "time":
            return f"COALESCE(TRY_CAST({quoted} AS DOUBLE), epoch(TRY_CAST({quoted} AS TIMESTAMP)))"
        if by == "group":
            return f"CAST(hash({quoted}) >> 1 AS BIGINT)"
        if by == "distinct":
            columns = ", ".join('"' + field.column.replace('"', '""') + '"' for field in self.schema.fields)
            return f"CAST(hash({columns}) >> 1 AS BIGINT)"
        return None

    def _assign(self, train: Staged) -> np.ndarray:
        """(N,) which of SPLITS each row of the training source belongs to."""
        chosen = self.options.split
        shares = {
            "validation": 0.0 if "validation" in self.given else float(chosen["validation"]),
            "test": 0.0 if "test" in self.given else float(chosen["test"]),
        }
        if train.keys is not None and np.isnan(train.keys.astype(np.float64)).any():
            raise InputError(f"{train.source}: data.split.column={chosen['column']} has values that are not times")
        codes = np.unique(train.labels.to_numpy(), return_inverse=True)[1]
        parts = splits.assign(
            codes, {"train": 1 - sum(shares.values()), **shares}, chosen["by"], train.keys, chosen["seed"]
        )
        for name in ("train", "validation"):
            if name not in self.given or name == "train":
                if (name == "train" or shares[name] > 0) and not (parts == SPLITS.index(name)).any():
                    raise InputError(
                        f"{train.source}: {len(parts)} rows are too few to leave any for {name}; "
                        "give more rows, or a file of its own: data.validation=FILE"
                    )
        if "validation" not in self.given and shares["validation"] == 0:
            raise InputError("data.split.validation=0 leaves no validation; give data.validation=FILE or a share")
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
            return sorted(found, key=int)
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

    def _encode(self, name: str, staged: Staged, chosen: np.ndarray | None) -> str:
        """Write one split; returns the digest of its content."""
        writer = SplitWriter(self.target / name)
        digest, counts, start = hashlib.sha256(), Counter(), 0
        before = len(self.quarantine.refusals)
        for batch in staged.batches():
            mask = np.ones(batch.num_rows, bool) if chosen is None else chosen[start : start + batch.num_rows]
            start += batch.num_rows
            batch = batch.filter(pa.array(mask))
            if batch.num_rows:
                self._encode_batch(batch, writer, digest, counts)
        writer.close()
        refused = [*staged.refused, *self.quarantine.refusals[before:]]
        if not counts["used"]:
            why = refused[-1] if refused else "they are empty"
            raise InputError(f"{staged.source}: none of the rows for {name} can be used: {why}")
        self.quarantine.check_share(str(staged.source), staged.rows, refused)
        if chosen is not None and name != "train":  # what a shared file refused is counted once, with train
            refused = self.quarantine.refusals[before:]
        self.report[name] = {**counts, "refused": len(refused)}
        return digest.hexdigest()

    def _encode_batch(self, batch: pa.RecordBatch, writer: SplitWriter, digest: Any, counts: Counter) -> None:
        encoded = {name: encoder.encode(batch.column(name)) for name, encoder in self.encoders.items()}
        lengths = next(iter(encoded.values()))[0]
        labels = pc.fill_null(pc.index_in(batch.column("label"), value_set=pa.array(self.classes)), -1)
        labels = labels.to_numpy(zero_copy_only=False).astype(np.int64)
        limit = self.schema.max_length
        too_long = np.zeros(len(lengths), bool) if limit is None else lengths > limit
        if too_long.any() and self.schema.truncate == "error":
            raise InputError(
                f"{self._refusal(batch, int(np.flatnonzero(too_long)[0]), too_long_reason(lengths, limit))}"
                f" ({int(too_long.sum())} such rows so far)"
            )
        refused = [
            self._refusal(batch, int(row), "makes no steps; a sequence needs at least one")
            for row in np.flatnonzero(lengths == 0)
        ]
        for row in np.flatnonzero((labels < 0) & (lengths > 0)):
            text = f"is '{batch.column('label')[int(row)]}', which never occurs in the training rows"
            refused.append(self._refusal(batch, int(row), text, self.schema.label))
        self.quarantine.add(refused)
        keep = np.flatnonzero((labels >= 0) & (lengths > 0))
        fields = {name: steps for name, (_, steps) in encoded.items()}
        sequences = cut(lengths, fields, keep, limit, self.schema.truncate)
        taken = pa.array(keep)
        rows = batch.column("_row").take(taken).to_numpy(zero_copy_only=False)
        writer.append(sequences, labels[keep], batch.column("_id").take(taken), rows)
        for steps in (sequences.lengths, labels[keep], *sequences.fields.values()):
            digest.update(np.ascontiguousarray(steps).data)
        counts.update(used=len(keep), truncated=int(too_long[keep].sum()), steps=int(sequences.offsets[-1]))
        unknown = sum(int((steps == 0).sum()) for steps in sequences.fields.values() if steps.ndim == 1)
        counts.update(unknown_steps=unknown)

    def _refusal(self, batch: pa.RecordBatch, row: int, reason: str, column: str | None = None) -> Refusal:
        file, number = batch.column("_file")[row].as_py(), batch.column("_row")[row].as_py()
        return Refusal(file, number, column or self.schema.fields[0].column, reason)
