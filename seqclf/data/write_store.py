"""Pass two: staged rows → the splits on disk, encoded once and dealt out."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.caching.checksums import Blocks
from seqclf.data.collect import FILE, Staged
from seqclf.data.encoding.encoders import Encoder, encode
from seqclf.data.reading.casts import ID, LABEL, ROW
from seqclf.data.reading.record_batches import Refusal
from seqclf.data.schema.schema import Schema
from seqclf.data.splitting.policy import SPLITS
from seqclf.data.storage.prefetch import prefetched
from seqclf.data.storage.ragged import Ragged, SplitWriter, take
from seqclf.data.validation.quarantine import Quarantine
from seqclf.data.validation.row_checks import EMPTY_REASON, too_long_reason
from seqclf.errors import InputError


class Writing:
    """Writes the splits of one preparation into the folder `target`."""

    def __init__(
        self,
        schema: Schema,
        classes: list[str],
        encoders: Mapping[str, Encoder],
        quarantine: Quarantine,
        target: Path,
    ):
        self.schema = schema
        self.classes = classes
        self.encoders = encoders
        self.quarantine = quarantine
        self.target = target
        self.report: dict[str, dict[str, int]] = {}
        self.checksums: dict[str, Blocks] = {}  # of the files that were written, by path in `target`

    def run(
        self,
        staged: Mapping[str, Staged],
        chosen: Mapping[str, np.ndarray],
        groups: Mapping[str, np.ndarray | None],
    ) -> tuple[dict[str, dict[str, str]], dict[str, dict[str, int]]]:
        """Write every split; gives the digests of the parts of their content, and the counts of their rows.

        `chosen`: of each source, (N,) which of SPLITS each row goes to, -1 for none. `groups`: (N,) what rows of one
        split share, or None.
        """
        digests: dict[str, dict[str, str]] = {}
        for origin, own in staged.items():
            wanted = [name for part, name in enumerate(SPLITS) if (chosen[origin] == part).any()]
            with ExitStack() as stack:
                parts = {name: _Part(stack.enter_context(SplitWriter(self.target / name))) for name in wanted}
                start = 0
                for batch in prefetched(own.batches()):
                    here = slice(start, start + batch.num_rows)
                    start = here.stop
                    shared = groups[origin]
                    groups_of = None if shared is None else shared[here]
                    self._encode_batch(batch, own.files, chosen[origin][here], groups_of, parts)
            for name, part in parts.items():
                self.checksums |= {f"{name}/{file}": blocks for file, blocks in part.writer.checksums.items()}
            self._report(origin, own, parts)
            digests |= {name: part.digest() for name, part in parts.items()}
        digests = {name: digests[name] for name in SPLITS if name in digests}
        return digests, {name: self.report[name] for name in digests}

    def _report(self, origin: str, staged: Staged, parts: Mapping[str, _Part]) -> None:
        late = [refusal for part in parts.values() for refusal in part.refused]
        for name, part in parts.items():
            if not part.counts["used"]:
                why = [*staged.refused, *part.refused]
                raise InputError(f"{staged.source}: none of the rows for {name} can be used: {why[-1] if why else ''}")
            # What a shared file refused at once is counted with the split of its name.
            refused = len(part.refused) + (len(staged.refused) if name == origin else 0)
            self.report[name] = {**part.counts, "refused": refused}
        self.quarantine.check_share(str(staged.source), staged.rows, [*staged.refused, *late])
        if self.schema.group_by:
            lost = staged.lost_events + sum(refusal.events or 0 for refusal in staged.refused)
            self.report[origin] |= {"events": staged.events, "refused_events": lost}

    def _encode_batch(
        self,
        batch: pa.RecordBatch,
        files: list[str],
        splits_of: np.ndarray,
        groups_of: np.ndarray | None,
        parts: Mapping[str, _Part],
    ) -> None:
        """Encode all rows, and write each to its part. `splits_of`: (N,) which of SPLITS, -1 for none."""
        sequences, original_lengths = encode(self.encoders, batch, self.schema.truncation, staged=True)
        labels = pc.fill_null(pc.index_in(batch.column(LABEL), value_set=pa.array(self.classes)), -1)
        labels = labels.to_numpy(zero_copy_only=False).astype(np.int64)
        limit = self.schema.max_length
        chosen = splits_of >= 0
        too_long = np.zeros(len(original_lengths), bool) if limit is None else (original_lengths > limit) & chosen
        column = self.schema.fields[0].column

        def refusal(row: int, column: str, reason: str) -> Refusal:
            return Refusal(files[batch.column(FILE)[row].as_py()], batch.column(ROW)[row].as_py(), column, reason)

        if too_long.any() and self.schema.truncate == "error":
            first = refusal(int(np.flatnonzero(too_long)[0]), column, too_long_reason(original_lengths, limit))
            raise InputError(f"{first} ({int(too_long.sum())} such rows so far)")
        for row in np.flatnonzero(((labels < 0) | (original_lengths == 0)) & chosen).tolist():
            if original_lengths[row] == 0:
                found = refusal(row, column, EMPTY_REASON)
            else:
                text = f"is '{batch.column(LABEL)[row]}', which never occurs in the training rows"
                found = refusal(row, self.schema.label or LABEL, text)
            parts[SPLITS[splits_of[row]]].refused.append(found)
            self.quarantine.add([found])
        vocabularies = [name for name, encoder in self.encoders.items() if encoder.spec()["kind"] == "category"]
        for name, part in parts.items():
            keep = np.flatnonzero((labels >= 0) & (original_lengths > 0) & (splits_of == SPLITS.index(name)))
            if len(keep):
                kept = take(sequences, keep)
                optional = {
                    "original_lengths": None if limit is None else original_lengths[keep],
                    "groups": None if groups_of is None else groups_of[keep],
                }
                part.add(kept, labels[keep], batch, keep, **optional)
                unknown = sum(int((kept.fields[field] == 0).sum()) for field in vocabularies)
                part.counts.update(truncated=int(too_long[keep].sum()), unknown_steps=unknown)


class _Part:
    """A split as it is written: its counts, its late refusals, the digests of its arrays."""

    def __init__(self, writer: SplitWriter):
        self.writer = writer
        self.digests: dict[str, Any] = defaultdict(hashlib.sha256)
        self.counts = Counter(used=0, truncated=0, steps=0, unknown_steps=0)
        self.refused: list[Refusal] = []

    def add(
        self,
        sequences: Ragged,
        labels: np.ndarray,
        batch: pa.RecordBatch,
        keep: np.ndarray,
        **optional: np.ndarray | None,
    ) -> None:
        taken = pa.array(keep)
        rows = batch.column(ROW).take(taken).to_numpy(zero_copy_only=False)
        self.writer.append(sequences, labels, batch.column(ID).take(taken), rows, **optional)
        for part, values in {"lengths": sequences.lengths, "labels": labels, **sequences.fields}.items():
            self.digests[part].update(np.ascontiguousarray(values).data)
        self.counts.update(used=len(keep), steps=int(sequences.offsets[-1]))

    def digest(self) -> dict[str, str]:
        return {part: digest.hexdigest() for part, digest in self.digests.items()}
