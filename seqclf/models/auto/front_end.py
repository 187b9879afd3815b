"""Frozen front end: the fields of a batch → windows of tokens, means of kernels and statistics of sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.batching.batches import RowBatch, SplitRows
from seqclf.data.field_spec import FieldSpec, TokenSpec, id_specs, kind_of, size_of, static_specs, token_specs
from seqclf.models.auto.features import VIEWS, NumberPool, Pooled, make_views, running_states, running_views
from seqclf.models.auto.kernel_bank import PART_TOKENS, KernelBank
from seqclf.models.pooling import token_mask
from seqclf.models.streaming import LOWEST, State

MAX_VALUE = 20.0  # values and statistics are clipped to this
MAX_SCALED_WINDOW, MAX_SCALED_STATISTIC = 8.0, 5.0  # deviations at which scaled outputs are clipped
MIN_WINDOW_DEVIATION, MIN_STATISTIC_DEVIATION = 0.02, 0.01
MIN_BLOCK = 16  # tokens that are summed in single precision
MAX_COUNTED = 64  # largest vocabulary whose ids are counted, with the unknown id
MAX_CROSSED_CHANNELS, MAX_CROSSED = 8, 256  # channels, and pairs of a channel and an id, that are told by category
BANK_ROWS, BANK_TOKENS = 64, 20_000  # sample of training rows that sets the biases of the kernels
SCALE_ROWS, SCALE_TOKENS = 256, 100_000  # sample of training rows that sets the scales of windows
Linear = Callable[[Tensor, int], Tensor]  # scaled windows (B, N, K') and their first channel → (B, N, P)


class Counted(NamedTuple):
    """Tokens (B, K) of each id, and of the first K' ids sum and highest (B, D' K') of each of D' numbers.

    Where no token has an id, the highest is `LOWEST`.
    """

    tokens: Tensor
    sums: Tensor
    highest: Tensor


class FrontOutputs(NamedTuple):
    """Outputs of the front end for a batch of B sequences, scaled by the training rows.

    `lengths`: (B,) number of windows. `windows`: (B, N, K), or (B, N, P) values of a linear function (`is_projected`).
    `means`: (B, M) means of the kernels over all tokens. `statistics`: (B, S) statistics and counts, and from column
    `FrontEnd.plain_size` on the numbers by category.
    """

    lengths: Tensor
    windows: Tensor
    means: Tensor
    statistics: Tensor
    is_projected: bool = False


def counted_fields(fields: Sequence[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the fields whose vocabularies are small, so that their ids are counted."""
    return [spec for spec in id_specs(token_specs(fields)) if spec["size"] <= MAX_COUNTED]


def static_statistics(fields: Sequence[FieldSpec]) -> list[TokenSpec]:
    """Return the specs of the static fields of numbers or of a small vocabulary."""
    return [spec for spec in static_specs(fields) if kind_of(spec).has_numbers or size_of(spec) <= MAX_COUNTED]


def plain_size(fields: Sequence[FieldSpec]) -> int:
    """Return the number of statistics of a sequence, without the numbers by category."""
    counted, of_static = (sum(map(size_of, chosen(fields))) for chosen in (counted_fields, static_statistics))
    return NumberPool(token_specs(fields)).size + 3 * counted + of_static


def crossed_sizes(fields: Sequence[FieldSpec]) -> tuple[int, list[int]]:
    """Return the number of channels that are told by category, and the number of ids of each counted field.

    A vocabulary numbers its ids by frequency, so that these are the most frequent ones.

    >>> crossed_sizes([{"name": "a", "kind": "number", "width": 2}, {"name": "b", "kind": "category", "size": 5}])
    (2, [5])
    """
    counted, channels = counted_fields(fields), NumberPool(token_specs(fields)).channels[:MAX_CROSSED_CHANNELS]
    most = MAX_CROSSED // max(1, len(channels) * len(counted)) if channels else 0
    return len(channels), [min(size_of(spec), most) for spec in counted]


def _sums(values: Tensor, size: int) -> Tensor:
    return values if size == 1 else functional.avg_pool1d(values, size) * size


class FrontEnd(nn.Module):
    """Reads sequences by random kernels and statistics, which training does not change.

    `window`: number of tokens over which kernels and numbers are averaged. `dilations`: of the kernels over all number
    fields; an empty list for no kernels. `biases`: number of biases of each kernel. `seed`: seed of the kernels.
    `causal`: True for kernels and views that depend on no later token, so that `step` can read chunks. `cache`:
    False to keep no outputs (see `feature_cache`).

    >>> fields = [{"name": "speed", "kind": "number", "width": 2}]
    >>> front = FrontEnd(fields, window=4, dilations=[1, 2], biases=2, seed=0)
    >>> reading = front({"speed": torch.randn(3, 10, 2)}, torch.tensor([10, 7, 1]))
    >>> reading.windows.shape, reading.means.shape, reading.lengths.tolist()
    (torch.Size([3, 3, 506]), torch.Size([3, 1008]), [3, 2, 1])
    """

    window_mean: Tensor
    window_scale: Tensor
    statistic_mean: Tensor
    statistic_scale: Tensor

    def __init__(
        self,
        fields: Sequence[FieldSpec],
        window: int,
        dilations: Sequence[int],
        biases: int,
        seed: int,
        causal: bool = False,
        cache: bool = True,
    ):
        super().__init__()
        self.window, self.causal, self.cache = window, causal, cache
        self.pool = NumberPool(token_specs(fields))
        self.names = self.pool.names
        self.static = static_statistics(fields)
        self.counted = counted_fields(fields)
        width = self.pool.width
        self.bank = KernelBank(width, dilations, biases, seed, causal) if dilations and width else None
        self.window_size = (self.bank.window_size if self.bank else 0) + width  # K, channels of a window
        self.mean_size = self.bank.size if self.bank else 0  # M
        self.crossed_channels, self.crossed_ids = crossed_sizes(fields)
        self.plain_size = plain_size(fields)
        self.scaled = nn.Identity()  # gets the scaled statistics (see `embedding_layers`)
        self.statistic_size = self.plain_size + 2 * self.crossed_channels * sum(self.crossed_ids)  # S
        for name, size in (("window", self.window_size), ("statistic", self.statistic_size)):
            self.register_buffer(f"{name}_mean", torch.zeros(size))
            self.register_buffer(f"{name}_scale", torch.ones(size))

    @torch.no_grad()
    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, linear: Linear | None = None) -> FrontOutputs:
        """Return the reading of a batch: fields (B, T, …), whose padding may have any value, and lengths (B,) int64.

        With `linear`, a linear function of the windows, the windows of one group of kernels exist at a time, so that a
        long sequence takes little memory.
        """
        tokens = next(iter(fields.values()))
        with torch.autocast(tokens.device.type, enabled=False):
            statistics = self.scaled_statistics(self.statistics(fields, lengths))
            counts = (lengths + (self.window - 1)) // self.window
            windows, means = self._windows(fields, lengths, linear)
        return FrontOutputs(counts, windows, means, statistics, is_projected=linear is not None)

    def _windows(self, fields: Mapping[str, Tensor], lengths: Tensor, linear: Linear | None) -> tuple[Tensor, Tensor]:
        time = next(iter(fields.values())).shape[1]
        if not self.names:
            none = lengths[:, None].float()[:, :0]
            return none[:, None].expand(-1, (time + self.window - 1) // self.window, -1), none
        values = torch.cat([fields[name] for name in self.names], dim=-1).transpose(1, 2)  # (B, D, T)
        if torch.onnx.is_in_onnx_export():
            return self._part(values, lengths, linear)
        # Parts of a batch stay in the cache of a CPU.
        rows = max(1, PART_TOKENS // time) if values.device.type == "cpu" else len(values)
        parts = [self._part(*part, linear) for part in zip(values.split(rows), lengths.split(rows), strict=True)]
        windows, means = zip(*parts, strict=True)
        return torch.cat(windows), torch.cat(means)

    def _part(self, values: Tensor, lengths: Tensor, linear: Linear | None) -> tuple[Tensor, Tensor]:
        """Return the windows (B, N, K), or the values of `linear`, and the means (B, M) of `values` (B, D, T)."""
        exports = torch.onnx.is_in_onnx_export()
        count = None if exports else (values.shape[2] + self.window - 1) // self.window  # N, which a graph has anyway
        # Tokens are summed in blocks from the first token on, so that padding does not change the last bit of a sum.
        block = self.window if exports else self.window * max(1, MIN_BLOCK // self.window)
        values = functional.pad(values, (0, block - 1 if exports else -values.shape[2] % block))
        mask = token_mask(lengths, values.shape[2])
        tokens = _sums(mask[:, None].float(), self.window)[:, 0, :count, None].clamp(min=1)  # (B, N, 1)
        raw = torch.where(mask[:, None], values, 0.0).clamp(-MAX_VALUE, MAX_VALUE)
        views = self._make_views(values, lengths) if self.bank is not None else None
        windows, sums = self._read(views, raw, mask, tokens, linear, count=count, block=block)
        return windows, (sums / lengths[:, None]).float()

    def _make_views(self, values: Tensor, lengths: Tensor) -> Tensor:
        return running_views(values, lengths)[0] if self.causal else make_views(values, lengths)

    def _read(
        self,
        views: Tensor | None,
        raw: Tensor,
        mask: Tensor,
        tokens: Tensor,
        linear: Linear | None,
        *,
        count: int | None,
        block: int,
        history: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the windows (B, N, K), or the values of `linear`, and the sums (B, M) of the hits of the kernels."""
        exports = torch.onnx.is_in_onnx_export()
        blocks, means, first = [], [], 0
        total: Tensor | None = None

        def add(sums: Tensor) -> None:
            nonlocal first, total
            windows = self.scaled_windows(sums[:, :count] / tokens, first)
            if linear is None:
                blocks.append(windows)
            else:
                part = linear(windows, first)
                total = part if total is None else total + part
            first += windows.shape[2]

        if self.bank is not None and views is not None:
            for hits in self.bank.hits(views, mask, history):
                sums = [part.sum(-1) if exports else _sums(part, block).sum(-1, dtype=torch.float64).T for part in hits]
                means.append(torch.stack(sums, dim=2).flatten(1))  # (B, 252 times biases)
                windows = _sums(hits[0], self.window)
                add(windows.transpose(1, 2) if exports else windows.permute(1, 2, 0))
        add(_sums(raw, self.window).transpose(1, 2))
        of_kernels = torch.cat(means, dim=1) if means else raw[:, 0, :0]
        return torch.cat(blocks, dim=2) if total is None else total, of_kernels

    def step_states(self) -> list[State]:
        """Return the states that `step` carries from chunk to chunk."""
        states = [State("tokens", (1,))]
        if self.names:
            states += self.pool.states()
        if self.bank is not None:
            states += running_states(self.pool.width)
            states += [State("history", (VIEWS, self.pool.width, self.bank.reach)), State("hits", (self.bank.size,))]
        for index, (spec, ids) in enumerate(zip(self.counted, self.crossed_ids, strict=True)):
            pairs = (self.crossed_channels * ids,)
            states += [State(f"counts_{index}", (size_of(spec),))]
            states += [State(f"sums_{index}", pairs), State(f"highest_{index}", pairs, LOWEST)] if ids else []
        return states

    def step(
        self, fields: Mapping[str, Tensor], lengths: Tensor, states: Sequence[Tensor], linear: Linear | None
    ) -> tuple[FrontOutputs, list[Tensor]]:
        """Read the next chunk of each sequence with a causal front end. `lengths`: (B,) from 1, tokens in the chunk.

        Returns a reading whose windows are the tokens of the chunk, and whose means and statistics are those of all
        tokens so far, and the states after the chunk.
        """
        tokens = states[0] + lengths[:, None]
        remaining, after = list(states[1:]), [tokens]
        pooled, means = None, tokens[:, :0]
        time = next(iter(fields.values())).shape[1]
        windows = tokens[:, None, :0].expand(-1, time, -1)
        if self.names:
            count = len(self.pool.states())
            pooled = self.pool(fields, lengths).after(remaining[:count])
            after, remaining = [*after, *pooled.kept()], remaining[count:]
            values = torch.cat([fields[name] for name in self.names], dim=-1).transpose(1, 2)
            mask = token_mask(lengths, time)
            raw = torch.where(mask[:, None], values, 0.0).clamp(-MAX_VALUE, MAX_VALUE)
            views = history = None
            if self.bank is not None:
                count = len(running_states(1))
                views, of_views = running_views(values, lengths, remaining[:count])
                history, hits = remaining[count : count + 2]
                remaining = remaining[count + 2 :]
            ones = torch.ones_like(raw[:, 0, :, None])
            windows, sums = self._read(views, raw, mask, ones, linear, count=None, block=1, history=history)
            if self.bank is not None and views is not None and history is not None:
                # The last tokens of each row, whose chunks may have different lengths.
                joined = torch.cat([history, views], dim=3)
                at = lengths[:, None] + torch.arange(self.bank.reach, device=lengths.device)
                kept = joined.gather(3, at[:, None, None].expand(-1, *joined.shape[1:3], -1))
                after += [*of_views, kept, hits + sums]
                means = (hits + sums) / tokens
        counts = []
        for new, ids in zip(self._counts(fields, lengths), self.crossed_ids, strict=True):
            width = 3 if ids else 1  # states of the field
            total, sums, highest = *remaining[:width], *new[width:]
            counts.append(Counted(new.tokens + total, new.sums + sums, torch.maximum(new.highest, highest)))
            remaining, after = remaining[width:], [*after, *counts[-1][:width]]
        statistics = self.scaled_statistics(self._columns(pooled, counts, tokens, fields))
        return FrontOutputs(lengths, windows, means, statistics, is_projected=linear is not None), after

    def scaled_windows(self, windows: Tensor, first: int) -> Tensor:
        """Return scaled windows (B, N, K') of the channels from `first` on."""
        part = slice(first, first + windows.shape[2])
        scaled = (windows - self.window_mean[part]).mul_(self.window_scale[part])
        return scaled.clamp_(-MAX_SCALED_WINDOW, MAX_SCALED_WINDOW)

    def statistics(self, fields: Mapping[str, Tensor], lengths: Tensor) -> Tensor:
        """Return the statistics (B, S), not scaled.

        They are mean, log deviation, lowest, highest, first and last present value of each number channel, the log
        number of tokens, for each id of a small vocabulary its proportion, log count and presence, the static numbers
        and ids, and by category, for each id and number channel, sum (its signed logarithm) and highest of the values.
        """
        pooled = self.pool(fields, lengths) if self.names else None
        return self._columns(pooled, self._counts(fields, lengths), lengths[:, None].float(), fields)

    def _counts(self, fields: Mapping[str, Tensor], lengths: Tensor) -> list[Counted]:
        counts = []
        channels: list[tuple[Tensor, Tensor]] = []
        if self.crossed_channels:
            values, present = self.pool.values(fields, lengths)
            read = self.pool.channels[: self.crossed_channels]
            channels = [(values[..., channel, None], present[..., channel, None]) for channel in read]
        for spec, crossed in zip(self.counted, self.crossed_ids, strict=True):
            ids = fields[spec["name"]]
            numbers = torch.arange(size_of(spec), device=ids.device)
            hot = ids[..., None] == numbers
            # (B, T, K, size); the id 0 stands for no value, and is as often as a batch has padding.
            if kind_of(spec).has_several:
                hot = (hot & (numbers > 0)).any(dim=2)
            hot = hot & token_mask(lengths, ids.shape[1])[..., None]
            tokens = hot.sum(dim=1).float()
            sums, highest = [tokens[:, :0]], [tokens[:, :0]]
            # One channel at a time, as those of all ids take much memory.
            for value, is_present in channels:
                inside = hot[..., :crossed] & is_present
                sums.append(torch.where(inside, value, 0).sum(dim=1, dtype=torch.float64).float())
                highest.append(torch.where(inside, value, LOWEST).amax(dim=1))
            counts.append(Counted(tokens, torch.cat(sums, dim=1), torch.cat(highest, dim=1)))
        return counts

    def _columns(
        self, pooled: Pooled | None, counts: Sequence[Counted], tokens: Tensor, fields: Mapping[str, Tensor]
    ) -> Tensor:
        parts = []
        if pooled is not None:
            columns, width = pooled.columns(), self.pool.width
            deviation = (columns[:, width : 2 * width] + 1e-2).log()
            columns = torch.cat([columns[:, :width], deviation, columns[:, 2 * width :]], dim=1)
            parts.append(columns.clamp(-MAX_VALUE, MAX_VALUE).float())
        for total, _, _ in counts:
            parts += [total / tokens, total.log1p(), total.clamp(max=1)]
        for spec in self.static:
            values = fields[spec["name"]]
            if not kind_of(spec).has_numbers:
                values = values[:, None] == torch.arange(size_of(spec), device=values.device)
            parts.append(values.float().clamp(-MAX_VALUE, MAX_VALUE))
        if pooled is not None and self.crossed_channels:
            channels = self.pool.channels[: self.crossed_channels]
            lowest = torch.where(pooled.seen > 0, pooled.lowest, 0).float()[:, channels]
            for ids, (_, sums, highest) in zip(self.crossed_ids, counts, strict=True):
                # Without a token of the category, the highest is the lowest of all tokens.
                known = torch.where(highest > LOWEST, highest, lowest.repeat_interleave(ids, dim=1))
                parts += [sums.sign() * sums.abs().log1p(), known.clamp(-MAX_VALUE, MAX_VALUE)]
        return torch.cat(parts, dim=1) if parts else tokens[:, :0]

    def scaled_statistics(self, statistics: Tensor) -> Tensor:
        scaled = (statistics - self.statistic_mean) * self.statistic_scale
        return self.scaled(scaled.clamp(-MAX_SCALED_STATISTIC, MAX_SCALED_STATISTIC))

    def fit(self, rows: SplitRows, seed: int) -> None:
        """Set the biases of the kernels and the scales of all outputs by training rows."""
        if self.bank is not None:
            sampled = [self._views(batch) for batch in rows.batches(rows.sample(BANK_ROWS, BANK_TOKENS, seed))]
            time = max(views.shape[3] for views, _ in sampled)
            views = torch.cat([functional.pad(views, (0, time - views.shape[3])) for views, _ in sampled])
            mask = torch.cat([functional.pad(mask, (0, time - mask.shape[1])) for _, mask in sampled])
            self.bank.fit(views, mask)
        if self.window_size:
            self._fit_windows(rows, seed)
        if self.statistic_size:
            statistics = torch.cat([self.statistics(batch.fields, batch.lengths) for batch in rows.batches()])
            self.statistic_mean.copy_(statistics.mean(0))
            deviation = statistics.std(0, unbiased=False)
            self.statistic_scale.copy_(1 / (deviation + MIN_STATISTIC_DEVIATION))

    def _fit_windows(self, rows: SplitRows, seed: int) -> None:
        # With a scale of 0.1, no window is clipped while the scales are not known.
        self.window_mean.zero_()
        self.window_scale.fill_(0.1)
        total = squares = torch.zeros((), dtype=torch.float64)
        count = 0
        for batch in rows.batches(rows.sample(SCALE_ROWS, SCALE_TOKENS, seed + 1)):
            reading = self(batch.fields, batch.lengths)
            windows = reading.windows[token_mask(reading.lengths, reading.windows.shape[1])].double() * 10
            total, squares = total + windows.sum(0), squares + windows.square().sum(0)
            count += len(windows)
        mean = total / count
        deviation = (squares / count - mean.square()).clamp(min=0).sqrt()
        self.window_mean.copy_(mean)
        self.window_scale.copy_(1 / (deviation + MIN_WINDOW_DEVIATION))

    def _views(self, batch: RowBatch) -> tuple[Tensor, Tensor]:
        values = torch.cat([batch.fields[name] for name in self.names], dim=-1).transpose(1, 2)
        return self._make_views(values, batch.lengths), token_mask(batch.lengths, values.shape[2])
