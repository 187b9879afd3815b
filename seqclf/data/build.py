"""One preparation: read, split, look for leaks, fit, encode.

Pass one reads each source, refuses bad rows and stages the rest; then rows are assigned to splits, encoders are fit on
the training rows alone, and pass two encodes every split.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.caching.checksums import write_checksums
from seqclf.data.collect import Staged, check_columns, stage
from seqclf.data.encoding.encoders import fit_encoders, make_encoders, save_encoders
from seqclf.data.options import DataOptions
from seqclf.data.reading import reader
from seqclf.data.reading.casts import is_missing_sql, quote_identifier, seconds_sql
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source, listed
from seqclf.data.schema import schema as schemas
from seqclf.data.splitting import assignment, leakage
from seqclf.data.validation.quarantine import Quarantine
from seqclf.data.write_store import SPLITS, Writing
from seqclf.errors import InputError


class Preparation:
    """Turns the sources in `given` into `work`/dataset."""

    def __init__(self, options: DataOptions, given: Mapping[str, Source], work: Path):
        self.options = options
        self.given = {name: listed(source) for name, source in given.items()}
        self.work = work
        self.target = work / "dataset"
        self.quarantine = Quarantine(options.on_bad_row, options.max_bad_share)
        self.without_group = 0  # rows that have no value of the split column
        self.split_column = options.split.column
        self.shares = options.split.shares(set(given))

    def run(self) -> None:
        self.table = self._label_table()
        self.schema = self._schema()
        self.encoders = make_encoders(self.schema.fields, self.schema.truncation)
        asked = self.schema if self.table is None else replace(self.schema, label=None)
        for name, source in self.given.items():
            check_columns(source, asked, self._split_columns() if name == "train" else [])
        staged = {name: self._stage(name, source) for name, source in self.given.items()}
        parts = self._assign(staged["train"])
        chosen = {
            name: parts if name == "train" else np.full(len(own.contents), SPLITS.index(name))
            for name, own in staged.items()
        }
        self._without_leaks(staged, chosen)
        self.classes = self._classes(staged["train"], chosen["train"])
        fit_encoders(self.encoders, lambda *names: _training_rows(staged["train"], chosen["train"], names))
        save_encoders(self.encoders, self.target / "encoders")
        writing = Writing(self.schema, self.classes, self.encoders, self.quarantine, self.target)
        digests, report = writing.run(staged, chosen, self._groups(staged))
        for name, source in self.given.items():
            if source.listing is not None and source.listing.hidden:
                report[name]["hidden_files"] = len(source.listing.hidden)
        self.quarantine.write(self.target / "quarantine.jsonl")
        content = [self.classes, digests, {name: encoder.state() for name, encoder in self.encoders.items()}]
        state = {
            "schema": self.schema.to_dict(),
            "classes": self.classes,
            "splits": list(digests),
            "report": report,
            "leaks": self.leaks,
            "digest": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
            "reader": {key: getattr(self.options, key) for key in ("header", "encoding", "quote", "delimiter")},
        }
        (self.target / "dataset.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")
        write_checksums(self.target, writing.checksums)

    def _label_table(self) -> LabelTable | None:
        source = self.options.source("labels")
        if source is None:
            return None
        keys = self.options.group_by or (str(self.options.id),)
        return LabelTable(source, keys, self.options.label, self._split_key(), self.split_column)

    def _schema(self) -> schemas.Schema:
        first = self.given["train"]
        options = self.options
        found = schemas.build_schema(
            reader.sample(first, schemas.INFERENCE_ROWS),
            str(first),
            label=options.label if self.table is None else None,
            id=options.id,
            fields=options.fields,
            list_separator=options.list_separator,
            max_length=options.max_length,
            truncate=options.truncate,
            group_by=options.group_by,
            order_by=options.order_by,
            skip=[] if self.table is None else [options.label],
        )
        return replace(found, label=options.label)

    def _split_columns(self) -> list[tuple[str, str]]:
        """The column that the training file must have to be split."""
        if self.split_column is None or (self.table is not None and self.table.has_key):
            return []
        return [("data.split.column", self.split_column)]

    def _stage(self, name: str, source: Source) -> Staged:
        key = self._split_key() if name == "train" and not (self.table is not None and self.table.has_key) else None
        path = self.work / f"{name}.arrow"
        return stage(source, self.schema, self.encoders, self.quarantine, path, key, self.table)

    def _split_key(self) -> str | None:
        """The SQL of what rows of one split share, where a column says it."""
        by, column = self.options.split.by, quote_identifier(self.split_column or "")
        if self.split_column is None:
            return None
        if by == "time":
            return f"COALESCE(TRY_CAST({column} AS DOUBLE), {seconds_sql(f'CAST({column} AS VARCHAR)')})"
        text = f"CAST({column} AS VARCHAR)"
        return f"CASE WHEN NOT {is_missing_sql(text)} THEN CAST(hash({text}) >> 1 AS BIGINT) END"

    def _assign(self, train: Staged) -> np.ndarray:
        """(N,) which of SPLITS each row of the training source belongs to."""
        chosen = self.options.split
        by, column = chosen.by, chosen.column
        keys = train.contents if by == "distinct" else train.keys
        if keys is not None and np.isnan(keys.astype(np.float64)).any():
            raise InputError(
                f"{train.source}: data.split.column={column} has values that are not times; "
                "mend them, or name another column"
            )
        if keys is not None and by not in ("distinct", "time"):
            self.without_group = int((keys == assignment.NO_KEY).sum())
            keys = assignment.fill_missing_keys(keys, train.contents)
        shares = {name: float(self.shares.get(name, 0.0)) for name in ("validation", "test")}
        fold = (chosen.fold, chosen.folds) if by == "fold" else None
        if fold is not None:
            shares["test"] = 1 / fold[1]
            shares["validation"] *= 1 - shares["test"]
        every = {"train": 1 - sum(shares.values()), **shares}
        codes = _codes(train.labels) if keys is None else _ranks(train.labels)
        parts = assignment.assign(codes, every, by, keys, chosen.seed, fold)
        try:
            assignment.check_filled(parts, every, by, None if by == "distinct" else column, keys, fold and fold[1])
        except InputError as error:
            raise InputError(f"{train.source}: {error}") from None
        return parts

    def _groups(self, staged: Mapping[str, Staged]) -> dict[str, np.ndarray | None]:
        """(N,) what the rows of each source share that `data.split.by` keeps together."""
        by = self.options.split.by
        if by == "distinct":
            return {name: own.contents.view(np.int64) for name, own in staged.items()}
        return {name: None if by == "time" else own.keys for name, own in staged.items()}

    def _without_leaks(self, staged: Mapping[str, Staged], chosen: dict[str, np.ndarray]) -> None:
        """Count what splits share, and do with it what `data.split.on_leak` says; -1 in `chosen` is a dropped row."""
        parts = np.concatenate(list(chosen.values()))
        # Without an id of their own, the groups of one event table have one each.
        alone = len(staged) == 1 and self.schema.group_by and self.schema.id is None
        ids = [] if alone else [own.ids for own in staged.values()]
        keys = None
        if any(one is not None for one in ids):
            rows = [len(own.contents) for own in staged.values()]
            chunks = [
                chunk
                for one, count in zip(ids, rows, strict=True)
                for chunk in ([pa.nulls(count, pa.string())] if one is None else one.chunks)
            ]
            keys = _codes(pa.chunked_array(chunks)) - 1  # -1: no id
        labels = _codes(pa.chunked_array([chunk for own in staged.values() for chunk in own.labels.chunks]))
        contents = np.concatenate([own.contents for own in staged.values()])
        self.leaks, leaking = leakage.find_leaks(contents, labels, parts, SPLITS, keys)
        way = self.options.split.on_leak
        if way == "error" and leaking.any():
            raise InputError(
                f"{'; '.join(leakage.leak_lines(self.leaks, only_across=True))}; split by data.split.by=distinct or "
                "group, or set data.split.on_leak=drop to score only on what training has not seen, or warn"
            )
        self.leaks["without_group"] = self.without_group
        self.leaks["dropped"] = {}
        if way == "drop":
            self.leaks["dropped"] = {name: int((leaking & (parts == part)).sum()) for part, name in enumerate(SPLITS)}
            bounds = np.cumsum([len(own) for own in chosen.values()])[:-1]
            for name, own in zip(chosen, np.split(np.where(leaking, -1, parts), bounds), strict=True):
                chosen[name] = own
            for part, name in enumerate(SPLITS):
                if (parts == part).any() and not any((own == part).any() for own in chosen.values()):
                    raise InputError(
                        f"data.split.on_leak=drop: leaves no row for {name}, as all are in an earlier split too; "
                        "split by data.split.by=distinct, or set data.split.on_leak=warn"
                    )

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


def _training_rows(staged: Staged, parts: np.ndarray, names: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """Some columns of the staged rows that train."""
    start = 0
    for batch in staged.batches(*names):
        own = parts[start : start + batch.num_rows] == 0
        start += batch.num_rows
        if own.all():
            yield batch
        elif own.any():
            yield batch.filter(pa.array(own))


def _codes(texts: pa.ChunkedArray) -> np.ndarray:
    """(N,) a number for each text, equal where texts are."""
    encoded = texts.combine_chunks().dictionary_encode()
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64) + 1


def _ranks(texts: pa.ChunkedArray) -> np.ndarray:
    """(N,) the rank of each text among the different ones; unlike `_codes` it does not depend on the order of rows."""
    encoded = texts.combine_chunks().dictionary_encode()
    rank = pc.rank(encoded.dictionary).to_numpy().astype(np.int64) - 1
    return rank[encoded.indices.to_numpy(zero_copy_only=False)]
