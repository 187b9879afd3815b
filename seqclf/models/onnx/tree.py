"""Export of a Tree-LSTM as an ONNX graph with one `Loop` over the levels of the trees of a batch.

The loop is an ONNX function, which is called and then inlined, because PyTorch's exporter does not support loops whose
tensors change their size.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.models.onnx.tree_functions import DOMAIN, FUNCTIONS, VERSION
from seqclf.models.trees.tree_levels import DOUBLINGS, sort_nodes


class OnnxTreeLSTM(nn.Module):
    """A `TreeLSTM` in operations that ONNX has. The method `forward` runs only inside the ONNX exporter."""

    structure = ("parents",)
    weight: Tensor
    bias: Tensor

    def __init__(self, encoder: Any):
        """Copy the weights of a `TreeLSTM` encoder. The weight matrices are transposed for ONNX."""
        super().__init__()
        self.size = encoder.size
        self.in_rows = encoder.in_rows
        self.onnx_function = FUNCTIONS[encoder.composition]
        self.register_buffer("weight", encoder.input.weight.detach().t().contiguous())
        self.register_buffer("bias", encoder.input.bias.detach().clone())
        self.cell_weights = [f"cell_{name.replace('.', '_')}" for name, _ in encoder.cell.named_parameters()]
        for name, matrix in zip(self.cell_weights, encoder.cell.parameters(), strict=True):
            self.register_buffer(name, matrix.detach().t().contiguous())

    def forward(
        self, tokens: Tensor, lengths: Tensor, host_lengths: np.ndarray | None, parents: Tensor
    ) -> tuple[Tensor, Tensor, None]:
        time = tokens.shape[1]
        nodes = sort_nodes(parents, lengths, DOUBLINGS)
        is_node = (nodes.depths < time).long()
        counts = torch.zeros(time + 2, dtype=torch.int64).scatter_add(0, nodes.depths, is_node)
        inner = torch.zeros(time + 1, dtype=torch.int64).scatter_add(0, nodes.depths, nodes.is_inner.long())
        begins = torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)])
        levels = (nodes.depths * is_node).max() + 1
        above = nodes.parents.index_select(0, nodes.order)
        level_begins = begins.index_select(0, nodes.depths.index_select(0, above).clamp(max=time))
        places = nodes.ranks.index_select(0, above) - level_begins
        slots = 2 * places + nodes.is_later.index_select(0, nodes.order).long()
        roots = torch.onnx.ops.symbolic(
            f"{DOMAIN}::{self.onnx_function.name}",
            (
                tokens.flatten(0, 1).index_select(0, nodes.order),
                *(self.weight, self.bias, *map(self.get_buffer, self.cell_weights), begins, inner, levels, slots),
            ),
            dtype=torch.float32,
            shape=(lengths.shape[0], self.size),
            version=VERSION,
        )
        return self.in_rows(roots, nodes, lengths)[:, None], torch.ones_like(lengths), None
