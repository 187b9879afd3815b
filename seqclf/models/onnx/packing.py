"""Export of encoders that pack their tokens for `nn.LSTM`, `nn.GRU` and `nn.RNN`.

PyTorch's exporter cannot convert `pack_padded_sequence`, because the number of packed tokens depends on the values of
the lengths. During the export, a `PackedSequence` therefore holds the padded tokens and the lengths: `data` is
(T, B, …) and `batch_sizes` is (B,). The ONNX operators of recurrent layers take these lengths, so the states do not
read padding. Layers that compute each token alone, such as an `nn.Linear`, may be applied to `data` as in training.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from seqclf.models.onnx.host_lengths import as_lengths
from seqclf.models.onnx.replaced_code import is_replacing, original_of
from seqclf.models.pooling import token_mask


def pack(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Replace `pack_padded_sequence`. The sequences keep their order, whether they are sorted or not."""
    return PackedSequence(input.transpose(0, 1) if batch_first else input, as_lengths(lengths))


def pad(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: Any = None
) -> tuple[Tensor, Tensor]:
    """Replace `pad_packed_sequence`.

    Without `total_length`, or with one that depends on the lengths, the time axis keeps its size. PyTorch shortens it
    to the longest sequence, so only the amount of padding differs.
    """
    tokens, lengths = sequence.data, sequence.batch_sizes
    inside = token_mask(lengths, tokens.shape[0]).transpose(0, 1)
    tokens = torch.where(inside.view(*inside.shape, *[1] * (tokens.dim() - 2)), tokens, padding_value)
    if not (total_length is None or _depends_on_values(total_length) or _is_same(total_length, tokens.shape[0])):
        # Append and cut, because a comparison of the two sizes would fix the time axis of the exported graph.
        padding = tokens.new_full((total_length, *tokens.shape[1:]), padding_value)
        tokens = torch.cat([tokens, padding])[:total_length]
    return (tokens.transpose(0, 1) if batch_first else tokens), lengths


def _depends_on_values(size: Any) -> bool:
    return isinstance(size, Tensor) or bool(free_unbacked_symbols(size))


def _is_same(size: Any, other: Any) -> bool:
    """Return True if two sizes are one symbol, without a comparison of their values."""
    return isinstance(size, torch.SymInt) and isinstance(other, torch.SymInt) and size.node.expr == other.node.expr


def _pack_code(input: Any, lengths: Any, batch_first: Any, enforce_sorted: Any) -> Any:
    from seqclf.models.onnx.packing import pack, pack_padded_sequence, replacement

    return replacement(pack_padded_sequence, pack)(input, lengths, batch_first, enforce_sorted)


def _pad_code(sequence: Any, batch_first: Any, padding_value: Any, total_length: Any) -> Any:
    from seqclf.models.onnx.packing import pad, pad_packed_sequence, replacement

    return replacement(pad_packed_sequence, pad)(sequence, batch_first, padding_value, total_length)


# These two functions run in the global names of torch.nn.utils.rnn, so they import what they need.
REPLACEMENTS = {pack_padded_sequence: _pack_code, pad_packed_sequence: _pad_code}
_ORIGINALS = {function: original_of(function) for function in REPLACEMENTS}


def replacement(function: Any, other: Callable[..., Any]) -> Callable[..., Any]:
    """Return `other` in a thread that exports, and PyTorch's own `function` in all other threads."""
    return other if is_replacing() else _ORIGINALS[function]
