"""Embedding of the fields of a token as one vector per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.encoding.field_spec import FieldSpec

UNKNOWN = 0  # id of values that are not in a vocabulary


class NumberProjection(nn.Linear):
    """Linear map of numbers (…, D) → (…, `size`). In training it first adds Gaussian noise to scaled channels.

    `scaled`: D booleans. The other channels (masks, sines and cosines, numbers left as they are) have no common scale,
    so noise of one standard deviation could drown them. `deviation`: standard deviation of the noise.
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


class FieldEmbedding(nn.Module):
    """Embeds categories, projects numbers, and concatenates them: (B, T) and (B, T, D) → (B, T, `self.size`).

    `fields`: specs of the encoders, `{name, kind: category, size}` or `{name, kind: number, width, scaled}`. A category
    with `vector_size` is embedded in that many dimensions, for pretrained vectors (see `load_vectors`). In training,
    a share `token_dropout` of the categories is read as unknown, which teaches the model to handle values it has never
    seen, and noise of standard deviation `number_noise` is added to the `scaled` channels of numbers (`width`
    booleans, by default all true).

    >>> fields = [{"name": "word", "kind": "category", "size": 50}, {"name": "value", "kind": "number", "width": 3}]
    >>> embedding = FieldEmbedding(fields, embedding_size=4, token_dropout=0.0, number_noise=0.0)
    >>> embedding({"word": torch.zeros(2, 5, dtype=torch.int64), "value": torch.zeros(2, 5, 3)}).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, fields: Sequence[FieldSpec], *, embedding_size: int, token_dropout: float, number_noise: float):
        super().__init__()
        self.token_dropout = token_dropout
        self.names = [field["name"] for field in fields]
        self.layers = nn.ModuleList()  # by position: a field may be called like an attribute of a module
        self.size = 0
        for field in fields:
            size = embedding_size
            if field["kind"] == "category":
                size = field.get("vector_size") or embedding_size
                self.layers.append(nn.Embedding(field["size"], size))
            else:
                scaled = field.get("scaled", [True] * field["width"])
                self.layers.append(NumberProjection(size, scaled, number_noise))
            self.size += size

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        """Start the embedding of the category `name` from `vectors` (size, D).

        Rows of zeros have no vector. They stay as they were drawn, scaled to the standard deviation of the others.
        """
        weight: Tensor = self.layers[self.names.index(name)].weight  # type: ignore[assignment]
        pretrained = torch.from_numpy(vectors)
        has_vector = pretrained.any(dim=1)
        with torch.no_grad():
            weight.mul_(pretrained[has_vector].std())
            weight[has_vector] = pretrained[has_vector]

    def forward(self, fields: Mapping[str, Tensor]) -> Tensor:
        embedded = []
        for name, layer in zip(self.names, self.layers, strict=True):
            values = fields[name]
            if isinstance(layer, nn.Embedding) and self.training and self.token_dropout:
                dropped = torch.rand(values.shape, device=values.device) < self.token_dropout
                values = values.masked_fill(dropped, UNKNOWN)  # a copy: the batch itself stays as it is
            embedded.append(layer(values))
        return torch.cat(embedded, dim=-1) if len(embedded) > 1 else embedded[0]
