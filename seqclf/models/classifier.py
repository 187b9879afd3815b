"""The whole network: steps → recurrence → pooling → logits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn

from seqclf.models.dropout import StepDropout
from seqclf.models.embedding import StepEmbedding
from seqclf.models.pooling import Pooling
from seqclf.models.recurrent import Recurrent


class SequenceClassifier(nn.Module):
    """Classifies sequences of different lengths; a sequence's logits depend on nothing but its own steps.

    `fields`: the encoders' specs (see `StepEmbedding`). `dropout` is applied to the steps, between layers and to the
    pooled vector, which is layer-normalised; with `variational` a sequence loses the same features at all its steps.
    """

    def __init__(
        self,
        fields: Sequence[Mapping[str, Any]],
        num_classes: int,
        *,
        cell: str,
        embedding_size: int,
        hidden_size: int,
        layers: int,
        bidirectional: bool,
        pooling: str,
        layout: str,
        dropout: float,
        token_dropout: float,
        number_noise: float,
        variational: bool = False,
    ):
        super().__init__()
        self.steps = StepEmbedding(
            fields, embedding_size=embedding_size, token_dropout=token_dropout, number_noise=number_noise
        )
        self.recurrent = Recurrent(
            cell, self.steps.size, hidden_size, layers, bidirectional, dropout, variational, layout
        )
        self.pooling = Pooling(pooling, self.recurrent.size, self.recurrent.backward_size)
        self.norm = nn.LayerNorm(self.pooling.size)
        self.step_dropout = StepDropout(dropout, variational)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(self.pooling.size, num_classes)

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        self.steps.load_vectors(name, vectors)

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        """`fields`: (B, T) or (B, T, D) each; `lengths`: (B,), and a copy on the host → logits (B, classes)."""
        steps = self.step_dropout(self.steps(fields))
        outputs = self.recurrent(steps, lengths, host_lengths)
        return self.output(self.dropout(self.norm(self.pooling(outputs, lengths))))
