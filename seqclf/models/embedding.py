"""Embedding of the fields of a token as one vector per token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.data.field_spec import UNKNOWN_IDS, FieldSpec, token_specs

NO_VALUE = 0  # id of an empty slot of a bag


class IdEmbedding(nn.Embedding):
    """Embedding of ids (B, T) → (B, T, `dimensions`). In training a share `dropout` of them is read as unknown."""

    def __init__(self, size: int, dimensions: int, dropout: float):
        super().__init__(size, dimensions)
        self.dropout = dropout

    def forward(self, ids: Tensor) -> Tensor:
        if self.training and self.dropout:
            dropped = torch.rand(ids.shape, device=ids.device) < self.dropout
            ids = ids.masked_fill(dropped, UNKNOWN_IDS["category"])  # a copy: the batch itself stays as it is
        return super().forward(ids)


class BagEmbedding(nn.Embedding):
    """Embedding of several ids per token: (B, T, K) → (B, T, `dimensions`), the `combine` (mean, sum or max) of them.

    Id 0 stands for no value. A token without any value becomes zeros. In training a share `dropout` of the ids is read
    as unknown.

    >>> bag = BagEmbedding(5, 2, "sum", dropout=0.0)
    >>> vectors = bag(torch.tensor([[[2, 3, 0], [0, 0, 0]]]))
    >>> bool(torch.allclose(vectors[0, 0], bag.weight[2] + bag.weight[3])), vectors[0, 1].tolist()
    (True, [0.0, 0.0])
    """

    def __init__(self, size: int, dimensions: int, combine: str, dropout: float):
        super().__init__(size, dimensions, padding_idx=NO_VALUE)
        self.combine = combine
        self.dropout = dropout

    def forward(self, ids: Tensor) -> Tensor:
        if self.training and self.dropout:
            dropped = (torch.rand(ids.shape, device=ids.device) < self.dropout) & (ids != NO_VALUE)
            ids = ids.masked_fill(dropped, UNKNOWN_IDS["bag"])
        if torch.onnx.is_in_onnx_export():
            return self._combined(ids)
        # Computes no vector per id, which would take K times the memory of the result. ONNX has no such operator.
        bags = nn.functional.embedding_bag(ids.flatten(0, 1), self.weight, mode=self.combine, padding_idx=NO_VALUE)
        return bags.unflatten(0, ids.shape[:2])

    def _combined(self, ids: Tensor) -> Tensor:
        vectors, present = super().forward(ids), (ids != NO_VALUE)[..., None]
        if self.combine == "max":
            highest = vectors.masked_fill(~present, float("-inf")).amax(dim=2)
            return torch.where(present.any(dim=2), highest, 0.0)
        total = torch.where(present, vectors, 0.0).sum(dim=2)
        if self.combine == "sum":
            return total
        return total / present.sum(dim=2).clamp(min=1).to(total.dtype)


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
    """Embeds ids, projects numbers, and concatenates them: fields of (B, T, …) → (B, T, `self.size`).

    `fields`: specs of the encoders (see `FieldSpec`). A category with `vector_size` is embedded in that many
    dimensions, for pretrained vectors (see `load_vectors`), every other field in `embedding_size`. In training, a share
    `token_dropout` of the ids is read as unknown, which teaches the model to handle values it has never seen, and noise
    of standard deviation `number_noise` is added to the `scaled` channels of numbers (`width` booleans, by default all
    true).

    >>> fields = [{"name": "word", "kind": "category", "size": 50}, {"name": "value", "kind": "number", "width": 3}]
    >>> embedding = FieldEmbedding(fields, embedding_size=4, token_dropout=0.0, number_noise=0.0)
    >>> embedding({"word": torch.zeros(2, 5, dtype=torch.int64), "value": torch.zeros(2, 5, 3)}).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, fields: Sequence[FieldSpec], *, embedding_size: int, token_dropout: float, number_noise: float):
        super().__init__()
        tokens = token_specs(fields)
        self.names = [field["name"] for field in tokens]
        self.layers = nn.ModuleList()  # by position: a field may be called like an attribute of a module
        self.size = 0
        for field in tokens:
            size = embedding_size
            if field["kind"] == "category":
                size = field.get("vector_size") or embedding_size
                self.layers.append(IdEmbedding(field["size"], size, token_dropout))
            elif field["kind"] == "bag":
                self.layers.append(BagEmbedding(field["size"], size, field["combine"], token_dropout))
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
        embedded = [layer(fields[name]) for name, layer in zip(self.names, self.layers, strict=True)]
        return torch.cat(embedded, dim=-1) if len(embedded) > 1 else embedded[0]


# Dropout of token features, drawn per token or per sequence.


class TokenDropout(nn.Module):
    """Zeroes a `share` of the features of tokens (B, T, D) in training and scales up the rest.

    With `variational` all tokens of a sequence lose the same features (Gal and Ghahramani 2016), else each token its
    own.

    >>> import torch
    >>> dropped = TokenDropout(0.5, variational=True)(torch.ones(1, 3, 8))[0]
    >>> bool((dropped == dropped[0]).all()), sorted(set(dropped[0].tolist()) | {0.0, 2.0})
    (True, [0.0, 2.0])
    """

    def __init__(self, share: float, variational: bool):
        super().__init__()
        self.share = share
        self.variational = variational

    def forward(self, tokens: Tensor) -> Tensor:
        if not self.training or self.share == 0:
            return tokens
        if not self.variational:
            return nn.functional.dropout(tokens, self.share)
        # One draw per sequence and feature, which broadcasts over its tokens.
        keep = tokens.new_empty(len(tokens), 1, tokens.shape[-1]).bernoulli_(1 - self.share)
        return tokens * keep.div_(1 - self.share)
