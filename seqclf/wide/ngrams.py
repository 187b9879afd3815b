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
from seqclf.wide.ngram_counts import Stream, Vocabulary, count_new, pruned
from seqclf.wide.path import FittedPath, WidePath
from seqclf.wide.sparse_head import Counts, fit_head
from seqclf.wide.stacked_ngrams import StackedNgrams
from seqclf.wide.stream_index import Pairs, Part, StreamIndex
from seqclf.wide.tree_nodes import parent_places, placeholder

# Training tokens, and tokens times streams, that n-grams are counted on. Larger splits are sampled by whole rows.
MAX_FITTED_TOKENS, MAX_READINGS = 4_000_000, 8_000_000
MAX_NGRAMS = 200_000  # n-grams of one n in one stream; the most frequent ones are kept
MAX_WEIGHTS = 8_000_000  # weights of the n-grams of one n in one stream
MAX_ALL_WEIGHTS = 32_000_000  # weights of all n-grams of all streams, 128 MB; tables of many columns have more
SMALL_VOCABULARY = 256  # letters and events have fewer values, words have more
LONGEST = {"small": 4, "large": 3, "several": 3, "pair": 2, "parent": 1}  # largest n of a stream
MAX_CHANNELS = 16  # channels of number fields that are read as bins
MAX_CARRIED_ID = 2**24  # ids of a stream that float32 states hold exactly
MAX_PAIRED = 6  # streams whose pairs are read too


class Ngrams(WidePath):
    """N-grams of tokens with a linear head. See `SparseHead` for their values.

    The streams of ids are the category fields, the values of bags (n = 1), and the channels of numbers as quantile
    bins. A stream of pairs joins two of them in the same token. In a tree, it joins the ids of parent and child. Where
    all inner nodes of the trees have one id, n-grams leave these nodes out, and there are no such pairs. An n-gram is
    known by its exact tokens, and an unknown one counts for nothing.
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
        """Return the last ids of each stream of n-grams, then the sums over all n-grams so far.

        Return None for trees: the parent of a node comes after it.
        """
        if any(index.size >= MAX_CARRIED_ID or index.needs_whole_rows for index in self._indices()):
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
        of_tokens, of_ends, new_contexts = self._find(fields, lengths, contexts)
        for rows in of_tokens:
            sums = sums + self.weights[rows].sum(dim=1)
        ends = torch.zeros_like(sums)
        for rows in of_ends:
            ends = ends + self.weights[rows]
        total = sums + ends
        norm = total[:, -1:].clamp(min=1e-12).sqrt()
        return total[:, :-1] / norm + self.bias, [*new_contexts, sums]

    def terms(self, fields: Mapping[str, Tensor], lengths: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what the logits of whole sequences are made of.

        Returns:
            Logits (B, C), rows (B, M) of `weights` of all n-grams, 0 where there is none, and the norm (B, 1) of each
            sequence. The logits are the bias and the sum of these rows, each divided by the norm.
        """
        contexts = [
            self.weights.new_full((lengths.shape[0], *state.shape), state.initial) for state in self._states()[:-1]
        ]
        of_tokens, of_ends, _ = self._find(fields, lengths, contexts)
        rows = torch.cat([*of_tokens, *(ends[:, None] for ends in of_ends)], dim=1)
        total = self.weights[rows].sum(dim=1)
        norm = total[:, -1:].clamp(min=1e-12).sqrt()
        return total[:, :-1] / norm + self.bias, rows, norm

    def _find(
        self, fields: Mapping[str, Tensor], lengths: Tensor, contexts: Sequence[Tensor]
    ) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
        """Return rows of `weights`: (B, T') of the n-grams of each n that end with a token, then (B,) with the mark.

        0 stands where there is none. The third list holds the contexts for the next chunk.
        """
        waiting = iter(contexts)
        of_tokens, of_ends, new_contexts = [], [], []
        first = 0
        for index in self._indices():
            grams, context = index(fields, lengths, next(waiting) if index.context else None)
            new_contexts += [] if context is None else [context]
            for count, (numbers, last) in zip(index.grams, grams, strict=True):
                of_tokens.append(torch.where(numbers > 0, numbers + first, 0))
                if last is not None:
                    of_ends.append(torch.where(last > 0, last + first, 0))
                first += count
        return of_tokens, of_ends, new_contexts

    def onnx_form(self) -> StackedNgrams:
        """Return the form of the path that is exported."""
        return StackedNgrams(self._indices(), self.weights, self.bias, self._states())

    def _indices(self) -> list[StreamIndex]:
        return list(self.indices)  # type: ignore[arg-type]

    @classmethod
    def has_use(cls, fields: Sequence[FieldSpec]) -> bool:
        """Return True unless all fields are numbers."""
        return any(field["kind"] != "number" for field in token_specs(fields))

    @classmethod
    def fit(cls, train: Split, fields: Sequence[FieldSpec], num_classes: int, seed: int) -> FittedPath | None:
        """Fit n-grams to training rows. Returns None for a dataset of numbers alone."""
        from scipy import sparse

        if not cls.has_use(fields):
            return None
        streams = _streams(train, fields)
        rows = sampled_rows(train.sequences, min(MAX_FITTED_TOKENS, MAX_READINGS // len(streams)), seed)
        sample = train if len(rows) == len(train.labels) else subset(train, rows)
        most = min(MAX_NGRAMS, MAX_WEIGHTS // (num_classes + 1))
        counted = [_count(stream, sample.sequences, most) for stream in streams]
        counts = sparse.hstack([stream.counts for stream in counted]).tocsr()
        counted, counts, found = *_bounded(counted, counts, MAX_ALL_WEIGHTS // (num_classes + 1)), counts.shape[1]
        is_unigram = np.concatenate([stream.known.sizes() == 1 for stream in counted])
        fitted = fit_head(Counts(counts, is_unigram), np.asarray(sample.labels), sample.groups, num_classes, seed)
        bounds = np.cumsum([len(stream.known) for stream in counted])
        # N-grams in too few rows leave the vocabulary.
        parts_used = np.split(fitted.head.squares > 0, bounds[:-1])
        smaller = [pruned(stream.known, used) for stream, used in zip(counted, parts_used, strict=True)]
        indices = [
            StreamIndex.of_vocabulary(stream.parts, stream.pairs, known, stream.left_out)
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
        path.notes = _notes(fitted.rows, len(train.labels), counts.shape[1], found)
        return FittedPath(path, held_out)


def _notes(fitted: int, rows: int, kept: int, found: int) -> list[str]:
    """Return lines about the limits that a fit met. `kept`, `found`: n-grams."""
    lines = []
    if fitted < rows:
        lines.append(f"fitted to {fitted:,} of {rows:,} training rows")
    if kept < found:
        lines.append(f"{kept:,} of {found:,} n-grams kept, for at most {MAX_ALL_WEIGHTS:,} weights")
    return lines


class _Plan(NamedTuple):
    """A stream that is to be counted. `longest`: largest n of its n-grams. `left_out`: see `StreamIndex`."""

    parts: list[Part]
    longest: int
    left_out: int | None = None


def _streams(train: Split, fields: Sequence[FieldSpec]) -> list[_Plan]:
    """Return the streams that are read of the fields."""
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
    streams = [_Plan([part], n) for part, n in zip(single, longest, strict=True)]
    if any(field["kind"] == "parents" for field in fields):
        streams = [of_tree for stream in streams for of_tree in _tree_streams(stream, train.sequences)]
    streams += [_Plan([part], 1) for part in bags]
    return streams + [_Plan([one, other], LONGEST["pair"]) for one, other in combinations(single[:MAX_PAIRED], 2)]


def _tree_streams(nodes: _Plan, sequences: Ragged) -> list[_Plan]:
    """Return the streams of the nodes of trees.

    A label that all inner nodes share tells nothing. Without these nodes, words that follow one another in the text do
    so in the stream. A pair of this label and a word would be the word again.
    """
    (part,) = nodes.parts
    empty = placeholder(part.ids(sequences), parent_places(sequences))
    if empty is not None:
        return [nodes._replace(left_out=empty)]
    parent = Part(part.field, part.size + 1, is_parent=True)
    return [nodes, _Plan([parent, part], LONGEST["parent"])]


def _bounded(counted: list[_Counted], counts: Any, most: int) -> tuple[list[_Counted], Any]:
    """Return the streams and their counts (N, V) without the n-grams in the fewest rows, so that V is about `most`.

    Marks stay. An n-gram is in no more rows than the one that it begins with, so no prefix is lost.
    """
    if counts.shape[1] <= most:
        return counted, counts
    rows_of = np.bincount(counts.indices, minlength=counts.shape[1])
    is_kept = rows_of > np.partition(rows_of, -most - 1)[-most - 1]
    bounds = np.cumsum([len(stream.known) for stream in counted])
    smaller = [pruned(stream.known, kept) for stream, kept in zip(counted, np.split(is_kept, bounds[:-1]), strict=True)]
    streams = [stream._replace(known=known) for stream, (known, _) in zip(counted, smaller, strict=True)]
    return streams, counts[:, np.flatnonzero(np.concatenate([stays for _, stays in smaller]))]


class _Counted(NamedTuple):
    parts: list[Part]
    pairs: Pairs | None
    left_out: int | None
    known: Vocabulary
    counts: Any  # (N, V) sparse


def _count(stream: _Plan, sequences: Ragged, most: int) -> _Counted:
    """Count the n-grams of a stream in the sequences."""
    parts = stream.parts
    ids, offsets, pairs = parts[0].ids(sequences), np.asarray(sequences.offsets), None
    size = parts[0].size
    if stream.left_out is not None:
        stays = ids != stream.left_out
        offsets = np.append(0, np.cumsum(stays))[offsets]
        ids = ids[stays]
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
    counted = count_new(Stream(ids, offsets, size, stream.longest), most)
    return _Counted(parts, pairs, stream.left_out, *counted)
