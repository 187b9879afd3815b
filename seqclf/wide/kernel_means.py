"""Means of the random kernels, with few nodes in an exported graph, because the time of an export grows with them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.wide.convolution import TAPS, inner_edges, reach, skips_edges
from seqclf.wide.views import VIEWS, Views


class KernelMeans(nn.Module):
    """Mean of the soft comparison with each bias: views → (B, outputs) float64, as `Kernels` computes it in parts.

    Each group of kernels is a convolution, a clip, and a product with a mask, which sums the positions that a kernel
    counts.

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

    def forward(self, views: Views, lengths: Tensor) -> Tensor:
        # masks (B, R, T, 2) for R reaches: all positions of a row, and the positions between its ends.
        edge = inner_edges(lengths[:, None], self.get_buffer("reaches"))
        positions = torch.arange(views.valid.shape[-1], device=lengths.device)
        inner = (positions >= edge[..., None]) & (positions < (lengths[:, None] - edge)[..., None])
        masks = torch.stack([views.valid.expand_as(inner), inner], dim=-1).float()
        flat = views.stacked.flatten(1, 2)
        read = zip(self.convolutions, self.places, strict=True)
        sums = torch.cat([convolution(flat) @ masks[:, place] for convolution, place in read], dim=1).flatten(1)
        counts = torch.stack([lengths[:, None].expand_as(edge), lengths[:, None] - 2 * edge], dim=-1).flatten(1)
        means = sums.index_select(1, self.get_buffer("order")).double()
        return means / counts.index_select(1, self.get_buffer("columns")).double()


class Convolution(nn.Module):
    """Kernels of one dilation as one convolution, clipped to [0, 1]: views (B, 3 D, T) → (B, 3 O, T).

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

    def forward(self, views: Tensor) -> Tensor:
        if self.selects:
            views = views.index_select(1, self.get_buffer("channels"))
        kernels, bias = self.get_buffer("kernels"), self.get_buffer("bias")
        padding = reach(self.dilation)
        outputs = functional.conv1d(views, kernels, bias, padding=padding, dilation=self.dilation, groups=VIEWS)
        return outputs.clamp(0, 1)
