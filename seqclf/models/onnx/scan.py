"""Export of a loop over tokens as one ONNX `Scan`, so that the number of tokens stays free."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from seqclf.errors import InputError
from seqclf.models.onnx.obstacles import REMEDY

ABOUT_SCAN = "This higher order operator"  # start of a first line in which `scan` speaks about itself

# (inputs of one token, each (B, D), is_token (B,) or None to read padding as well, states) → output (B, size), new
# states
Step = Callable[[Sequence[Tensor], Tensor | None, Sequence[Tensor]], tuple[Tensor, list[Tensor]]]


def scan_tokens(
    step: Step, inputs: Sequence[Tensor], inside: Tensor | None, states: Sequence[Tensor], name: str
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs (B, T, size) of `step` for all tokens, and the states after the last token, in an export.

    `inputs`: list of (B, T, D). `inside`: (B, T) False for padding, or None to read the padding as well. `states`: (B,
    *shape) before the first token. `name`: description of the step, for the text of an InputError.
    """
    # PyTorch calls `scan` a prototype. It is imported here, so that training does not depend on it.
    from torch._higher_order_ops.scan import scan

    def body(carried: list[Tensor], now: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        output, new = step(now[: len(inputs)], None if inside is None else now[-1], carried)
        # A `scan` rejects results that share memory with each other or with an argument.
        return [state.clone() for state in new], output.clone()

    read = [*inputs] if inside is None else [*inputs, inside]
    try:
        last, outputs = scan(body, list(states), [values.transpose(0, 1) for values in read])
    except Exception as error:  # third-party code may raise any exception
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        line = next((line for line in lines if not line.startswith(ABOUT_SCAN)), type(error).__name__)
        raise InputError(None, f"{name} fails ({line})", REMEDY) from error
    return outputs.transpose(0, 1), list(last)
