"""Features of a row for boosted trees: what its tokens hold and, in blocks, in which order. Read chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec
from seqclf.data.ragged import Ragged
from seqclf.models.heads.pooled_numbers import NumberPool, Pooled
from seqclf.models.running_state import LOWEST, State
from seqclf.wide.boosting import choose_cuts
from seqclf.wide.feature_path import batches, padded
from seqclf.wide.order_features import Block, Lags, Places, Tokens, sums_by_value

MAX_VALUES = 200  # size of a field whose values are counted; n-grams suit larger vocabularies
LEVELS = (0.25, 0.5, 0.75)  # quantiles of the training values above which the values of a channel are counted
MAX_LEVELLED = 200  # channels with such counts
SAMPLED_TOKENS = 50_000  # tokens that choose the levels
MAX_PAIRS = 500  # pairs of values of a bag field that are counted
MAX_JOINT = 256  # pairs of a category value and a channel whose tokens are pooled
BLOCKS = ("places", "lags")  # blocks of features of the order of the tokens
JOINT = ("mean", "highest", "lowest")  # statistics of such a pair, see `RowFeatures.forward`


class Total(NamedTuple):
    """A sum, largest or smallest value over the tokens of a row. `shape`: shape without the batch axis."""

    name: str
    shape: tuple[int, ...]
    initial: float
    join: Callable[[Tensor, Tensor], Tensor]


class RowFeatures(nn.Module):
    """Features (B, F) of rows.

    - The statistics of all D number channels and the log number of tokens (see `Pooled.columns`).
    - The share of the values of a channel above each of `LEVELS`, which tells its median where few values are extreme.
    - The number of tokens with each value of category and bag fields, and with both values of each pair of a bag field.
      Fields with many values are not read.
    - Mean, highest and lowest value of each channel that is not a mask in the tokens with one value of a category, such
      as the highest amount of a transfer, up to `MAX_JOINT` pairs.
    - Features of the order of the tokens: see `Places` and `Lags`.

    Args:
        fields: Specs of the model's inputs.
        blocks: Names of the blocks of features of the order that are read, of `BLOCKS`.
    """

    levels: Tensor

    def __init__(self, fields: Sequence[FieldSpec], blocks: Sequence[str] = BLOCKS):
        super().__init__()
        self.pool = NumberPool(fields)
        small = [field for field in fields if field["kind"] in ("category", "bag") and field["size"] <= MAX_VALUES]
        self.counted = [(field["name"], field["size"]) for field in small]
        bags = [(field["name"], field["size"]) for field in small if field["kind"] == "bag"]
        self.paired = [(name, size) for name, size in bags if _count_pairs(size) <= MAX_PAIRS]
        self.joint: list[tuple[str, int]] = []
        for field in small:
            pairs = sum(size for _, size in self.joint) + field["size"]
            if field["kind"] == "category" and 0 < pairs * len(self.pool.measured) <= MAX_JOINT:
                self.joint.append((field["name"], field["size"]))
        levelled = self.pool.width if self.pool.width <= MAX_LEVELLED else 0
        self.register_buffer("levels", torch.zeros(levelled, len(LEVELS)))
        categories = [(field["name"], field["size"]) for field in small if field["kind"] == "category"]
        offered: list[Block] = [
            Places(self.counted, self.joint, self.pool),
            Lags(categories, self.pool.width),
        ]
        self.blocks = [block for block in offered if block.name in blocks and block.states()]

    @property
    def names(self) -> list[str]:
        """Names of the fields that are read."""
        return [*self.pool.names, *(name for name, _ in self.counted)]

    @property
    def size(self) -> int:
        """Number of features F."""
        return self.unordered + sum(self.block_sizes.values())

    @property
    def block_sizes(self) -> dict[str, int]:
        """Dict block of features of the order → its number of features, in their order."""
        channels = [""] * self.pool.width
        values = {name: [""] * size for name, size in self.counted}
        return {block.name: len(block.texts(channels, values)) for block in self.blocks}

    @property
    def unordered(self) -> int:
        """Number of features that ignore the order of the tokens, the first ones."""
        joint = len(JOINT) * len(self.pool.measured) * sum(size for _, size in self.joint)
        counts = sum(size for _, size in self.counted) + sum(_count_pairs(size) for _, size in self.paired)
        return self.pool.size + self.levels.numel() + counts + joint

    def texts(self, channels: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the name of each feature.

        `channels`: (D,) names. `values`: dict counted field → name of each of its values.
        """
        named = self.pool.texts(channels)
        levelled = channels if len(self.levels) else []
        named += [f"share of {channel} above its {level:.0%} quantile" for channel in levelled for level in LEVELS]
        named += [f"count of {name} {value}" for name, _ in self.counted for value in values[name]]
        for name, _ in self.paired:
            named += [f"count of {name} {one} with {other}" for one, other in combinations(values[name][1:], 2)]
        for name, _ in self.joint:
            pairs = [f"{channels[at]} of {name} {value}" for value in values[name] for at in self.pool.measured]
            named += [f"{statistic} {pair}" for statistic in JOINT for pair in pairs]
        return named + [text for block in self.blocks for text in block.texts(channels, values)]

    def choose_levels(self, sequences: Ragged, rows: np.ndarray, seed: int) -> None:
        """Set the levels of each channel by values of random rows."""
        if not len(self.levels):
            return
        rows = np.random.default_rng(seed).permutation(rows)
        few = rows[: max(1, int(np.searchsorted(np.cumsum(sequences.lengths[rows]), SAMPLED_TOKENS)))]
        few = few[np.argsort(sequences.lengths[few], kind="stable")]
        read = [self.pool.values(*padded(sequences, few[part])) for part in batches(sequences.lengths[few])]
        for channel in range(self.pool.width):
            values = np.concatenate([part[..., channel][valid[..., channel]].numpy() for part, valid in read])
            cuts = choose_cuts(values) if len(values) else values
            if len(cuts):
                wanted = np.quantile(values, LEVELS)
                nearest = np.abs(cuts[:, None] - wanted).argmin(axis=0)
                self.levels[channel] = torch.from_numpy(cuts[nearest])

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the features (B, F) float32. For the arguments, see `WidePath.forward`.

        The mean of a pair without tokens is 0, its highest value is the lowest float32, and its lowest the highest.
        """
        states = [
            torch.full((1, *state.shape), state.initial, device=lengths.device).expand(lengths.shape[0], *state.shape)
            for state in self.states()
        ]
        return self.step(fields, lengths, states)[0]

    def states(self) -> list[State]:
        """Return the states that `step` carries."""
        pooled = self.pool.states() if self.pool.width else [State("tokens", (1,))]
        own = [*pooled, *(State(total.name, total.shape, total.initial) for total in self._totals())]
        return [*own, *(state for block in self.blocks for state in block.states())]

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Return the features (B, F) of the tokens of `states` and of a chunk, and the new states."""
        waiting = iter(states)
        before = [next(waiting) for _ in (self.pool.states() if self.pool.width else range(1))]
        values, valid = self.pool.values(fields, lengths) if self.pool.width else (lengths[:0], lengths[:0])
        is_token = torch.arange(fields[self.names[0]].shape[1], device=lengths.device) < lengths[:, None]
        pooled, added = self._read(fields, lengths, is_token, values, valid)
        pooled = pooled.after(before) if isinstance(pooled, Pooled) else before[0] + pooled
        totals = [total.join(next(waiting).to(new), new) for total, new in zip(self._totals(), added, strict=True)]
        kept = [*(pooled.kept() if isinstance(pooled, Pooled) else [pooled]), *totals]
        columns = self._columns(pooled, totals)
        of_values = totals[1:] if len(self.levels) else totals  # without the total of the levels
        counts = {name: total for (name, _), total in zip(self.counted, of_values, strict=False)}
        tokens = Tokens(fields, is_token, lengths, values, valid, pooled, counts)
        for block in self.blocks:
            found, new_states = block.step(tokens, [next(waiting) for _ in block.states()])
            columns += [column.flatten(1) for column in found]
            kept += new_states
        return torch.cat([column.float() for column in columns], dim=1), [state.float() for state in kept]

    def _totals(self) -> list[Total]:
        width = self.pool.width
        totals = [Total("above", (width, len(LEVELS)), 0.0, torch.add)] if len(self.levels) else []
        totals += [Total(f"counts{at}", (size,), 0.0, torch.add) for at, (_, size) in enumerate(self.counted)]
        totals += [
            Total(f"pairs{at}", (_count_pairs(size),), 0.0, torch.add) for at, (_, size) in enumerate(self.paired)
        ]
        for at, (_, size) in enumerate(self.joint):
            shape = (size, len(self.pool.measured))
            totals.append(Total(f"seen{at}", shape, 0.0, torch.add))
            totals.append(Total(f"sums{at}", shape, 0.0, torch.add))
            totals.append(Total(f"highest{at}", shape, LOWEST, torch.maximum))
            totals.append(Total(f"lowest{at}", shape, -LOWEST, torch.minimum))
        return totals

    def _read(
        self, fields: Mapping[str, Tensor], lengths: Tensor, is_token: Tensor, values: Tensor, valid: Tensor
    ) -> tuple[Pooled | Tensor, list[Tensor]]:
        """Return the statistics of tokens, which are the length (B, 1) without number fields, and the totals."""
        if not self.pool.width:
            return lengths[:, None].double(), self._counts(fields, is_token)
        above = []
        if len(self.levels):
            is_above = (values[..., None] > self.levels) & valid[..., None]
            above = [is_above.float().sum(dim=1)]
        measured = values[..., self.pool.measured], valid[..., self.pool.measured]
        joint = [total for name, size in self.joint for total in _statistics_by_value(fields[name], size, *measured)]
        return self.pool.pooled(values, valid, lengths), [*above, *self._counts(fields, is_token), *joint]

    def _columns(self, pooled: Pooled | Tensor, totals: Sequence[Tensor]) -> list[Tensor]:
        """Return the features (B, ...) that ignore the order. `pooled`, `totals`: results of `_read`."""
        columns = [pooled.columns() if isinstance(pooled, Pooled) else pooled.clamp(min=1).log()]
        waiting = iter(totals)
        if isinstance(pooled, Pooled) and len(self.levels):
            columns.append((next(waiting) / pooled.seen[:, :, None].clamp(min=1)).flatten(1))
        columns += [next(waiting) for _ in (*self.counted, *self.paired)]
        for _ in self.joint:
            seen, sums, highest, lowest = (next(waiting) for _ in range(4))
            columns += [part.flatten(1) for part in (sums / seen.clamp(min=1), highest, lowest)]
        return columns

    def _counts(self, fields: Mapping[str, Tensor], is_token: Tensor) -> list[Tensor]:
        """Return the number of tokens with each value, (B, size) float32 for each counted field, and with each pair."""
        counts = []
        for name, size in self.counted:
            counts += sums_by_value(fields[name], size, is_token, [is_token.float()])
        return [*counts, *(_pairs(fields[name], size, is_token) for name, size in self.paired)]


def _count_pairs(size: int) -> int:
    """Return the number of pairs of the values of a bag field, without its padding, the id 0."""
    return (size - 1) * (size - 2) // 2


def _pairs(ids: Tensor, size: int, is_token: Tensor) -> Tensor:
    """Return the number of tokens with both values of each pair of a bag field (B, T, K), (B, P) float32."""
    known = torch.where(is_token[:, :, None], ids.long(), 0)
    holds = torch.zeros(*ids.shape[:2], size, device=ids.device).scatter(2, known, 1.0)[:, :, 1:]
    first, second = torch.triu_indices(size - 1, size - 1, offset=1, device=ids.device)
    return torch.bmm(holds.transpose(1, 2), holds).flatten(1)[:, first * (size - 1) + second]


def _statistics_by_value(ids: Tensor, size: int, values: Tensor, valid: Tensor) -> list[Tensor]:
    """Return number, sum, highest and lowest of the valid values (B, T, D) with each id, (B, size, D) each.

    `ids`: (B, T).
    """
    index = torch.where(valid, ids.long()[:, :, None], 0)
    shape = (ids.shape[0], size, values.shape[2])
    exact = torch.where(valid, values, 0).double()
    zeros = torch.zeros(shape, dtype=torch.float64, device=values.device)
    lowest = torch.full(shape, -LOWEST, device=values.device)
    return [
        zeros.scatter_add(1, index, valid.double()),
        zeros.scatter_add(1, index, exact),
        (-lowest).scatter_reduce(1, index, torch.where(valid, values, LOWEST), "amax"),
        lowest.scatter_reduce(1, index, torch.where(valid, values, -LOWEST), "amin"),
    ]
