"""Features of the random kernels, with few nodes in an exported graph: the time of an export grows with them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.wide.convolution import KERNELS, NEVER, TAPS, deviation, inner_edges, reach, signs, skips_edges
from seqclf.wide.views import VIEWS, Views


class KernelOutputs(nn.Module):
    """Features of the kernels: views → (B, F) float64, as `Kernels` computes them in parts.

    Each group of kernels is a convolution, a clip, and a product with a mask, which sums the positions that a kernel
    counts. Beside it the extreme output of each kernel with its first bias, before the clip.

    Args:
        groups: Dilation, channels (None for all) and taps of each group of kernels.
        width: Number of channels.
    """

    def __init__(self, groups: Iterable[tuple[int, Tensor | None, Tensor]], width: int):
        super().__init__()
        groups = list(groups)
        reaches = sorted({reach(dilation) for dilation, _, _ in groups})
        self.register_buffer("reaches", torch.tensor(reaches))
        self.places = [reaches.index(reach(dilation)) for dilation, _, _ in groups]
        convolutions, counted = [], []
        for place, (dilation, channels, taps) in zip(self.places, groups, strict=True):
            convolutions.append(Convolution(taps, dilation, channels, width))
            counted.append(2 * place + skips_edges(taps).flatten().long())
        self.convolutions = nn.ModuleList(convolutions)
        sizes = [len(columns) // VIEWS for columns in counted]
        # The features are sorted by view, then by dilation. The results of the convolutions are sorted by dilation.
        numbers = torch.arange(sum(map(len, counted))).split([len(columns) for columns in counted])
        order = torch.cat([part.view(VIEWS, size) for part, size in zip(numbers, sizes, strict=True)], 1).flatten()
        columns = torch.cat(counted)[order]
        self.register_buffer("columns", columns)
        self.register_buffer("order", 2 * order + columns % 2)
        # The extreme outputs are sorted alike: by view, then by dilation.
        kernels = torch.arange(VIEWS * len(KERNELS) * len(groups)).view(len(groups), VIEWS, -1)
        self.register_buffer("order_of_extremes", kernels.transpose(0, 1).flatten())

    def forward(self, views: Views, lengths: Tensor) -> Tensor:
        # masks (B, R, T, 2) for R reaches: all positions of a row, and the positions between its ends.
        edge = inner_edges(lengths[:, None], self.get_buffer("reaches"))
        positions = torch.arange(views.valid.shape[-1], device=lengths.device)
        inner = (positions >= edge[..., None]) & (positions < (lengths[:, None] - edge)[..., None])
        masks = torch.stack([views.valid.expand_as(inner), inner], dim=-1).float()
        excluded = (NEVER * (masks - 1)).transpose(2, 3)
        flat = views.stacked.flatten(1, 2)
        sums, extremes = [], []
        for convolution, place in zip(self.convolutions, self.places, strict=True):
            outputs, first, skips = convolution(flat)
            sums.append(outputs @ masks[:, place])
            extremes.append((first + excluded[:, place].index_select(1, skips)).amax(dim=-1))
        counts = torch.stack([lengths[:, None].expand_as(edge), lengths[:, None] - 2 * edge], dim=-1).flatten(1)
        ordered = torch.cat(sums, dim=1).flatten(1).index_select(1, self.get_buffer("order")).double()
        means = ordered / counts.index_select(1, self.get_buffer("columns")).double()
        most = torch.cat(extremes, dim=1).index_select(1, self.get_buffer("order_of_extremes"))
        return torch.cat([means, deviation(most)], dim=1)


class Convolution(nn.Module):
    """Kernels of one dilation as one convolution: views (B, 3 D, T) → outputs (B, 3 O, T) and (B, 3 · 84, T).

    The first outputs are clipped to [0, 1]. The others are those of each kernel with its first bias, times its sign,
    and not clipped. The third tensor (3 · 84,) int64 is 1 for the kernels that skip the ends of a row.

    `taps`: (3, O, 9 D' + 3). `channels`: the D' of the D = `width` channels that the kernels read, None for all. The
    caller leaves out padding and the ends of rows.
    """

    def __init__(self, taps: Tensor, dilation: int, channels: Tensor | None, width: int):
        super().__init__()
        kernels = taps[..., :-3].unflatten(-1, (TAPS, -1)).transpose(-1, -2).flatten(0, 1)
        self.dilation = dilation
        self.register_buffer("kernels", kernels.contiguous())
        self.register_buffer("bias", taps[..., -1].flatten().contiguous())
        if channels is not None:
            self.register_buffer("channels", torch.cat([view * width + channels for view in range(VIEWS)]))
        self.selects = channels is not None
        biases = taps.shape[1] // len(KERNELS)
        self.register_buffer("first", torch.arange(0, len(self.get_buffer("bias")), biases))
        self.register_buffer("signs", signs(len(self.get_buffer("first")))[:, None])
        self.register_buffer("skips", skips_edges(taps)[:, ::biases].flatten().long())

    def forward(self, views: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.selects:
            views = views.index_select(1, self.get_buffer("channels"))
        kernels, bias = self.get_buffer("kernels"), self.get_buffer("bias")
        padding = reach(self.dilation)
        outputs = functional.conv1d(views, kernels, bias, padding=padding, dilation=self.dilation, groups=VIEWS)
        first = outputs.index_select(1, self.get_buffer("first")) * self.get_buffer("signs")
        return outputs.clamp(0, 1), first, self.get_buffer("skips")
