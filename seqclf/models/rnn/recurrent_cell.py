"""Base class of recurrent cells. A cell reads one token at a time, and `CellEncoder` runs it over sequences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, NumberSpec, number_specs
from seqclf.errors import InputError, RefusedValueError, first_line
from seqclf.models.onnx.checks import REMEDY
from seqclf.models.streaming import LOWEST, State


def check_field_name(value: Any) -> str:
    """Reject a value that is not a text, such as null in a choice of conf/model."""
    if not isinstance(value, str) or not value:
        raise RefusedValueError("must be the name of a field of the data")
    return value


FieldName = Annotated[str, BeforeValidator(check_field_name)]

ROWS = 3  # sequences in the trial step of a cell
MAX_ROW_ERROR = 1e-4  # largest accepted difference, absolute or relative, between a row alone and in a batch
ABOUT_SCAN = "This higher order operator"  # start of a first line in which `scan` speaks about itself

# (inputs (B, D) of one token, is_token (B,) or None to read padding as well, states) → output (B, size), new states
Step = Callable[[Sequence[Tensor], Tensor | None, Sequence[Tensor]], tuple[Tensor, list[Tensor]]]


class RecurrentCell(nn.Module):
    """Base class of recurrent cells: one token of each of B sequences and the states → an output and the new states.

    The constructor gets `input_size`, the number of channels of a token, and, if it takes them, `hidden_size` and
    `field_specs`, the specs of all fields. It sets `size`, the number of channels of an output, and `states`, a list of
    `State`: the name, the shape per sequence and the initial value. A state may be a vector, a matrix (`State("memory",
    (8, 8))`) or one number (`State("count", ())`). `fields`, of the class or an instance, names numeric fields that the
    cell reads beside the embedded token, such as the time since the previous token. The method `step` gets one more
    argument for each. The method `step` is plain PyTorch without loops over sequences. `CellEncoder` runs a cell over
    sequences of different lengths, in layers and directions, and exports each as one ONNX `Scan`.

    >>> class Leaky(RecurrentCell):
    ...     def __init__(self, input_size, hidden_size):
    ...         super().__init__()
    ...         self.size = hidden_size
    ...         self.states = [State("hidden", (hidden_size,))]
    ...         self.linear = nn.Linear(input_size + hidden_size, hidden_size)
    ...
    ...     def step(self, inputs, state):
    ...         update = self.linear(torch.cat([inputs, state["hidden"]], dim=-1)).tanh()
    ...         hidden = 0.9 * state["hidden"] + 0.1 * update
    ...         return hidden, {"hidden": hidden}
    >>> output, state = Leaky(5, 8).step(torch.zeros(2, 5), {"hidden": torch.zeros(2, 8)})
    >>> output.shape
    torch.Size([2, 8])
    """

    size: int
    states: Sequence[State]
    fields: Sequence[str] = ()  # names of the numeric fields that `step` gets as encoded, beside the embedded token

    def step(self, inputs: Tensor, state: Mapping[str, Tensor], *fields: Tensor) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the outputs (B, `size`) of B tokens, and a dict of the new states, shaped as `state`.

        `inputs`: (B, `input_size`) float. `state`: dict name → state (B, *shape) before the token. `fields`: encoded
        values (B, width) float of the same tokens, one tensor for each of the cell's `fields`. A row of the results
        must depend only on the same row of the arguments, which must not be changed in place.
        """
        raise NotImplementedError


def initial_states(cell: RecurrentCell, tokens: Tensor) -> list[Tensor]:
    """Return the states (B, *shape) before the first of `tokens` (B, …), in their dtype and on their device."""
    return [tokens.new_full((tokens.shape[0], *state.shape), state.initial) for state in cell.states]


def run_cell(
    cell: RecurrentCell,
    tokens: Tensor,
    inside: Tensor,
    states: Sequence[Tensor],
    fields: Sequence[Tensor] = (),
    *,
    shortest: int = 0,
    keeps_states: bool = True,
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs (B, T, `cell.size`) for all tokens, and the states after the last token of each sequence.

    `tokens`: (B, T, D), and `fields`: (B, T, width) of those that the cell reads; padding may be NaN. `inside`: (B, T)
    False for padding. `states`: (B, *shape) before the first token. `shortest`: each sequence has at least so many
    tokens. `keeps_states`: False if the caller needs no states, which may then read padding in an export.
    """
    # Choose the padding away before the cell sees it: 0 * NaN is NaN, in gradients too.
    inputs = [torch.where(inside[..., None], values.to(tokens.dtype), 0.0) for values in (tokens, *fields)]
    names = [state.name for state in cell.states]

    def step(now: Sequence[Tensor], is_token: Tensor | None, before: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        output, new = cell.step(now[0], dict(zip(names, before, strict=True)), *now[1:])
        after = [new[name] for name in names]
        return output, after if is_token is None else freeze(is_token, after, before)

    if torch.compiler.is_exporting():
        return scan_tokens(step, inputs, inside if keeps_states else None, states, f"step of {type(cell).__name__}")
    outputs = []
    # Training freezes the states beyond each length, so that they cannot grow until gradients overflow.
    # `unbind` has one gradient for all tokens. Selecting tokens one by one would add T gradients of the full size.
    by_token = zip(*(values.unbind(1) for values in inputs), strict=True)
    for position, (now, is_token) in enumerate(zip(by_token, inside.unbind(1), strict=True)):
        output, states = step(now, is_token if position >= shortest else None, states)
        outputs.append(output)
    return torch.stack(outputs, dim=1), list(states)


def scan_tokens(
    step: Step, inputs: Sequence[Tensor], inside: Tensor | None, states: Sequence[Tensor], name: str
) -> tuple[Tensor, list[Tensor]]:
    """Return the outputs (B, T, size) of `step` for all tokens, and the states after the last token, in an export.

    `inside`: (B, T) False for padding, or None to read the padding as well. `name`: the step, for an InputError.
    """
    # PyTorch calls `scan` a prototype. It is imported here, so that training does not depend on it.
    from torch._higher_order_ops.scan import scan

    def body(carried: list[Tensor], now: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        output, new = step(now[: len(inputs)], None if inside is None else now[-1], carried)
        # A `scan` rejects results that share memory with each other or with an argument.
        return [state.clone() for state in new], output.clone()

    read = [*inputs, *([] if inside is None else [inside])]
    try:
        last, outputs = scan(body, list(states), [values.transpose(0, 1) for values in read])
    except Exception as error:  # third-party code may raise any exception
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        line = next((line for line in lines if not line.startswith(ABOUT_SCAN)), type(error).__name__)
        raise InputError(None, f"{name} fails ({line})", REMEDY) from error
    return outputs.transpose(0, 1), list(last)


def freeze(is_token: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> list[Tensor]:
    pairs = zip(new, old, strict=True)
    return [torch.where(is_token.view(-1, *[1] * (after.dim() - 1)), after, before) for after, before in pairs]


def number_spec(name: str, specs: Sequence[FieldSpec], key: str) -> NumberSpec:
    """Return the spec of a numeric field. Raises InputError, with the config key, if the data has none.

    >>> number_spec("at", [{"name": "shop", "kind": "bag", "size": 9, "combine": "max"}], "cell.gap")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: cell.gap=at: the data has no such field; name a numeric field (there is none)
    """
    numeric = {spec["name"]: spec for spec in number_specs(specs)}
    if name in numeric:
        return numeric[name]
    kinds = {spec["name"]: spec["kind"] for spec in specs}
    problem = f"is a field of kind {kinds[name]}" if name in kinds else "the data has no such field"
    remedy = f"name a numeric field ({', '.join(numeric) or 'there is none'})"
    raise InputError(f"{key}={name}", problem, remedy)


WRITE_STATES = 'set it to a list such as [State("hidden", (hidden_size,))], each with another name and a finite number'
WRITE_ROWS = (
    "compute each row alone: torch.where instead of if, tensors instead of .item(), no mean over the rows, "
    "nn.Dropout instead of F.dropout"
)


def check_cell(cell: RecurrentCell, input_size: int, widths: Sequence[int], where: str) -> None:
    """Raise InputError unless one step of `cell` does what the cell declares.

    A step on random tokens must have the declared shapes and the dtype of the tokens, must not change its arguments in
    place, and a row must have the same results alone and in a batch. No step is tried on the device `meta`. `widths`:
    channels of each field that the cell reads. `where`: config key and class of the cell, for the error text.
    """
    if not isinstance(getattr(cell, "size", None), int):
        raise InputError(where, "has no attribute size", "set it to the channels of an output")
    states: Any = getattr(cell, "states", None)
    is_list = isinstance(states, (list, tuple)) and len(states) > 0 and all(map(_is_state, states))
    if not is_list or len({state.name for state in states}) < len(states):
        raise InputError(where, f"has the attribute states {states!r}", WRITE_STATES)
    if torch.empty(0).is_meta:
        return
    cell.eval()
    generator = torch.Generator().manual_seed(0)
    # A random cell leaves the random numbers of the training as they are.
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        sizes = (input_size, *widths)
        first, second = ([torch.randn(ROWS, width, generator=generator) for width in sizes] for _ in range(2))
        # The rows are compared at the second token, whose states are states that the cell itself returned.
        before = _try_step(cell, first, initial_states(cell, first[0]), where)[1:]
        together = _try_step(cell, second, before, where)
        for row in range(ROWS):
            own = slice(row, row + 1)
            alone = _try_step(cell, [values[own] for values in second], [state[own] for state in before], where)
            for one, batch in zip(alone, together, strict=True):
                if not torch.allclose(one, batch[own], rtol=MAX_ROW_ERROR, atol=MAX_ROW_ERROR, equal_nan=True):
                    raise InputError(where, "step has other results for a row alone than in a batch", WRITE_ROWS)
    cell.train()


def _is_state(state: Any) -> bool:
    # A bundle stores the initial value as JSON, which has neither tensors nor infinite numbers.
    if not isinstance(state, State) or not isinstance(state.initial, (int, float)):
        return False
    return all(isinstance(size, int) and size > 0 for size in state.shape) and abs(state.initial) <= -LOWEST


def _try_step(cell: RecurrentCell, inputs: Sequence[Tensor], states: Sequence[Tensor], where: str) -> list[Tensor]:
    names, rows = [state.name for state in cell.states], len(inputs[0])
    given = [value.clone() for value in (*inputs, *states)]
    shapes = {"output": (rows, cell.size), **{f"state {state.name}": (rows, *state.shape) for state in cell.states}}
    expected = {name: (shape, inputs[0].dtype) for name, shape in shapes.items()}
    signature = ", ".join(("self", "inputs", "state", *cell.fields))
    remedy = f"write step({signature}), which returns (output, dict of states)"
    try:
        output, new = cell.step(inputs[0], dict(zip(names, states, strict=True)), *inputs[1:])
        results = {"output": output, **{f"state {name}": value for name, value in new.items()}}
        found = {name: (tuple(value.shape), value.dtype) for name, value in results.items()}
    except Exception as error:  # third-party code may raise any exception
        problem = f"step fails on {rows} tokens ({type(error).__name__}: {first_line(error)})"
        raise InputError(where, problem, remedy) from error
    if not all(map(torch.equal, (*inputs, *states), given)):
        raise InputError(where, "step changes an argument in place", "return a new tensor, as by + instead of +=")
    if found.keys() != expected.keys():
        raise InputError(where, f"step returns the {', '.join(found)}, not the {', '.join(expected)}", remedy)
    for name in expected:
        if found[name] != expected[name]:
            problem = f"step returns the {name} as {found[name]} for {rows} tokens"
            raise InputError(where, problem, f"return {expected[name]}, as its attributes say")
    return [results[name] for name in expected]
