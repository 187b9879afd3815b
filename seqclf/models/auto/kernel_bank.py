"""Frozen bank of random convolution kernels over the views of number channels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.models.auto.features import VIEWS

TAPS = 9
KERNELS = np.array(  # (84, 9): three taps of 2 and six of -1, so that a constant gives 0
    [[2.0 if tap in chosen else -1.0 for tap in range(TAPS)] for chosen in itertools.combinations(range(TAPS), 3)],
    dtype=np.float32,
)
OUTPUTS = VIEWS * len(KERNELS)  # outputs of the kernels of one dilation
MAX_CHANNELS = 9  # channels that one kernel reads at most
MAX_GROUP_CHANNELS = 32  # channels that the kernels of one dilation read at most; bounds the work for many channels
SOFTNESS = 0.1  # width of the ramp at a bias, in standard deviations of the outputs
MIN_DEVIATION = 0.01  # smallest standard deviation of a kernel's outputs; smaller ones are rounding noise
NEVER = 1e9  # subtracted from outputs at padding
SAMPLED_POSITIONS = 2048  # positions whose outputs choose the biases
PART_TOKENS = 2048  # tokens that are convolved at a time, so that the outputs stay in the cache of a CPU


def choose_dilations(length: int, count: int) -> list[int]:
    """Return up to `count` dilations, exponentially spaced from 1 to kernels that span `length` tokens.

    >>> choose_dilations(100, 4), choose_dilations(5, 4)
    ([1, 2, 5, 12], [1])
    """
    largest = max(1.0, (length - 1) / (TAPS - 1))
    return sorted({int(2**exponent + 1e-9) for exponent in np.linspace(0, np.log2(largest), count)})


class KernelBank(nn.Module):
    """The 84 kernels of MiniRocket (Dempster et al. 2021), dilated, over random subsets of the `channels`.

    A feature is the mean of `clip(10 (output - bias) / deviation + 1/2, 0, 1)` over some tokens, a soft form of the
    proportion of outputs above a bias. A hard comparison would jump with the rounding of sums, and logits would depend
    on the other rows of the batch. The constructor draws the taps; `fit` sets biases and deviations by training rows.
    `dilations`: distance between the taps of each group of kernels, in tokens. `biases`: number of biases of each
    kernel. `seed`: for the channels of each kernel and the quantiles that become biases. `causal`: True for kernels
    that end at a token, False for kernels that are centred on it.

    >>> bank = KernelBank(channels=2, dilations=[1, 4], biases=2, seed=0)
    >>> bank.size, bank.window_size
    (1008, 504)
    """

    taps: Tensor
    shifts: Tensor
    channels: Tensor

    def __init__(self, channels: int, dilations: Sequence[int], biases: int, seed: int, causal: bool = False):
        super().__init__()
        self.causal = causal
        self.dilations = list(dilations)
        self.biases = biases
        random = np.random.default_rng(seed)
        read = min(channels, MAX_GROUP_CHANNELS)
        self.selects = read < channels
        # Groups take the channels in turn, so that each channel is read if the groups have places for all.
        order = np.concatenate([random.permutation(channels) for _ in range(len(dilations))])
        chosen = np.stack([np.sort(order[group * read : (group + 1) * read]) for group in range(len(dilations))])
        self.register_buffer("channels", torch.from_numpy(chosen))
        shape = (len(dilations), VIEWS, len(KERNELS))
        # Kernels of few channels are as likely as kernels of many.
        sizes = (2 ** random.uniform(0, np.log2(min(read, MAX_CHANNELS) + 1), shape)).astype(int)
        reads = random.random((*shape, read)).argsort(-1) < sizes[..., None]
        taps = (KERNELS[:, :, None] * reads[..., None, :]).reshape(*shape, TAPS * read)
        self.register_buffer("taps", torch.from_numpy(taps))  # (G, 3, 84, 9 D')
        self.register_buffer("shifts", torch.zeros(*shape, biases))
        # Quantiles of the outputs that become biases: a sequence of low discrepancy, as in MiniRocket.
        golden = (5**0.5 - 1) / 2
        self.quantiles = (random.random() + np.arange(math.prod(shape) * biases) * golden) % 1

    @property
    def size(self) -> int:
        """Number of features: one for each bias of each kernel."""
        return self.shifts.numel()

    @property
    def window_size(self) -> int:
        """Number of features of a window: those of the first bias of each kernel."""
        return self.shifts[..., 0].numel()

    @property
    def reach(self) -> int:
        """Number of tokens before a token that causal kernels read."""
        return (TAPS - 1) * max(self.dilations)

    @torch.no_grad()
    def fit(self, views: Tensor, mask: Tensor) -> None:
        """Set the biases to quantiles of the outputs for training rows, and the slopes by their deviation.

        `views`: (B, 3, D, T), 0 at padding (see `make_views`). `mask`: (B, T) True for tokens.
        """
        inside = torch.nonzero(mask.flatten())[:, 0]
        generator = torch.Generator().manual_seed(0)
        inside = inside[torch.randperm(len(inside), generator=generator)[:SAMPLED_POSITIONS].to(inside.device)]
        picks = torch.from_numpy((self.quantiles * len(inside)).astype(np.int64)).reshape(self.shifts.shape)
        for group, dilation in enumerate(self.dilations):
            outputs = torch.bmm(self.taps[group], self._unfold(views, group, dilation)[:, :, inside])
            slopes = 1 / (SOFTNESS * outputs.std(2, keepdim=True, unbiased=False).clamp(min=MIN_DEVIATION))
            at = outputs.sort(2).values.gather(2, picks[group].to(outputs.device))
            self.taps[group] *= slopes
            self.shifts[group] = 0.5 - slopes * at

    def _padded(self, views: Tensor, group: int, dilation: int, history: Tensor | None = None) -> Tensor:
        """Return the channels of a group (B, 3, D', T + reach), with zeros beyond the ends. `history`: see `hits`."""
        if self.selects:
            views = views.index_select(2, self.channels[group])
            history = None if history is None else history.index_select(2, self.channels[group])
        reach = dilation * (TAPS - 1)
        before, after = (reach, 0) if self.causal else (reach // 2, reach // 2)
        if history is None:
            return functional.pad(views, (before, after))
        return torch.cat([history[..., history.shape[3] - before :], views], dim=3)

    def _unfold(self, views: Tensor, group: int, dilation: int, *more: Tensor, history: Tensor | None = None) -> Tensor:
        """Return the inputs (3, 9 D' + R, B T) of a group's kernels. `more`: R inputs (B, T), the same in all views."""
        batch, _, _, time = views.shape
        padded = self._padded(views, group, dilation, history).permute(1, 2, 0, 3)  # (3, D', B, T + reach)
        width = padded.shape[1]
        inputs = views.new_empty(VIEWS, TAPS * width + len(more), batch, time)
        for tap in range(TAPS):
            inputs[:, tap * width : (tap + 1) * width] = padded[..., tap * dilation : tap * dilation + time]
        for index, row in enumerate(more):
            inputs[:, TAPS * width + index] = row
        return inputs.flatten(2)

    def hits(self, views: Tensor, mask: Tensor, history: Tensor | None = None) -> Iterator[list[Tensor]]:
        """Yield for each group the soft hits (252, B, T) of each bias, 0 at padding; (B, 252, T) in an export.

        `history`: for causal kernels, the views (B, 3, D, `reach`) of the tokens before; None for the first tokens.
        """
        exports = torch.onnx.is_in_onnx_export()
        batch, time = views.shape[0], views.shape[3]
        ones, padding = torch.ones_like(views[:, 0, 0]), torch.where(mask, 0.0, 1.0)
        for group, dilation in enumerate(self.dilations):
            shifts = self.shifts[group]
            first = shifts[..., :1]
            away = (shifts - first).view(OUTPUTS, self.biases, 1)
            if exports:
                # A few operators, as the time of an export grows with their number.
                inputs = self._padded(views, group, dilation, history)
                weights = self.taps[group].view(OUTPUTS, TAPS, inputs.shape[2]).transpose(1, 2)
                inputs, bias = inputs.flatten(1, 2), first.flatten()
                outputs = functional.conv1d(inputs, weights, bias, dilation=dilation, groups=VIEWS)
                outputs = outputs - NEVER * padding[:, None]
            else:
                # The products add the first bias, and what is far below it at padding.
                weights = torch.cat([self.taps[group], first, torch.full_like(first, -NEVER)], dim=-1)
                inputs = self._unfold(views, group, dilation, ones, padding, history=history)
                outputs = torch.bmm(weights, inputs).view(OUTPUTS, batch, time)
                away = away[..., None]
            others = ((outputs + away[:, bias]).clamp(0, 1) for bias in range(1, self.biases))
            yield [outputs.clamp(0, 1), *others]
