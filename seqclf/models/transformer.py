"""Transformer encoder: self-attention between all tokens of a sequence, with rotary position embedding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqclf.errors import InputError
from seqclf.models.classifier import SequenceEncoder
from seqclf.models.network import HostLengths
from seqclf.models.pooling import token_mask
from seqclf.settings.base import Count, DropoutShare

ROTARY_BASE = 10_000.0  # the rotations have wavelengths from 2 pi to almost 2 pi * ROTARY_BASE tokens (Su et al. 2021)


def rotary_angles(longest: int, head_size: int, device: torch.device | None = None) -> Tensor:
    """Return the rotation angle of each position and each pair of channels, (`longest`, `head_size` / 2) float32.

    They are computed in each call, so there is no maximum length, even after the export to ONNX.

    >>> rotary_angles(3, head_size=4).tolist()[2]
    [2.0, 0.019999999552965164]
    """
    # Not in a buffer, which precision=bf16-true rounds to bfloat16, where 257 is missing.
    exponents = torch.arange(0, head_size, 2, dtype=torch.float32, device=device) / head_size
    positions = torch.arange(longest, dtype=torch.float32, device=device)
    return positions[:, None] * ROTARY_BASE**-exponents


def rotate(heads: Tensor, angles: Tensor) -> Tensor:
    """Rotate queries or keys (B, H, T, S) by `angles` (T, S / 2). The channels i and i + S / 2 form a pair.

    The dot product of a rotated query and key depends only on the distance between the two tokens.

    >>> query, key = torch.ones(2, 1, 1, 1, 4)
    >>> angles = rotary_angles(9, head_size=4)
    >>> near, far = (float((rotate(query, angles[[i]]) * rotate(key, angles[[i + 2]])).sum()) for i in (0, 6))
    >>> abs(near - far) < 1e-6
    True
    """
    first, second = heads.chunk(2, dim=-1)
    cosines, sines = angles.cos().to(heads.dtype), angles.sin().to(heads.dtype)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


def check_heads(hidden_size: int, heads: int) -> None:
    """Raise InputError unless `hidden_size` is an even multiple of `heads`: rotation needs pairs of channels in a head.

    >>> check_heads(hidden_size=96, heads=5)
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: model.heads=5: model.hidden_size=96 is not an even multiple of it; set \
    model.hidden_size=100, or other heads
    """
    even = 2 * heads
    if hidden_size % even:
        problem = f"model.hidden_size={hidden_size} is not an even multiple of it"
        remedy = f"set model.hidden_size={-(-hidden_size // even) * even}, or other heads"
        raise InputError(f"model.heads={heads}", problem, remedy)


class SelfAttention(nn.Module):
    """Multi-head self-attention between all tokens of a sequence: (B, T, `size`) → (B, T, `size`)."""

    def __init__(self, size: int, heads: int):
        super().__init__()
        self.heads = heads
        self.inputs = nn.Linear(size, 3 * size, bias=False)
        self.output = nn.Linear(size, size)

    def forward(self, tokens: Tensor, angles: Tensor, mask: Tensor | None) -> Tensor:
        queries, keys, values = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.inputs(tokens).chunk(3, dim=-1)
        )
        attended = self.attend(rotate(queries, angles), rotate(keys, angles), values, mask)
        return self.output(attended.transpose(1, 2).flatten(2))

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return the attention outputs (B, H, T, S). `mask`: (B, 1, 1, T), False for padding, `None` without it."""
        # With dropout, PyTorch on a CPU stores all attention weights (B, H, T, T): for T = 2000, 80 times the memory
        # of the result, and 6 times the time of tiled attention.
        return nn.functional.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)

    def onnx_form(self) -> nn.Module:
        return OnnxSelfAttention(self)


class OnnxSelfAttention(SelfAttention):
    """A `SelfAttention` layer in operations that ONNX has, which computes one head after the other.

    ONNX Runtime needs memory for the attention weights (B, T, T) of only one head, where PyTorch's exporter would
    compute all at once and add an operator for rows that are completely masked. These do not occur, as no sequence is
    empty.
    """

    def __init__(self, attention: SelfAttention):
        nn.Module.__init__(self)
        self.heads, self.inputs, self.output = attention.heads, attention.inputs, attention.output

    def attend(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None) -> Tensor:
        assert mask is not None  # the export always has a mask, because lengths are unknown
        added = torch.where(mask[:, 0], 0.0, float("-inf"))
        queries = queries * queries.shape[-1] ** -0.5
        heads = zip(queries.unbind(1), keys.unbind(1), values.unbind(1), strict=True)
        return torch.stack([(query @ key.mT + added).softmax(dim=-1) @ value for query, key, value in heads], dim=1)


class FeedForward(nn.Module):
    """Two linear layers with GELU and `expansion` * `size` units between them: (…, `size`) → (…, `size`)."""

    def __init__(self, size: int, expansion: int):
        super().__init__()
        self.inner = nn.Linear(size, expansion * size)
        self.outer = nn.Linear(expansion * size, size)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.outer(nn.functional.gelu(self.inner(tokens)))


class Block(nn.Module):
    """Pre-norm transformer block: self-attention, then a feed-forward network, each with a residual connection."""

    def __init__(self, size: int, heads: int, expansion: int, dropout: float):
        super().__init__()
        self.attention_norm = nn.LayerNorm(size)
        self.attention = SelfAttention(size, heads)
        self.feed_forward_norm = nn.LayerNorm(size)
        self.feed_forward = FeedForward(size, expansion)
        self.dropout = nn.Dropout(dropout)

    def forward(self, tokens: Tensor, angles: Tensor, mask: Tensor | None) -> Tensor:
        tokens = tokens + self.dropout(self.attention(self.attention_norm(tokens), angles, mask))
        return tokens + self.dropout(self.feed_forward(self.feed_forward_norm(tokens)))


class Transformer(SequenceEncoder):
    """Transformer encoder: (B, T, `input_size`) and lengths (B,) → (B, T, `hidden_size`).

    `layers`: number of blocks. Each normalizes its inputs (pre-norm, Xiong et al. 2020), and the outputs of the last
    one are normalized too. Rotary position embedding (Su et al. 2021) encodes the distance between two tokens, and has
    no maximum length. `hidden_size`: number of channels, an even multiple of `heads`. Each output depends on all tokens
    of the sequence: time grows with the square of the length, memory linearly.

    >>> import numpy as np
    >>> encoder = Transformer(3, hidden_size=8, heads=2)
    >>> host = np.array([5, 2])
    >>> outputs, lengths, _ = encoder(torch.zeros(2, 5, 3), torch.from_numpy(host), host)
    >>> outputs.shape, lengths
    (torch.Size([2, 5, 8]), tensor([5, 2]))
    """

    def __init__(
        self,
        input_size: int,
        *,
        hidden_size: Count = 96,
        layers: Count = 2,
        heads: Count = 4,
        expansion: Count = 4,
        dropout: DropoutShare = 0.25,
    ):
        super().__init__()
        check_heads(hidden_size, heads)
        self.size = hidden_size
        self.head_size = hidden_size // heads
        self.input = nn.Linear(input_size, hidden_size)
        self.blocks = nn.ModuleList(Block(hidden_size, heads, expansion, dropout) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden_size)

    def forward(self, tokens: Tensor, lengths: Tensor, host_lengths: HostLengths) -> tuple[Tensor, Tensor, HostLengths]:
        longest = tokens.shape[1]
        mask = None
        # A batch without padding needs no mask. Reading `lengths` in place of `host_lengths` would wait for the GPU.
        if host_lengths is None or (host_lengths < longest).any():
            inside = token_mask(lengths, longest)
            # Zero the padding before attention, because padding may be NaN, and 0 * NaN is NaN.
            tokens = torch.where(inside[..., None], tokens, 0.0)
            mask = inside[:, None, None]  # one mask for all heads and queries has B * T elements instead of B * T * T
        tokens = self.input(tokens)
        angles = rotary_angles(longest, self.head_size, tokens.device)
        for block in self.blocks:
            tokens = block(tokens, angles, mask)
        return self.norm(tokens), lengths, host_lengths
