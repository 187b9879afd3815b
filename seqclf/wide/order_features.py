"""Features of the order of the tokens of a row, in blocks that are read chunk by chunk: places of values, and lags."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from seqclf.models.heads.pooled_numbers import NumberPool, Pooled
from seqclf.models.running_state import State

HALF_LIFE = 2.0  # tokens; the weight of a token halves with as many tokens after it
LAGS = 8  # largest distance of two tokens that are compared
CHANGE_LAGS = (1, 2, 4, 8)  # distances of two values whose difference is pooled
MAX_RISING = 200  # channels with a trend
MAX_CHANGING = 64  # channels with changes
MAX_REPEATS = 256  # features of the repeats of the values of one field; fields with more count repeats of all values
MIN_DEVIATION = 1e-6  # fraction of the largest value; the changes of a channel that deviates less are 0


class Tokens(NamedTuple):
    """The tokens of a chunk, with what is known of the row so far.

    `ids`: dict counted field → (B, T) or (B, T, K) ids. `is_token`: (B, T) bool. `lengths`: (B,) tokens of the chunk.
    `values`, `valid`: (B, T, D) channels and where they have a value; empty without number fields. `pooled`: statistics
    of the row up to the end of the chunk; without number fields, its number of tokens (B, 1). `counts`: dict counted
    field → number of these tokens with each value (B, size).
    """

    ids: Mapping[str, Tensor]
    is_token: Tensor
    lengths: Tensor
    values: Tensor
    valid: Tensor
    pooled: Pooled | Tensor
    counts: Mapping[str, Tensor]


class Block(Protocol):
    """Features of rows that are read from chunks of their tokens. `name`: name of the block in settings."""

    name: str

    def texts(self, channels: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the name of each feature. See `RowFeatures.texts`."""

    def states(self) -> list[State]:
        """Return what is known of a row before its first token."""

    def step(self, tokens: Tokens, states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the features (B, ...) of the row up to the end of the chunk, and the new states."""


class Places:
    """Place of values in their row: whether they come late rather than early, and how many are at its end.

    - Drift of a counted value: the sum over its tokens of their place, from -1 at the start of the row to 1 at its end.
    - Trend of a channel: slope of the line through its values, times the standard deviation of their positions.
    - Number of tokens with each counted value, and the sum of each channel that is not a mask in the tokens with one
      value of a category, where the weight of a token halves every `HALF_LIFE` tokens towards the start.

    Args:
        counted: Name and size of the fields whose values are counted.
        joint: Name and size of the category fields by whose values channels are summed.
        pool: Channels of the number fields, D in all.
    """

    name = "places"

    def __init__(self, counted: Iterable[tuple[str, int]], joint: Iterable[tuple[str, int]], pool: NumberPool):
        self.counted, self.joint = list(counted), list(joint)
        self.width, self.measured = pool.width, pool.measured
        self.rises = 0 < self.width <= MAX_RISING

    def texts(self, channels: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the name of each feature. See `RowFeatures.texts`."""
        texts = [
            text.format(f"{name} {value}")
            for name, _ in self.counted
            for text in ("drift of {} to the end", "recent count of {}")
            for value in values[name]
        ]
        texts += [f"trend of {channel}" for channel in channels if self.rises]
        measured = [channels[at] for at in self.measured]
        pairs = [(channel, name, value) for name, _ in self.joint for value in values[name] for channel in measured]
        return texts + [f"recent sum of {channel} of {name} {value}" for channel, name, value in pairs]

    def states(self) -> list[State]:
        """Return the states: see `step`."""
        kinds = ("moments", "at_end")
        states = [State(f"places_{kind}{at}", (size,)) for at, (_, size) in enumerate(self.counted) for kind in kinds]
        if self.rises:
            states += [State(f"trend_{name}", (self.width,)) for name in Line._fields]
        return states + [
            State(f"sums_at_end{at}", (size, len(self.measured))) for at, (_, size) in enumerate(self.joint)
        ]

    def step(self, tokens: Tokens, states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the features and the new states. See `Block.step`."""
        waiting, columns, kept = iter(states), list[Tensor](), list[Tensor]()
        all_tokens = (tokens.pooled.tokens if isinstance(tokens.pooled, Pooled) else tokens.pooled).float()
        new = tokens.lengths[:, None].float()
        time = torch.arange(tokens.is_token.shape[1], device=new.device)
        weight = torch.where(tokens.is_token, 2.0 ** (-(new - 1 - time).clamp(min=0) / HALF_LIFE), 0)
        faded = 2.0 ** (-new / HALF_LIFE)
        place = torch.where(tokens.is_token, time - (new - 1) / 2, 0)  # relative to the middle of the chunk
        for name, size in self.counted:
            moments, at_end = next(waiting), next(waiting)
            weights = [tokens.is_token.float(), place, weight]
            added, places, recent = sums_by_value(tokens.ids[name], size, tokens.is_token, weights)
            # The middle of the row moves on by half of the new tokens, and that of the chunk lies half of the old ones
            # behind it: added · (all - new) / 2 - (counts - added) · new / 2.
            moments = moments + places + (added * all_tokens - tokens.counts[name] * new) / 2
            at_end = at_end * faded + recent
            kept += [moments, at_end]
            columns += [2 * moments / all_tokens.clamp(min=1), at_end]
        if self.rises:
            line = Line(*(next(waiting).double() for _ in Line._fields)).joined(_line(tokens, all_tokens - new))
            kept += line
            columns.append(line.rise())
        for name, size in self.joint:
            weighted = (torch.where(tokens.valid, tokens.values, 0) * weight[:, :, None])[..., self.measured]
            index = torch.where(tokens.is_token, tokens.ids[name].long(), 0)[:, :, None].expand_as(weighted)
            zeros = torch.zeros(weighted.shape[0], size, len(self.measured), device=new.device)
            sums = next(waiting) * faded[:, :, None] + zeros.scatter_add(1, index, weighted)
            kept.append(sums)
            columns.append(sums)
        return columns, kept


class Line(NamedTuple):
    """Sums of a line through values (B, D), less the first one, by their time.

    They are the number of values, the means, and sums of products of the deviations.
    """

    seen: Tensor
    time: Tensor
    value: Tensor
    squares: Tensor
    products: Tensor

    def joined(self, later: Line) -> Line:
        """Return the sums of these values and of `later` ones. Either may have none."""
        seen = self.seen + later.seen
        part = later.seen / seen.clamp(min=1)
        apart = self.seen * part
        time, value = later.time - self.time, later.value - self.value
        return Line(
            seen,
            self.time + part * time,
            self.value + part * value,
            self.squares + later.squares + apart * time**2,
            self.products + later.products + apart * time * value,
        )

    def rise(self) -> Tensor:
        """Return the slope times the standard deviation of the times, 0 of fewer than two values."""
        return self.products / (self.squares * self.seen).clamp(min=0.25).sqrt()


def _line(tokens: Tokens, before: Tensor) -> Line:
    """Return the sums of the line of each channel of a chunk. `before`: (B, 1) number of earlier tokens of the row."""
    valid = tokens.valid.double()
    seen = valid.sum(dim=1)
    time = (before + torch.arange(valid.shape[1], device=valid.device)).double()[:, :, None]
    assert isinstance(tokens.pooled, Pooled)
    # Relative to the first value of the row, the mean is kept in float32 without loss.
    exact = torch.where(tokens.valid, tokens.values.double() - tokens.pooled.first[:, None], 0)
    middle = (time * valid).sum(dim=1) / seen.clamp(min=1)
    mean = exact.sum(dim=1) / seen.clamp(min=1)
    of_time = (time - middle[:, None]) * valid
    squares, products = of_time.square().sum(dim=1), (of_time * (exact - mean[:, None])).sum(dim=1)
    return Line(seen, middle, mean, squares, products)


class Lags:
    """Pairs of tokens at a distance: repeats of the same value, and changes of a channel.

    - Number of tokens whose value of a category field is that of 1, 2, … `LAGS` tokens before, of each value, and of
      all values in one where these would be more than `MAX_REPEATS` features.
    - Root mean square difference of two values of a channel at each distance of `CHANGE_LAGS`, divided by the standard
      deviation of the channel in the row. Both values must be present.

    Args:
        categories: Name and size of the category fields that are compared.
        width: Number of channels D.
    """

    name = "lags"

    def __init__(self, categories: Iterable[tuple[str, int]], width: int):
        self.categories = [(name, size if size * LAGS <= MAX_REPEATS else 1) for name, size in categories]
        self.width = width
        self.changes = 0 < width <= MAX_CHANGING

    def texts(self, channels: Sequence[str], values: Mapping[str, Sequence[str]]) -> list[str]:
        """Return the name of each feature. See `RowFeatures.texts`."""
        texts = []
        for name, size in self.categories:
            of_values = [f"{name} {value}" for value in values[name]] if size > 1 else [name]
            texts += [f"repeats of {text} after {_tokens(lag + 1)}" for text in of_values for lag in range(LAGS)]
        changing = channels if self.changes else []
        return texts + [
            f"relative change of {channel} over {_tokens(lag)}" for lag in CHANGE_LAGS for channel in changing
        ]

    def states(self) -> list[State]:
        """Return the last tokens so far, and the sums over pairs of tokens so far."""
        states = []
        for at, (_, size) in enumerate(self.categories):
            states += [State(f"last_ids{at}", (LAGS,), -1.0), State(f"repeats{at}", (size, LAGS))]
        if self.changes:
            sums = (len(CHANGE_LAGS), self.width)
            states += [State("last_values", (LAGS, self.width)), State("last_present", (LAGS, self.width))]
            states += [State("pairs_of_values", sums), State("squared_changes", sums)]
        return states

    def step(self, tokens: Tokens, states: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the features and the new states. See `Block.step`."""
        waiting, columns, kept = iter(states), list[Tensor](), list[Tensor]()
        for name, size in self.categories:
            ids = tokens.ids[name].long()
            longer = torch.cat([next(waiting).long(), ids], dim=1)
            earlier = torch.stack([longer[:, LAGS - lag : -lag] for lag in range(1, LAGS + 1)], dim=2)
            same = ((ids[:, :, None] == earlier) & tokens.is_token[:, :, None]).float()
            index = torch.where(tokens.is_token, ids, 0) if size > 1 else torch.zeros_like(ids)
            zeros = torch.zeros(ids.shape[0], size, LAGS, device=ids.device)
            repeats = next(waiting) + zeros.scatter_add(1, index[:, :, None].expand_as(same), same)
            kept += [_last(longer, tokens.lengths), repeats]
            columns.append(repeats)
        if self.changes:
            assert isinstance(tokens.pooled, Pooled)
            old_values, old_present, old_pairs, old_squares = (next(waiting) for _ in range(4))
            known = torch.where(tokens.valid, tokens.values, 0)
            longer = torch.cat([old_values.to(known), known], dim=1)
            present = torch.cat([old_present > 0, tokens.valid], dim=1)
            pairs, squares = [], []
            for lag in CHANGE_LAGS:
                both = tokens.valid & present[:, LAGS - lag : -lag]
                change = torch.where(both, known.double() - longer[:, LAGS - lag : -lag], 0)
                pairs.append(both.sum(dim=1))
                squares.append(change.square().sum(dim=1))
            seen, total = old_pairs + torch.stack(pairs, dim=1), old_squares + torch.stack(squares, dim=1)
            kept += [_last(longer, tokens.lengths), _last(present.float(), tokens.lengths), seen, total]
            columns.append(_relative(tokens.pooled, (total / seen.clamp(min=1)).sqrt()))
        return columns, kept


def _relative(pooled: Pooled, changes: Tensor) -> Tensor:
    """Return changes (B, L, D) divided by the standard deviations, 0 where these are rounding noise."""
    largest = torch.maximum(pooled.lowest.abs(), pooled.highest.abs())
    varies = (pooled.seen > 1) & (pooled.deviation > MIN_DEVIATION * largest)
    return torch.where(varies[:, None], changes / torch.where(varies, pooled.deviation, 1)[:, None], 0)


def _last(longer: Tensor, lengths: Tensor) -> Tensor:
    """Return the last tokens (B, LAGS, ...) before padding. `longer`: (B, LAGS + T, ...), the last ones and a chunk."""
    index = lengths[:, None] + torch.arange(LAGS, device=lengths.device)
    return longer.gather(1, index if longer.dim() == 2 else index[:, :, None].expand(-1, -1, longer.shape[2]))


def _tokens(lag: int) -> str:
    return f"{lag} token{'s' if lag > 1 else ''}"


def sums_by_value(ids: Tensor, size: int, is_token: Tensor, weights: Sequence[Tensor]) -> list[Tensor]:
    """Return the sums (B, size) of each of the weights (B, T) over the tokens with each id.

    `ids`: (B, T), or (B, T, K) of bags, which are padded with 0. `is_token`: (B, T).
    """
    if ids.dim() == 3:
        is_value = (is_token[:, :, None] & (ids > 0)).flatten(1)
        weights = [weight[:, :, None].expand(ids.shape).flatten(1) for weight in weights]
        ids = ids.flatten(1)
    else:
        is_value = is_token
    index = torch.where(is_value, ids.long(), 0)
    zeros = torch.zeros(ids.shape[0], size, device=ids.device)
    return [zeros.scatter_add(1, index, torch.where(is_value, weight, 0)) for weight in weights]
