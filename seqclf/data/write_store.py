"""Write splits to disk: encoded rows of the second pass, and several splits joined into one."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoders import encode_staged, tokens_of
from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.encoding.row_checks import EMPTY_REASON, too_long_reason
from seqclf.data.field_spec import kind_of
from seqclf.data.ragged import Ragged, take
from seqclf.data.schema.casts import COST, GROUP_NAME, ID, LABEL, ROW, WEIGHT
from seqclf.data.schema.problems import Quarantine
from seqclf.data.schema.rows import Refusal
from seqclf.data.schema.schema import Schema, label_codes
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.stage_rows import FILE, Staged
from seqclf.data.storage.prefetch import prefetched
from seqclf.data.storage.store import Split, SplitCounts, SplitWriter, original_texts, release_pages
from seqclf.errors import InputError
from seqclf.system import progress


class EncodedBatch(NamedTuple):
    """A record batch of N staged rows, together with their encoded sequences.

    `labels`: (N,) int64 class codes, -1 for a label that never occurs in train. `original_lengths`: (N,) lengths before
    truncation, 0 if no token is known. `splits`: (N,) position in SPLITS, -1 for none. `groups`: see `Split`.
    """

    staged: pa.RecordBatch
    sequences: Ragged
    original_lengths: np.ndarray
    labels: np.ndarray
    splits: np.ndarray
    groups: np.ndarray | None

    def usable(self) -> np.ndarray:
        """Return the (N,) mask of rows with a known label and at least one token."""
        return (self.labels >= 0) & (self.original_lengths > 0)

    def rows(self, rows: np.ndarray, has_limit: bool) -> Split:
        """Return the rows at the (M,) positions `rows`. `has_limit`: True to keep lengths before truncation."""
        names = [name for name in (ID, ROW, GROUP_NAME, WEIGHT, COST) if name in self.staged.schema.names]
        staged = self.staged.select(names).take(pa.array(rows))
        return Split(
            take(self.sequences, rows),
            self.labels[rows],
            staged.column(ID),
            staged.column(ROW).to_numpy(zero_copy_only=False),
            self.original_lengths[rows] if has_limit else None,
            None if self.groups is None else self.groups[rows],
            group_names=staged.column(GROUP_NAME) if GROUP_NAME in names else None,
            weights=staged.column(WEIGHT).to_numpy(zero_copy_only=False) if WEIGHT in names else None,
            costs=staged.column(COST).to_numpy(zero_copy_only=False) if COST in names else None,
        )


@dataclass
class StoreWriter:
    """Writes all splits of one dataset into the folder `target`."""

    schema: Schema
    classes: list[str]
    encoders: Mapping[str, FieldEncoder]
    quarantine: Quarantine
    target: Path

    def __post_init__(self) -> None:
        unknown_ids = {name: kind_of(encoder.spec()).unknown_id for name, encoder in tokens_of(self.encoders).items()}
        self.unknown_ids = {name: unknown for name, unknown in unknown_ids.items() if unknown is not None}
        self.report: dict[str, SplitCounts] = {}

    def run(
        self, staged: Mapping[str, Staged], splits: Mapping[str, np.ndarray], groups: Mapping[str, np.ndarray | None]
    ) -> tuple[dict[str, dict[str, str]], dict[str, SplitCounts]]:
        """Write every split. Return dict split → digests of its arrays, and dict split → counts of its rows.

        `splits`: dict source → (N,) position in SPLITS, -1 for none. `groups`: dict source → (N,) (see `Split.groups`).
        """
        digests: dict[str, dict[str, str]] = {}
        for origin, source in staged.items():
            parts = self._write_source(source, splits[origin], groups[origin])
            digests |= {name: part.digest() for name, part in parts.items()}
            self._report(origin, source, parts)
        # The digest of the dataset depends on the order of the splits.
        digests = {name: digests[name] for name in SPLITS if name in digests}
        return digests, {name: self.report[name] for name in digests}

    def _write_source(self, source: Staged, splits: np.ndarray, groups: np.ndarray | None) -> dict[str, _Part]:
        """Rows of the training source may go to any split, those of another source to one."""
        names = [name for split, name in enumerate(SPLITS) if (splits == split).any()]
        with ExitStack() as stack:
            parts = {name: _Part(stack.enter_context(SplitWriter(self.target / name))) for name in names}
            start = 0
            # `prefetched` reads the next record batch while the current record batch is encoded.
            for staged in progress.track(
                prefetched(source.batches()),
                f"encoding {source.source.short_name}",
                total=len(splits),
                unit="rows",
                size=lambda record_batch: record_batch.num_rows,
            ):
                rows = slice(start, start + staged.num_rows)
                start = rows.stop
                batch = self._encoded(staged, splits[rows], None if groups is None else groups[rows])
                self._refuse(batch, source.files, parts)
                self._write(batch, parts)
        return parts

    def _encoded(self, staged: pa.RecordBatch, splits: np.ndarray, groups: np.ndarray | None) -> EncodedBatch:
        sequences, original_lengths = encode_staged(self.encoders, staged, self.schema.truncation)
        codes = label_codes(staged.column(LABEL), self.classes)
        return EncodedBatch(staged, sequences, original_lengths, codes, splits, groups)

    def _refuse(self, batch: EncodedBatch, files: list[str], parts: Mapping[str, _Part]) -> None:
        """Reject rows with a label that train lacks, or without a known token.

        Raises InputError for rows longer than `data.max_length` if `data.truncate` is `error`.
        """
        in_split = batch.splits >= 0
        column = self.schema.token_fields[0].column

        def refusal(row: int, column: str, reason: str) -> Refusal:
            file = files[batch.staged.column(FILE)[row].as_py()]
            return Refusal(file, batch.staged.column(ROW)[row].as_py(), column, reason)

        too_long = np.flatnonzero(self._too_long(batch) & in_split)
        if len(too_long) and self.schema.truncate == "error":
            reason = too_long_reason(batch.original_lengths, self.schema)
            raise refusal(int(too_long[0]), column, reason).error(f" ({len(too_long)} such rows so far)")
        for row in np.flatnonzero(~batch.usable() & in_split).tolist():
            if batch.original_lengths[row] == 0:
                refused = refusal(row, column, EMPTY_REASON)
            else:
                reason = f"is '{batch.staged.column(LABEL)[row]}', which never occurs in the training rows"
                refused = refusal(row, self.schema.label or LABEL, reason)
            part = parts[SPLITS[batch.splits[row]]]
            part.counts.unknown_labels += int(batch.original_lengths[row] > 0)
            part.refused.append(refused)
            self.quarantine.add([refused])

    def _too_long(self, batch: EncodedBatch) -> np.ndarray:
        limit = self.schema.max_length
        lengths = batch.original_lengths
        return np.zeros(len(lengths), bool) if limit is None else lengths > limit

    def _write(self, batch: EncodedBatch, parts: Mapping[str, _Part]) -> None:
        usable, too_long = batch.usable(), self._too_long(batch)
        for name, part in parts.items():
            rows = np.flatnonzero(usable & (batch.splits == SPLITS.index(name)))
            if len(rows):
                # Training rows are stored without texts, because reports do not show training rows.
                texts = None if name == "train" else original_texts(batch.staged, self.encoders)
                taken = None if texts is None else texts.take(pa.array(rows))
                part.add(batch.rows(rows, self.schema.max_length is not None), self.unknown_ids, taken)
                part.counts.truncated += int(too_long[rows].sum())

    def _report(self, origin: str, source: Staged, parts: Mapping[str, _Part]) -> None:
        """Rows rejected by the first pass count under `origin`, the split whose option names the source."""
        late = [refusal for part in parts.values() for refusal in part.refused]
        for name, part in parts.items():
            if not part.counts.used:
                refusals = [*source.refused, *part.refused]
                reason = refusals[-1] if refusals else ""
                raise InputError(source.source, f"none of the rows for {name} can be used: {reason}")
            if part.weight == 0:
                raise InputError(source.source, f"all weights of the rows for {name} are 0 (data.weight)")
            part.counts.refused = len(part.refused) + (len(source.refused) if name == origin else 0)
            self.report[name] = part.counts
        self.report[origin].excluded = source.rows - len(source.refused) - len(source.split_inputs.labels)
        self.quarantine.check_share(str(source.source), source.rows, [*source.refused, *late])
        if self.schema.group_by:
            lost = source.lost_events + sum(refusal.events or 0 for refusal in source.refused)
            self.report[origin].events, self.report[origin].refused_events = source.events, lost


@dataclass
class _Part:
    writer: SplitWriter
    digests: dict[str, Any] = field(default_factory=lambda: defaultdict(hashlib.sha256))
    counts: SplitCounts = field(default_factory=SplitCounts)
    refused: list[Refusal] = field(default_factory=list)
    weight: float | None = None  # sum of the weights, None if rows have none

    def add(self, rows: Split, unknown_ids: Mapping[str, int], texts: pa.RecordBatch | None) -> None:
        """`unknown_ids`: dict field stored as ids → id of unknown values."""
        self.writer.append(rows, texts)
        sequences = rows.sequences
        # Each array is hashed as a stream of bytes, so the digests do not depend on the batch size.
        arrays = {"lengths": sequences.lengths, "labels": rows.labels, **sequences.fields, **sequences.static}
        if rows.weights is not None:
            arrays[WEIGHT] = rows.weights
            self.weight = (self.weight or 0.0) + float(rows.weights.sum())
        for name, values in arrays.items():
            self.digests[name].update(np.ascontiguousarray(values).data)
        self.counts.used += len(rows.labels)
        self.counts.tokens += int(sequences.offsets[-1])
        has_unknown = np.zeros(int(sequences.offsets[-1]), bool)
        for name, unknown in unknown_ids.items():  # a token with several unknown values is counted once
            has_unknown |= (sequences.fields[name] == unknown).reshape(len(has_unknown), -1).any(axis=1)
        self.counts.unknown_tokens += int(has_unknown.sum())

    def digest(self) -> dict[str, str]:
        return {name: digest.hexdigest() for name, digest in self.digests.items()}


def join_splits(splits: Sequence[Split], folder: Path) -> Split:
    """Return the rows of all splits as one split in their order, without original texts and names of groups.

    The tokens are written to new files in `folder`, because splits may be larger than memory.
    """
    folder.mkdir(parents=True)
    first, *others = splits
    offsets, parts = first.sequences.offsets, [split.sequences for split in splits]
    for split in others:
        offsets = np.concatenate([offsets, offsets[-1] + split.sequences.offsets[1:]])
    static = {name: np.concatenate([part.static[name] for part in parts]) for name in parts[0].static}
    return Split(
        Ragged(offsets, _join_tokens(parts, folder), static),
        np.concatenate([split.labels for split in splits]),
        pa.concat_arrays([split.ids for split in splits]),
        np.concatenate([split.row_numbers for split in splits]),
        _join_optional([split.original_lengths for split in splits]),
        _join_optional([split.groups for split in splits]),
        weights=_join_optional([split.weights for split in splits]),
        costs=_join_optional([split.costs for split in splits]),
    )


def _join_tokens(parts: Sequence[Ragged], folder: Path) -> dict[str, np.ndarray]:
    total = sum(int(part.offsets[-1]) for part in parts)
    joined: dict[str, np.ndarray] = {}
    for index, (name, tokens) in enumerate(parts[0].fields.items()):
        shape = (total, *tokens.shape[1:])
        target = np.lib.format.open_memmap(folder / f"{index}.npy", "w+", tokens.dtype, shape)
        start = 0
        for part in parts:
            stop = start + int(part.offsets[-1])
            target[start:stop] = part.fields[name]
            release_pages(part)
            start = stop
        joined[name] = target
    return joined


def _join_optional(values: Sequence[np.ndarray | None]) -> np.ndarray | None:
    present = [value for value in values if value is not None]
    return np.concatenate(present) if len(present) == len(values) else None
