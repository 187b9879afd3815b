"""Numbers of the n-grams of a stream of ids: exact look-ups of its unigrams, pairs and longer n-grams."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import PARENTS
from seqclf.data.ragged import Ragged
from seqclf.wide.exact_table import ExactTable, slots_for
from seqclf.wide.ngram_counts import Vocabulary, begin_mark
from seqclf.wide.tree_nodes import compacted, ids_above, parent_places

BINS = 8  # quantile bins of a number


class Pairs(NamedTuple):
    """Distinct pairs of ids, (P,) each."""

    first: np.ndarray
    second: np.ndarray


class Part(nn.Module):
    """One id of each token, from a field: the id of a category, the ids of a bag, or the bin of a channel of a number.

    `size`: exclusive upper bound of the ids. `channel`: index in a number field, None for other kinds of fields.
    `is_parent`: True for the id of the parent of each node of a tree. The largest id, `size` - 1, then stands above the
    root.
    """

    edges: Tensor
    size: int

    def __init__(self, field: str, size: int, channel: int | None = None, is_parent: bool = False):
        super().__init__()
        self.field = field
        self.size = size
        self.channel = channel
        self.is_parent = is_parent
        self.register_buffer("edges", torch.zeros(0 if channel is None else size - 1))

    @classmethod
    def of_channel(cls, field: str, channel: int, values: np.ndarray) -> Part:
        """Return a channel of a number field, with bins that hold about as many of the `values` (S,) each."""
        edges = np.unique(np.quantile(values, np.linspace(0, 1, BINS + 1)[1:-1]).astype(np.float32))
        part = cls(field, len(edges) + 1, channel)
        part.edges.copy_(torch.from_numpy(edges))
        return part

    @property
    def title(self) -> str:
        """Name of the field, and of the channel of a number."""
        return self.field if self.channel is None else f"{self.field}[{self.channel}]"

    def settings(self) -> dict[str, Any]:
        of_tree = {"is_parent": True} if self.is_parent else {}
        return {"field": self.field, "size": self.size, "channel": self.channel, **of_tree}

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        """Return ids (B, T) int64, or (B, T, K) for a bag."""
        values = fields[self.field]
        if self.is_parent:
            return ids_above(values.long(), fields[PARENTS].long(), self.size - 1)
        if self.channel is None:
            return values.long()  # encoders give int32 ids, and the key of a pair of ids would overflow
        return (values[..., self.channel, None] >= self.edges).sum(dim=-1)

    def ids(self, sequences: Ragged) -> np.ndarray:
        """Return the ids (S,) int64 of the tokens, (S, K) of a bag."""
        values = np.asarray(sequences.fields[self.field])
        if self.is_parent:
            above = parent_places(sequences)
            return np.where(above >= 0, values[above].astype(np.int64), self.size - 1)
        if self.channel is None:
            return values.astype(np.int64)
        return np.searchsorted(self.edges.numpy(), values[:, self.channel], side="right")


class StreamIndex(nn.Module):
    """Numbers of the n-grams of one stream of ids: its part, or the pairs of its two parts in a token.

    `parts`: settings of `Part`. `pairs`: number of distinct pairs, 0 for a single part. `grams`: number of n-grams of
    each n from 1. `left_out`: id of tokens that the stream leaves out, so that the tokens around them are neighbours;
    None to keep all.
    """

    unigrams: Tensor
    size: int
    grams: list[int]

    def __init__(
        self, parts: Sequence[Mapping[str, Any]], pairs: int, grams: Sequence[int], left_out: int | None = None
    ):
        super().__init__()
        made = [Part(**part) for part in parts]
        self.parts = nn.ModuleList(made)
        self.pairs = pairs
        self.grams = list(grams)
        self.left_out = left_out
        self.pair_table = table_of_size(pairs) if pairs else None
        self.size = pairs + 1 if pairs else made[0].size
        self.register_buffer("unigrams", torch.zeros(self.size + 3, dtype=torch.int32))
        self.tables = nn.ModuleList(table_of_size(count) for count in grams[1:])

    @classmethod
    def of_vocabulary(
        cls, parts: Sequence[Part], pairs: Pairs | None, known: Vocabulary, left_out: int | None = None
    ) -> StreamIndex:
        """Return the index of a vocabulary. `pairs`: distinct pairs of ids of two parts, None for one part."""
        count = 0 if pairs is None else len(pairs.first)
        index = cls([part.settings() for part in parts], count, [len(level) for level in known.levels], left_out)
        index.parts = nn.ModuleList(parts)
        if pairs is not None:
            index.pair_table = ExactTable.of_pairs(*pairs)
        first, *longer = known.levels
        index.unigrams[torch.from_numpy(first.tokens)] = torch.arange(1, len(first) + 1, dtype=torch.int32)
        index.tables = nn.ModuleList(ExactTable.of_pairs(level.prefixes, level.tokens) for level in longer)
        return index

    def settings(self) -> dict[str, Any]:
        parts = [part.settings() for part in self.parts]  # type: ignore[operator]
        of_tree = {} if self.left_out is None else {"left_out": self.left_out}
        return {"parts": parts, "pairs": self.pairs, "grams": self.grams, **of_tree}

    @property
    def title(self) -> str:
        """Names of the parts."""
        if self.joins_parents:
            return "parent > child"
        return " & ".join(part.title for part in self.parts)  # type: ignore[misc]

    @property
    def joins_parents(self) -> bool:
        """True for a stream of pairs of a parent and a child in a tree."""
        return bool(self.parts[0].is_parent)

    @property
    def needs_whole_rows(self) -> bool:
        """True for a stream of trees, which cannot be read chunk by chunk."""
        return self.joins_parents or self.left_out is not None

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
        if self.left_out is not None:
            stays = inside & (ids != self.left_out)
            ids, lengths = compacted(ids, stays), stays.sum(dim=1)
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

    def gram(self, level: int, number: int) -> list[int]:
        """Return the ids of an n-gram of the stream. `level`: n - 1. `number`: number of the n-gram, from 1."""
        ids: list[int] = []
        for table in list(self.tables)[:level][::-1]:
            number, token = table.pair(number)  # type: ignore[operator]
            ids.insert(0, token)
        return [int((self.unigrams == number).nonzero()[0]), *ids]

    def ids_of(self, token: int) -> tuple[int, ...] | None:
        """Return the id of each part for an id of the stream, None for a pair that the index does not know."""
        if self.pair_table is None:
            return (token,)
        return self.pair_table.pair(token) if token else None

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
