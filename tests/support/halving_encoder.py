"""An encoder of another package that shortens the sequences."""

import torch
from torch import nn

from seqclf.models.classifier import SequenceEncoder


class HalvingEncoder(SequenceEncoder):
    """Weighted means of pairs of tokens, in both directions."""

    def __init__(self, input_size: int, hidden_size: int, dropout: float = 0.9):
        super().__init__()
        self.size, self.backward_size = 2 * hidden_size, hidden_size
        self.linear = nn.Linear(input_size, 2 * hidden_size)
        self.dropout = dropout

    def forward(self, tokens, lengths, host_lengths):
        inside = torch.arange(tokens.shape[1]) < lengths[:, None]
        tokens = nn.functional.pad(torch.where(inside[..., None], tokens, 0.0), (0, 0, 0, 1))
        pairs = tokens[:, :-1:2] + tokens[:, 1::2]
        return self.linear(pairs), (lengths + 1) // 2, None if host_lengths is None else (host_lengths + 1) // 2
