"""Features of the random kernels in an exported graph."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seqclf.models.heads.views import VIEWS, Views
from seqclf.wide.convolution import KERNELS, NEVER, TAPS, deviation, inner_edges, reach, signs, skips_edges
from seqclf.wide.kernel_function import DOMAIN, GROUP_INPUTS, VERSION, KernelFunction


class KernelOutputs(nn.Module):
    """Features of the kernels: views → (B, F) float64, as `Kernels` computes them in parts.

    Each group of kernels is a convolution, a clip, and a product with a mask, which sums the positions that a kernel
    counts. Beside it the extreme output of each kernel with its first bias, before the clip. The method `forward` runs
    only inside the ONNX exporter.

    Args:
        groups: Dilation, channels (None for all) and taps of each group of kernels.
        width: Number of channels.
    """

    def __init__(self, groups: Iterable[tuple[int, Tensor | None, Tensor]], width: int):
        super().__init__()
        groups = list(groups)
        reaches = sorted({reach(dilation) for dilation, _, _ in groups})
        places = [reaches.index(reach(dilation)) for dilation, _, _ in groups]
        self.register_buffer("reaches", torch.tensor(reaches))
        self.register_buffer("signs", signs(VIEWS * len(KERNELS))[:, None])
        selects = any(channels is not None for _, channels, _ in groups)
        self.onnx_function = KernelFunction(tuple(dilation for dilation, _, _ in groups), tuple(places), selects)
        self.inputs: list[str] = []
        counted = []
        for group, (place, (_, channels, taps)) in enumerate(zip(places, groups, strict=True)):
            weights = taps[..., :-3].unflatten(-1, (TAPS, -1)).transpose(-1, -2).flatten(0, 1)
            biases = taps.shape[1] // len(KERNELS)
            first = torch.arange(0, len(weights), biases)
            tensors = [weights, taps[..., -1].flatten(), first, skips_edges(taps)[:, ::biases].flatten().long()]
            if channels is not None:
                tensors.append(torch.cat([view * width + channels for view in range(VIEWS)]))
            for name, tensor in zip(GROUP_INPUTS, tensors, strict=False):
                self.inputs.append(f"{name}{group}")
                self.register_buffer(self.inputs[-1], tensor.contiguous())
            counted.append(2 * place + skips_edges(taps).flatten().long())
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
        outputs, kernels = (len(self.get_buffer(name)) for name in ("columns", "order_of_extremes"))
        sums, extremes = torch.onnx.ops.symbolic_multi_out(
            f"{DOMAIN}::{self.onnx_function.name}",
            (flat, masks, excluded, self.get_buffer("signs"), *map(self.get_buffer, self.inputs)),
            dtypes=[torch.float32] * 2,
            shapes=[(flat.shape[0], outputs, 2), (flat.shape[0], kernels)],
            version=VERSION,
        )
        counts = torch.stack([lengths[:, None].expand_as(edge), lengths[:, None] - 2 * edge], dim=-1).flatten(1)
        ordered = sums.flatten(1).index_select(1, self.get_buffer("order")).double()
        means = ordered / counts.index_select(1, self.get_buffer("columns")).double()
        most = extremes.index_select(1, self.get_buffer("order_of_extremes"))
        return torch.cat([means, deviation(most)], dim=1)
