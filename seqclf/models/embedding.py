"""Fields of a step → one vector per step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

UNKNOWN = 0


class NumberProjection(nn.Linear):
    """Linear map of numbers (…, D) → (…, `size`) that in training first adds Gaussian noise to scaled channels.

    `scaled`: D booleans. The other channels (masks, sines and cosines, numbers left as they are) have no common scale,
    so that noise of one deviation could drown them.
    """

    noise: Tensor

    def __init__(self, size: int, scaled: Sequence[bool], deviation: float):
        super().__init__(len(scaled), size)
        self.deviation = deviation
        # Not persistent: it follows from the arguments, which travel in the checkpoint.
        self.register_buffer("noise", deviation * torch.tensor(scaled, dtype=torch.float32), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        if self.training and self.deviation:
            values = values + self.noise * torch.randn_like(values)
        return super().forward(values)


class StepEmbedding(nn.Module):
    """Embeds categories, projects numbers, and puts them side by side: (B, T) and (B, T, D) → (B, T, `size`).

    `fields`: the specs of the encoders, `{name, kind: category, size}` or `{name, kind: number, width, scaled}`; a
    category with `vector_size` is embedded in so many dimensions, for pretrained vectors (see `load_vectors`).
    In training, `token_dropout` of the categories become the unknown value, which teaches the model what to make of
    values it has never seen, and noise of standard deviation `number_noise` is added to the `scaled`
    channels of numbers (`width` booleans; left out: all).
    """

    def __init__(
        self, fields: Sequence[Mapping[str, Any]], *, embedding_size: int, token_dropout: float, number_noise: float
    ):
        super().__init__()
        self.token_dropout = token_dropout
        self.names = [field["name"] for field in fields]
        self.layers = nn.ModuleList()  # by position: a field may be called like an attribute of a module
        self.size = 0
        for field in fields:
            size = field.get("vector_size") or embedding_size
            category = field["kind"] == "category"
            self.layers.append(
                nn.Embedding(field["size"], size)
                if category
                else NumberProjection(size, field.get("scaled", [True] * field["width"]), number_noise)
            )
            self.size += size

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        """Start a category's embedding from (size, D) `vectors`; rows of zeros stay as they were drawn, scaled to the
        deviation of the others."""
        weight: Tensor = self.layers[self.names.index(name)].weight  # type: ignore[assignment]
        given = torch.from_numpy(vectors)
        known = given.any(dim=1)
        with torch.no_grad():
            weight.mul_(given[known].std())
            weight[known] = given[known]

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        embedded = []
        for name, layer in zip(self.names, self.layers, strict=True):
            steps = fields[name]
            if isinstance(layer, nn.Embedding) and self.training and self.token_dropout:
                steps = steps.masked_fill(torch.rand(steps.shape, device=steps.device) < self.token_dropout, UNKNOWN)
            embedded.append(layer(steps))
        return torch.cat(embedded, dim=-1) if len(embedded) > 1 else embedded[0]
