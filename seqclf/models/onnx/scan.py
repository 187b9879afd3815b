"""Export of a loop over tokens as one ONNX `Scan`, so that the number of tokens stays free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from seqclf.errors import InputError, first_line

REMEDY = "write it with tensor operations, such as torch.where instead of if, or set export=false"

# (token (B, D), is_token (B,), states) → output (B, size), new states
Step = Callable[[Tensor, Tensor, Sequence[Tensor]], tuple[Tensor, list[Tensor]]]


def scan_tokens(
    step: Step, tokens: Tensor, inside: Tensor, states: Sequence[Tensor], name: str
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs (B, T, size) of `step` for all tokens, and the states after the last token.

    This function runs only inside the ONNX exporter. `tokens`: (B, T, D). `inside`: (B, T) False for padding. `states`:
    states (B, *shape) before the first token. `name`: description of the step, for the text of an InputError.
    """
    # PyTorch calls `scan` a prototype. It is imported here, so that training does not depend on it.
    from torch._higher_order_ops.scan import scan

    def body(carried: list[Tensor], now: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        output, new = step(now[0], now[1], carried)
        # A `scan` rejects results that share memory with each other or with an argument.
        return [state.clone() for state in new], output.clone()

    try:
        last, outputs = scan(body, list(states), [tokens.transpose(0, 1), inside.transpose(0, 1)])
    except Exception as error:  # third-party code may raise any exception
        raise InputError(None, f"{name} {_reason(error)}", REMEDY) from error
    return outputs.transpose(0, 1), list(last)


def _reason(error: BaseException) -> str:
    """Return the reason of the innermost cause. The error of `scan` itself names neither the cell nor the reason."""
    cause: BaseException = error
    while inner := cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__):
        cause = inner
    text = first_line(cause)
    if "data-dependent" in text.lower():
        return "depends on the values of tensors, as by an if or int() of a tensor"
    return f"fails ({type(cause).__name__}: {text})"
