"""Form of the n-grams that is exported: the streams are read together, with as many operators as one of them needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from seqclf.models.running_state import State
from seqclf.wide.exact_table import MAX_TOKEN, PRIME, ExactTable
from seqclf.wide.ngram_counts import begin_mark
from seqclf.wide.stream_index import Part, StreamIndex
from seqclf.wide.tree_nodes import compacted

MAX_VALUES = 1024  # values of all streams that are read together, for each token


class StackedNgrams(nn.Module):
    """N-grams with a linear head, equal to `Ngrams` but for rounding.

    The graph of `Ngrams` has a hundred operators a stream, and event tables have dozens of streams: the export took
    minutes. Here the S streams of ids are one tensor (S, B, T). Streams of n = 1 keep their own look-ups: bags have as
    many values as their rows happen to have, and trees have one stream of pairs of a parent and a child.

    Args:
        indices: Index of each stream.
        weights: See `Ngrams`.
        bias: (C,).
        states: States of `Ngrams`.
    """

    weights: Tensor
    bias: Tensor
    sizes: Tensor
    left_out: Tensor
    unigrams: Tensor
    unigram_starts: Tensor

    def __init__(self, indices: Sequence[StreamIndex], weights: Tensor, bias: Tensor, states: Sequence[State]):
        super().__init__()
        self.states = list(states)
        self.register_buffer("weights", weights)
        self.register_buffer("bias", bias)
        starts = [0]
        for index in indices:
            starts.append(starts[-1] + sum(index.grams))
        self.contexts = [index.context for index in indices]
        bags = [place for place, context in enumerate(self.contexts) if not context]
        self.bags = nn.ModuleList(indices[place] for place in bags)
        self.bag_starts = [starts[place] for place in bags]
        # The streams with the longest n-grams come first, so that those of each n are the first ones.
        self.order = sorted(
            (place for place, context in enumerate(self.contexts) if context), key=lambda place: -self.contexts[place]
        )
        streams = [indices[place] for place in self.order]
        self.parts = StackedParts(part for index in streams for part in _parts(index))
        # Place of each stream and number of its part, or numbers of both parts.
        self.singles: list[tuple[int, list[int]]] = []
        self.pairs: list[tuple[int, list[int]]] = []
        for place, index in enumerate(streams):
            numbers = [self.parts.numbers[_key(part)] for part in _parts(index)]
            (self.pairs if len(numbers) == 2 else self.singles).append((place, numbers))
        self.pair_tables = StackedTables(index.pair_table for index in streams if index.pair_table is not None)
        self.register_buffer("sizes", torch.tensor([index.size for index in streams])[:, None, None])
        # A stream that keeps all tokens has -1, which is not an id.
        left_out = [-1 if index.left_out is None else index.left_out for index in streams]
        self.leaves_out = any(index.left_out is not None for index in streams)
        self.register_buffer("left_out", torch.tensor(left_out, dtype=torch.int64)[:, None, None])
        lengths = [len(index.unigrams) for index in streams]
        self.register_buffer("unigram_starts", _starts(lengths)[:, None, None])
        self.register_buffer("unigrams", torch.cat([index.unigrams for index in streams] or [torch.zeros(0)]))
        self.context = max(self.contexts, default=0)
        self.counts = [sum(index.context >= n for index in streams) for n in range(self.context + 1)]  # of each n
        self.tables = nn.ModuleList(
            StackedTables(index.tables[n - 1] for index in streams[: self.counts[n]])  # type: ignore[misc]
            for n in range(1, self.context + 1)
        )
        # Number of n-grams before those of each stream, for each n.
        for n, count in enumerate(self.counts):
            firsts = [starts[place] + sum(indices[place].grams[:n]) for place in self.order[:count]]
            self.register_buffer(f"firsts_{n}", torch.tensor(firsts, dtype=torch.int64)[:, None, None])

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return logits (B, C). See `WidePath.forward`."""
        states = [self.weights.new_full((lengths.shape[0], *state.shape), state.initial) for state in self.states]
        return self.step(fields, lengths, states)[0]

    def chunk_states(self) -> list[State]:
        """Return the states of `Ngrams` before it tells whether chunks can be read."""
        return self.states

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Read a chunk of tokens. See `Ngrams.step`."""
        *contexts, sums = states
        for index, first in zip(self.bags, self.bag_starts, strict=True):
            ((numbers, _),), _ = index(fields, lengths, None)
            sums = sums + self._values(numbers, first).sum(dim=1)
        new_contexts: list[Tensor] = []
        total = sums
        if self.order:
            sums, ends, new_contexts = self._read(fields, lengths, contexts, sums)
            total = sums + ends
        norm = total[:, -1:].clamp(min=1e-12).sqrt()
        return total[:, :-1] / norm + self.bias, [*new_contexts, sums]

    def _read(
        self, fields: Mapping[str, Tensor], lengths: Tensor, contexts: Sequence[Tensor], sums: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return the sums with the n-grams of a chunk, those that end with the mark, and the new contexts."""
        ids = self._ids(fields)
        padding = self.sizes + 2
        lengths = lengths[None, :, None]  # (S, B, 1) where streams leave tokens out
        inside = torch.arange(ids.shape[2], device=ids.device) < lengths
        if self.leaves_out:
            stays = inside & (ids != self.left_out)
            ids, lengths = compacted(ids, stays), stays.sum(dim=2, keepdim=True)
            inside = torch.arange(ids.shape[2], device=ids.device) < lengths
        ids = torch.cat([self._before(contexts), torch.where(inside, ids, padding), self._column(padding, ids)], dim=2)
        end = lengths + self.context
        is_end = torch.arange(ids.shape[2], device=ids.device) == end
        marked = torch.where(is_end, begin_mark(self.sizes) + 1, ids)
        numbers = self._unigrams(marked)
        sums = self._add(sums, self._unigrams(ids[:, :, self.context :]), 0)
        ends = torch.zeros_like(sums)
        for n, table in enumerate(self.tables, start=1):
            count = self.counts[n]
            numbers = table(numbers[:count, :, :-1], marked[:count, :, n:])
            in_chunk = torch.where(is_end[:count, :, self.context :], 0, numbers[:, :, self.context - n :])
            sums = self._add(sums, in_chunk, n)
            ends = self._add(ends, numbers.gather(2, (end - n)[:count].expand(count, -1, -1)), n)
        last = (lengths + torch.arange(self.context, device=ids.device)).expand(len(self.order), -1, -1)
        after = (ids.gather(2, last) + 1).to(torch.float32)
        by_stream = {place: after[row] for row, place in enumerate(self.order)}
        return sums, ends, [by_stream[place][:, self.context - own :] for place, own in self._carried()]

    def _carried(self) -> list[tuple[int, int]]:
        """Return place and context of the streams that have one, in the order of the states."""
        return [(place, context) for place, context in enumerate(self.contexts) if context]

    def _ids(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return the ids (S, B, T) of the streams."""
        parts = self.parts(fields)
        found = parts[[numbers[0] for _, numbers in self.singles]]
        if self.pairs:
            first, second = (parts[[numbers[half] for _, numbers in self.pairs]] for half in (0, 1))
            found = torch.cat([found, self.pair_tables(first, second)])
        places = [place for place, _ in (*self.singles, *self.pairs)]
        return found if places == sorted(places) else found[[places.index(place) for place in range(len(places))]]

    def _before(self, contexts: Sequence[Tensor]) -> Tensor:
        """Return the ids (S, B, context) before a chunk. See `StreamIndex._before`."""
        padded = {}
        for (place, own), context in zip(self._carried(), contexts, strict=True):
            unread = context.new_zeros((context.shape[0], self.context - own))
            padded[place] = torch.cat([unread, context], dim=1) if own < self.context else context
        ids = torch.stack([padded[place] for place in self.order]).to(torch.int64) - 1
        is_last = torch.arange(self.context, device=ids.device) == self.context - 1
        return torch.where(ids < 0, torch.where(is_last, begin_mark(self.sizes), self.sizes + 2), ids)

    def _column(self, values: Tensor, ids: Tensor) -> Tensor:
        """(S, B, 1) `values` (S, 1, 1) for each row of `ids`."""
        return torch.zeros_like(ids[:, :, :1]) + values

    def _unigrams(self, ids: Tensor) -> Tensor:
        return self.unigrams[self.unigram_starts + ids].to(torch.int64)

    def _add(self, sums: Tensor, numbers: Tensor, n: int) -> Tensor:
        """Add the rows of the weights of n-grams (S', B, W) of one n to sums (B, C + 1)."""
        firsts = self.get_buffer(f"firsts_{n}")
        for part, first in zip(numbers.split(self._group), firsts.split(self._group), strict=True):
            sums = sums + self._values(part, first).sum(dim=(0, 2))
        return sums

    @property
    def _group(self) -> int:
        return max(1, MAX_VALUES // self.weights.shape[1])

    def _values(self, numbers: Tensor, first: Tensor | int) -> Tensor:
        return self.weights[torch.where(numbers > 0, numbers + first, 0)]


class StackedParts(nn.Module):
    """Ids (P, B, T) of P distinct parts of tokens. `numbers`: dict key of a part → its place."""

    def __init__(self, parts: Iterable[Part]):
        super().__init__()
        distinct = {_key(part): part for part in parts}
        self.numbers = {key: number for number, key in enumerate(distinct)}
        self.categories = [part.field for part in distinct.values() if part.channel is None]
        self.channels: dict[str, list[int]] = {}
        edges: dict[str, list[Tensor]] = {}
        for part in distinct.values():
            if part.channel is not None:
                self.channels.setdefault(part.field, []).append(part.channel)
                edges.setdefault(part.field, []).append(part.edges)
        for number, bounds in enumerate(edges.values()):
            # No value reaches a bound that is NaN, and infinite values are bins like others.
            padded = nn.utils.rnn.pad_sequence(bounds, batch_first=True, padding_value=float("nan"))
            self.register_buffer(f"edges_{number}", padded)
        keys: list[tuple[str, int | None]] = [(name, None) for name in self.categories]
        keys += [(name, channel) for name, channels in self.channels.items() for channel in channels]
        self.order = [keys.index(key) for key in distinct]

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return ids (P, B, T) int64."""
        found = [fields[name].long()[None] for name in self.categories]
        for number, (name, channels) in enumerate(self.channels.items()):
            values = fields[name][:, :, channels].permute(2, 0, 1)
            edges = self.get_buffer(f"edges_{number}")[:, :, None, None]
            found.append((values[:, None] >= edges).sum(dim=1))
        ids = torch.cat(found)
        return ids if self.order == sorted(self.order) else ids[self.order]


class StackedTables(nn.Module):
    """Look-ups of pairs (S, …) in the `ExactTable` of each stream, with buffers end to end."""

    factors: Tensor
    pairs: Tensor
    numbers: Tensor
    slots: Tensor
    starts: Tensor

    def __init__(self, tables: Iterable[ExactTable]):
        super().__init__()
        tables = list(tables)
        slots = [table.slots for table in tables]
        self.register_buffer("factors", torch.stack([table.factors for table in tables]) if tables else torch.zeros(0))
        self.register_buffer("pairs", torch.cat([table.pairs for table in tables] or [torch.zeros(0)]))
        self.register_buffer("numbers", torch.cat([table.numbers for table in tables] or [torch.zeros(0)]))
        self.register_buffer("slots", torch.tensor(slots, dtype=torch.int64)[:, None, None])
        self.register_buffer("starts", _starts([2 * count for count in slots])[:, None, None])

    def forward(self, prefixes: Tensor, tokens: Tensor) -> Tensor:
        """Return the numbers (S, B, W) int64 of the pairs. See `ExactTable.forward`."""
        pairs = prefixes * MAX_TOKEN + tokens
        found = torch.zeros_like(pairs)
        for half in (0, 1):
            factors = self.factors[:, half, :, None, None]
            hashed = (prefixes * factors[:, 0]) % PRIME + (tokens * factors[:, 1]) % PRIME
            slot = hashed % self.slots + half * self.slots + self.starts
            found = torch.where(self.pairs[slot] == pairs, self.numbers[slot].to(torch.int64), found)
        return found


def _parts(index: StreamIndex) -> list[Part]:
    return list(index.parts)  # type: ignore[arg-type]


def _key(part: Part) -> tuple[str, int | None]:
    return part.field, part.channel


def _starts(lengths: Sequence[int]) -> Tensor:
    """Return the sum of the lengths before each of them."""
    return torch.tensor([0, *lengths], dtype=torch.int64)[:-1].cumsum(0)
