"""Fields of a step → one vector per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

UNKNOWN = 0


class StepEmbedding(nn.Module):
    """Embeds categories, projects numbers, and puts them side by side: (B, T) and (B, T, D) → (B, T, `size`).

    `fields`: the specs of the encoders, `{name, kind: category, size}` or `{name, kind: number, width}`.
    In training, `token_dropout` of the categories become the unknown value, which teaches the model what to make of
    values it has never seen, and `number_noise` (standard deviation) is added to scaled numbers.
    """

    def __init__(
        self, fields: Sequence[Mapping[str, Any]], *, embedding_size: int, token_dropout: float, number_noise: float
    ):
        super().__init__()
        self.token_dropout = token_dropout
        self.number_noise = number_noise
        self.layers = nn.ModuleDict()
        for field in fields:
            if field["kind"] == "category":
                self.layers[field["name"]] = nn.Embedding(field["size"], embedding_size)
            else:
                self.layers[field["name"]] = nn.Linear(field["width"], embedding_size)
        self.size = embedding_size * len(self.layers)

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        embedded = []
        for name, layer in self.layers.items():
            steps = fields[name]
            if isinstance(layer, nn.Embedding):
                if self.training and self.token_dropout:
                    steps = steps.masked_fill(
                        torch.rand(steps.shape, device=steps.device) < self.token_dropout, UNKNOWN
                    )
            elif self.training and self.number_noise:
                steps = steps + self.number_noise * torch.randn_like(steps)
            embedded.append(layer(steps))
        return torch.cat(embedded, dim=-1) if len(embedded) > 1 else embedded[0]
