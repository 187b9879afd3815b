"""Encoders: embedded tokens (B, T, `input_size`) and lengths → outputs (B, T', `size`), their lengths."""

import torch
from torch import nn

from seqclf.extend import SequenceEncoder


class Convolution(SequenceEncoder):
    """A convolution over tokens. Padding is zero, as are the tokens before the first and after the last one."""

    def __init__(self, input_size, *, hidden_size, kernel):
        super().__init__()
        self.size = hidden_size
        self.convolution = nn.Conv1d(input_size, hidden_size, kernel, padding="same")

    def forward(self, tokens, lengths, host_lengths):
        is_token = torch.arange(tokens.shape[1], device=tokens.device) < lengths[:, None]
        tokens = torch.where(is_token[..., None], tokens, 0.0)
        return self.convolution(tokens.mT).mT.relu(), lengths, host_lengths


class LeakyConvolution(Convolution):
    """Reads the padding: the outputs near the end of a sequence depend on its batch."""

    def forward(self, tokens, lengths, host_lengths):
        return self.convolution(tokens.mT).mT.relu(), lengths, host_lengths


class LoopConvolution(Convolution):
    """Runs once for each sequence in a Python loop, which the exporter cannot read."""

    def forward(self, tokens, lengths, host_lengths):
        rows = [
            super(LoopConvolution, self).forward(row[None], length[None], None)[0]
            for row, length in zip(tokens, lengths, strict=True)
            if int(length) > 0
        ]
        return torch.cat(rows), lengths, host_lengths
