"""Wide path of tokens: exact n-grams of each field, and of pairs of fields, with a linear head."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, token_specs
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split, sampled_rows, subset
from seqclf.models.running_state import State
from seqclf.wide.exact_table import ExactTable, slots_for
from seqclf.wide.ngram_counts import Stream, Vocabulary, begin_mark, count_new, pruned
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.sparse_head import fit_head

# Training tokens, and tokens times streams, that n-grams are counted on. Larger splits are sampled by whole rows.
MAX_FITTED_TOKENS, MAX_READINGS = 4_000_000, 8_000_000
MAX_NGRAMS = 200_000  # n-grams of one n in one stream; the most frequent ones are kept
MAX_WEIGHTS = 8_000_000  # weights of all n-grams, 32 MB
SMALL_VOCABULARY = 256  # letters and events have fewer values, words have more
LONGEST = {"small": 4, "large": 3, "several": 3, "pair": 2}  # largest n of a stream
BINS = 8  # quantile bins of a number
MAX_CHANNELS = 16  # channels of number fields that are read as bins
MAX_CARRIED_ID = 2**24  # ids of a stream that float32 states hold exactly
MAX_PAIRED = 6  # streams whose pairs are read too


class Ngrams(WidePath):
    """N-grams of tokens with a linear head. See `SparseHead` for their values.

    The streams of ids are the category fields, the values of bags (n = 1), and the channels of numbers as quantile
    bins. A stream of pairs joins two of them in the same token. An n-gram is known by its exact tokens, and an unknown
    one counts for nothing.
    """

    title = "n-grams"
    reads_chunks = True
    weights: Tensor
    bias: Tensor

    def __init__(self, fields: Sequence[FieldSpec], num_classes: int, *, streams: Sequence[Mapping[str, Any]]):
        super().__init__()
        self._index([StreamIndex(**stream) for stream in streams])
        grams = sum(sum(stream["grams"]) for stream in streams)
        # Row 0 is the unknown n-gram. The last column holds the squares of the norm.
        self.register_buffer("weights", torch.zeros(1 + grams, num_classes + 1))
        self.register_buffer("bias", torch.zeros(num_classes))

    def _index(self, indices: Sequence[StreamIndex]) -> None:
        self.indices = nn.ModuleList(indices)

    def settings(self) -> dict[str, Any]:
        return {"streams": [index.settings() for index in self._indices()]}

    def chunk_states(self) -> list[State] | None:
        """Return the last ids of each stream of n-grams, then the sums over all n-grams so far."""
        if any(index.size >= MAX_CARRIED_ID for index in self._indices()):
            return None
        return self._states()

    def _states(self) -> list[State]:
        contexts = [(number, index.context) for number, index in enumerate(self._indices())]
        states = [State(f"ids{number}", (context,), 0.0) for number, context in contexts if context]
        return [*states, State("sums", (self.weights.shape[1],), 0.0)]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C). See `WidePath.forward`."""
        rows = lengths.shape[0]
        states = [self.weights.new_full((rows, *state.shape), state.initial) for state in self._states()]
        return self.step(fields, lengths, states)[0]

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. See `WidePath.step`."""
        *contexts, sums = states
        waiting, new_contexts = iter(contexts), []
        ends = torch.zeros_like(sums)
        first = 0
        for index in self._indices():
            grams, context = index(fields, lengths, next(waiting) if index.context else None)
            new_contexts += [] if context is None else [context]
            for count, (numbers, last) in zip(index.grams, grams, strict=True):
                sums = sums + self._values(numbers, first).sum(dim=1)
                if last is not None:
                    ends = ends + self._values(last, first)
                first += count
        total = sums + ends
        norm = total[:, -1:].clamp(min=1e-12).sqrt()
        return total[:, :-1] / norm + self.bias, [*new_contexts, sums]

    def _indices(self) -> list[StreamIndex]:
        return list(self.indices)  # type: ignore[arg-type]

    def _values(self, numbers: Tensor, first: int) -> Tensor:
        """Return the rows of the weights for numbers (…) of n-grams of one level, which begins at the row `first`."""
        return self.weights[torch.where(numbers > 0, numbers + first, 0)]

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit n-grams to training rows. Returns None for a dataset of numbers alone."""
        from scipy import sparse

        if all(field["kind"] == "number" for field in token_specs(fields)):
            return None
        streams = _streams(train, fields)
        rows = sampled_rows(train.sequences, min(MAX_FITTED_TOKENS, MAX_READINGS // len(streams)), seed)
        sample = train if len(rows) == len(train.labels) else subset(train, rows)
        most = min(MAX_NGRAMS, MAX_WEIGHTS // (num_classes + 1))
        counted = [_count(parts, sample.sequences, longest, most) for parts, longest in streams]
        counts = sparse.hstack([stream.counts for stream in counted]).tocsr()
        fitted = fit_head(counts, np.asarray(sample.labels), sample.groups, num_classes, seed)
        bounds = np.cumsum([len(stream.known) for stream in counted])
        # N-grams in too few rows leave the vocabulary.
        parts_used = np.split(fitted.head.squares > 0, bounds[:-1])
        smaller = [pruned(stream.known, used) for stream, used in zip(counted, parts_used, strict=True)]
        indices = [
            StreamIndex.of_vocabulary(stream.parts, stream.pairs, known)
            for stream, (known, _) in zip(counted, smaller, strict=True)
        ]
        path = cls(fields, num_classes, streams=[index.settings() for index in indices])
        path._index(indices)
        kept = np.concatenate([stays for _, stays in smaller])
        table = np.column_stack([fitted.head.weights, fitted.head.squares])[kept]
        path.weights[1:] = torch.from_numpy(table).float()
        path.bias.copy_(torch.from_numpy(fitted.head.bias))
        held_out = np.full((len(train.labels), num_classes), np.nan)
        held_out[rows] = fitted.held_out
        return FittedPath(path, held_out)


class Part(nn.Module):
    """One id of each token, from a field: the id of a category, the ids of a bag, or the bin of a channel of a number.

    `size`: exclusive upper bound of the ids. `channel`: index in a number field, None for other kinds of fields.
    """

    edges: Tensor
    size: int

    def __init__(self, field: str, size: int, channel: int | None = None):
        super().__init__()
        self.field = field
        self.size = size
        self.channel = channel
        self.register_buffer("edges", torch.zeros(0 if channel is None else size - 1))

    @classmethod
    def of_channel(cls, field: str, channel: int, values: np.ndarray) -> Part:
        """Return a channel of a number field, with bins that hold about as many of the `values` (S,) each."""
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]).astype(np.float32))
        part = cls(field, len(edges) + 1, channel)
        part.edges.copy_(torch.from_numpy(edges))
        return part

    def settings(self) -> dict[str, Any]:
        return {"field": self.field, "size": self.size, "channel": self.channel}

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return ids (B, T) int64, or (B, T, K) for a bag."""
        values = fields[self.field]
        if self.channel is None:
            return values.long()  # encoders give int32 ids, and the key of a pair of ids would overflow
        return (values[..., self.channel, None] >= self.edges).sum(dim=-1)

    def ids(self, sequences: Ragged) -> np.ndarray:
        """Return the ids (S,) int64 of the tokens, (S, K) of a bag."""
        values = np.asarray(sequences.fields[self.field])
        if self.channel is None:
            return values.astype(np.int64)
        return np.searchsorted(self.edges.numpy(), values[:, self.channel], side="right")


class StreamIndex(nn.Module):
    """Numbers of the n-grams of one stream of ids: its part, or the pairs of its two parts in a token.

    `parts`: settings of `Part`. `pairs`: number of distinct pairs, 0 for a single part. `grams`: number of n-grams of
    each n from 1.
    """

    unigrams: Tensor
    size: int
    grams: list[int]

    def __init__(self, parts: Sequence[Mapping[str, Any]], pairs: int, grams: Sequence[int]):
        super().__init__()
        made = [Part(**part) for part in parts]
        self.parts = nn.ModuleList(made)
        self.pairs = pairs
        self.grams = list(grams)
        self.pair_table = table_of_size(pairs) if pairs else None
        self.size = pairs + 1 if pairs else made[0].size
        self.register_buffer("unigrams", torch.zeros(self.size + 3, dtype=torch.int32))
        self.tables = nn.ModuleList(table_of_size(count) for count in grams[1:])

    @classmethod
    def of_vocabulary(cls, parts: Sequence[Part], pairs: Pairs | None, known: Vocabulary) -> StreamIndex:
        """Return the index of a vocabulary. `pairs`: distinct pairs of ids of two parts, None for one part."""
        count = 0 if pairs is None else len(pairs.first)
        index = cls([part.settings() for part in parts], count, [len(level) for level in known.levels])
        index.parts = nn.ModuleList(parts)
        if pairs is not None:
            index.pair_table = ExactTable.of_pairs(*pairs)
        first, *longer = known.levels
        index.unigrams[torch.from_numpy(first.tokens)] = torch.arange(1, len(first) + 1, dtype=torch.int32)
        index.tables = nn.ModuleList(ExactTable.of_pairs(level.prefixes, level.tokens) for level in longer)
        return index

    def settings(self) -> dict[str, Any]:
        parts = [part.settings() for part in self.parts]  # type: ignore[operator]
        return {"parts": parts, "pairs": self.pairs, "grams": self.grams}

    @property
    def context(self) -> int:
        """Number of ids before a chunk that its n-grams may begin with."""
        return len(self.grams) - 1

    def forward(
        self, fields: Mapping[str, Tensor], lengths: Tensor, context: Tensor | None
    ) -> tuple[list[tuple[Tensor, Tensor | None]], Tensor | None]:
        """Find the n-grams of a chunk of tokens.

        Args:
            fields: see `WidePath.forward`.
            lengths: (B,) number of tokens of each row in the chunk.
            context: (B, `context`) float32, the ids before the chunk plus 1, and 0 before the first token. None for a
                stream of n = 1 alone.

        Returns:
            For each n the numbers (B, T') of the n-grams whose last token is in the chunk, 0 for an unknown one, and
            the number (B,) of the one that ends with the mark after the chunk, None for n = 1. Then the context (B,
            `context`) for the next chunk.
        """
        ids = self.parts[0](fields)
        if self.pair_table is not None:
            ids = self.pair_table(ids, self.parts[1](fields))
        padding = self.size + 2
        inside = torch.arange(ids.shape[1], device=ids.device) < lengths[:, None]
        if ids.dim() == 3:
            ids = torch.where(inside[..., None] & (ids > 0), ids, padding).flatten(1)
        else:
            ids = torch.where(inside, ids, padding)
        if context is None:
            return [(self._unigrams(ids), None)], None
        ids = torch.cat([self._before(context), ids, torch.full_like(ids[:, :1], padding)], dim=1)
        end = lengths[:, None] + self.context
        is_end = torch.arange(ids.shape[1], device=ids.device) == end
        marked = torch.where(is_end, begin_mark(self.size) + 1, ids)
        numbers = self._unigrams(marked)
        found: list[tuple[Tensor, Tensor | None]] = [(self._unigrams(ids[:, self.context :]), None)]
        for n, table in enumerate(self.tables, start=2):
            numbers = table(numbers[:, :-1], marked[:, n - 1 :])
            # Those whose last token is in the chunk, and not the mark behind it.
            in_chunk = torch.where(is_end[:, self.context :], 0, numbers[:, self.context - n + 1 :])
            found.append((in_chunk, numbers.gather(1, end - n + 1)[:, 0]))
        last = lengths[:, None] + torch.arange(self.context, device=ids.device)
        return found, (ids.gather(1, last) + 1).to(torch.float32)

    def _unigrams(self, ids: Tensor) -> Tensor:
        return self.unigrams[ids].to(torch.int64)

    def _before(self, context: Tensor) -> Tensor:
        """Return ids (B, `context`) before a chunk. The mark stands before the first token, and nothing before it."""
        ids = context.to(torch.int64) - 1
        nothing = torch.full_like(ids[:1], self.size + 2)
        nothing[:, -1] = begin_mark(self.size)
        return torch.where(ids < 0, nothing, ids)


def table_of_size(pairs: int) -> ExactTable:
    """Return an empty table of the size that `ExactTable.of_pairs` makes of so many pairs."""
    return ExactTable(slots_for(pairs))


def _streams(train: Split, fields: Sequence[FieldSpec]) -> list[tuple[list[Part], int]]:
    """Return the parts of each stream, and the largest n of its n-grams."""
    single: list[Part] = []
    bags: list[Part] = []
    for field in token_specs(fields):
        if field["kind"] == "number":
            values = np.asarray(train.sequences.fields[field["name"]])
            channels = range(min(field["width"], MAX_CHANNELS))
            single += [Part.of_channel(field["name"], channel, values[:, channel]) for channel in channels]
        else:
            (bags if field["kind"] == "bag" else single).append(Part(field["name"], field["size"]))
    single = [part for part in single if part.size > 1]
    if len(single) > 1:
        longest = [LONGEST["several"]] * len(single)
    else:
        longest = [LONGEST["small" if part.size <= SMALL_VOCABULARY else "large"] for part in single]
    streams = [([part], n) for part, n in zip(single, longest, strict=True)]
    streams += [([part], 1) for part in bags]
    return streams + [([one, other], LONGEST["pair"]) for one, other in combinations(single[:MAX_PAIRED], 2)]


class Pairs(NamedTuple):
    """Distinct pairs of ids, (P,) each."""

    first: np.ndarray
    second: np.ndarray


class _Counted(NamedTuple):
    parts: list[Part]
    pairs: Pairs | None
    known: Vocabulary
    counts: Any  # (N, V) sparse


def _count(parts: list[Part], sequences: Ragged, longest: int, most: int) -> _Counted:
    """Count the n-grams of a stream in the sequences."""
    ids, offsets, pairs = parts[0].ids(sequences), np.asarray(sequences.offsets), None
    size = parts[0].size
    if ids.ndim == 2:
        offsets = np.append(0, np.cumsum((ids > 0).sum(axis=1)))[offsets]
        ids = ids[ids > 0]
    if len(parts) == 2:
        width = parts[1].size
        distinct, place, rows = np.unique(
            ids * width + parts[1].ids(sequences), return_inverse=True, return_counts=True
        )
        is_kept = rows >= (1 if len(distinct) <= most else np.sort(rows)[-most])
        ids = np.where(is_kept, np.cumsum(is_kept), 0)[place]
        pairs = Pairs(distinct[is_kept] // width, distinct[is_kept] % width)
        size = len(pairs.first) + 1
    return _Counted(parts, pairs, *count_new(Stream(ids, offsets, size, longest), most))
