"""Layer that joins the static fields of a sequence, such as age or country, to its pooled vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.models.embedding import FieldEmbedding

EMBEDDING_SIZE = 16  # size of the vector of each static field
HIDDEN_SIZE = 64
TOKEN_DROPOUT, NUMBER_NOISE = 0.1, 0.1  # noise in training; a static value has no other tokens over which it averages


class StaticFields(nn.Module):
    """Joins static fields to pooled vectors: (…, P) → (…, P + `HIDDEN_SIZE`), or (…, P) without static fields.

    A hidden layer reads both, so that the class may depend on what the tokens and a static field say together.

    >>> joined = StaticFields([{"name": "ward", "kind": "category", "size": 5, "static": True}], 8)
    >>> joined(torch.zeros(2, 8), {"ward": torch.tensor([1, 4])}).shape
    torch.Size([2, 72])
    """

    def __init__(self, fields: Sequence[FieldSpec], size: int):
        super().__init__()
        specs = static_specs(fields)
        self.size, self.pooled_size = size + (HIDDEN_SIZE if specs else 0), size
        self.embedding = (
            FieldEmbedding(specs, embedding_size=EMBEDDING_SIZE, token_dropout=TOKEN_DROPOUT, number_noise=NUMBER_NOISE)
            if specs
            else None
        )
        self.names = [spec["name"] for spec in specs]
        self.hidden = nn.Linear(size + self.embedding.size, HIDDEN_SIZE) if self.embedding is not None else None

    def forward(self, pooled: Tensor, fields: Mapping[str, Tensor]) -> Tensor:
        """Return pooled vectors (B, P) or (B, T, P) with the hidden values. `fields`: dict field → (B,) or (B, D)."""
        if self.embedding is None or self.hidden is None:
            return pooled
        vectors = self.embedding(fields)
        if pooled.dim() == 3:
            vectors = vectors[:, None].expand(-1, pooled.shape[1], -1)
        return torch.cat([pooled, functional.gelu(self.hidden(torch.cat([pooled, vectors], dim=-1)))], dim=-1)
