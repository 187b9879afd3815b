"""Base class of recurrent cells. A cell reads one token at a time, and `CellEncoder` runs it over sequences."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.data.field_spec import FieldSpec, NumberSpec
from seqclf.errors import InputError, first_line
from seqclf.models.onnx.scan import scan_tokens
from seqclf.models.running_state import LOWEST, State

ROWS = 3  # sequences in the trial step of a cell
MAX_ROW_ERROR = 1e-4  # largest accepted difference between a row alone and in a batch, relative to values above 1


class RecurrentCell(nn.Module):
    """Base class of recurrent cells: one token of each of B sequences and the states → an output and the new states.

    The constructor gets `input_size`, the number of channels of a token, and `hidden_size` if it takes this argument.
    It sets `size`, the number of channels of an output, and `states`, a list of `State`: the name, the shape per
    sequence and the initial value of each state. A state may be a vector, a matrix (`State("memory", (8, 8))`) or one
    number (`State("count", ())`).

    A cell may read fields of the data beside the embedded token, such as the time since the previous token. `fields`
    lists the names of these fields, in the class or in an instance. The fields must be numeric. The method `step` gets
    one more argument for each field. If the constructor takes `field_specs`, it gets the specs of all fields of the
    data.

    The method `step` is plain PyTorch without loops over sequences. `CellEncoder` runs a cell over sequences of
    different lengths, in layers and directions, and exports each as one ONNX `Scan`.

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
        """Return the outputs (B, `size`) of B tokens, and a dict of the new states.

        `inputs`: (B, `input_size`) float, one token of each sequence. `state`: dict name → state (B, *shape) before the
        token. `fields`: the encoded values (B, width) float of the same tokens, one tensor for each name in the
        attribute `fields`. The returned dict has the same names and shapes as `state`. A row of the results must depend
        only on the same row of the arguments. The arguments must not be changed in place.
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

    `tokens`: (B, T, D), whose padding may be NaN. `inside`: (B, T) False for padding. `states`: list of the states
    (B, *shape) before the first token. `fields`: list of the values (B, T, width) of the fields that the cell reads,
    whose padding may be NaN. `shortest`: a number of tokens that each sequence has at least. `keeps_states`: False if
    the caller needs no states. The export then lets the states read padding, which saves time.
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


def freeze(is_token: Tensor, new: Sequence[Tensor], old: Sequence[Tensor]) -> list[Tensor]:
    """Return the new states of the sequences that have a token, and the old states of the others.

    `is_token`: (B,) bool. `new`, `old`: lists of states (B, *shape).
    """
    return [
        torch.where(is_token.view(-1, *[1] * (after.dim() - 1)), after, before)
        for after, before in zip(new, old, strict=True)
    ]


def number_spec(name: str, specs: Sequence[FieldSpec], key: str) -> NumberSpec:
    """Return the spec of a numeric field. Raises InputError if the data has no such field, or a field of another kind.

    `name`: name of the field. `specs`: specs of all fields of the data. `key`: config key that names the field, for the
    error text.

    >>> number_spec("at", [{"name": "shop", "kind": "bag", "size": 9, "combine": "max"}], "cell.gap")
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: cell.gap=at: the data has no such field; name a numeric field (there is none)
    """
    numeric = [spec["name"] for spec in specs if spec["kind"] == "number"]
    for spec in specs:
        if spec["name"] == name and spec["kind"] == "number":
            return spec
    kinds = {spec["name"]: spec["kind"] for spec in specs}
    problem = f"is a field of kind {kinds[name]}" if name in kinds else "the data has no such field"
    remedy = f"name a numeric field ({', '.join(numeric) or 'there is none'})"
    raise InputError(f"{key}={name}", problem, remedy)


WRITE_STEP = "return (output, {name: new state, …}) from step"
WRITE_STATES = 'set it to a list such as [State("hidden", (hidden_size,))]'
WRITE_ROWS = "compute each row alone: torch.where instead of if, tensors instead of .item(), no mean over the rows"


def check_fields(cell: RecurrentCell, where: str) -> None:
    """Raise InputError unless `cell.fields` is a list of names. `where`: config key and class of the cell."""
    fields = cell.fields
    if not isinstance(fields, (list, tuple)) or not all(isinstance(name, str) for name in fields):
        problem = f"has the fields {fields!r}, which is not a list of names"
        raise InputError(where, problem, 'set it to a list such as ["gap"]')


def check_cell(cell: RecurrentCell, input_size: int, widths: Sequence[int], where: str) -> None:
    """Raise InputError unless one step of `cell` does what the cell declares.

    The step is tried on zeros and on random tokens, in evaluation mode. Outputs and states must have the declared
    shapes and the dtype of the tokens. A row must have the same results alone and in a batch. The rows are not compared
    on the device `meta`, whose tensors have no values. The arguments must not be changed in place.

    `widths`: number of channels of each field that the cell reads. `where`: config key and class of the cell, for the
    error text.
    """
    if not isinstance(getattr(cell, "size", None), int):
        raise InputError(where, "has no attribute size", "set it to the channels of an output")
    _check_states(getattr(cell, "states", None), where)
    _check_signature(cell, where)
    names = [state.name for state in cell.states]
    # Tensors of the inference mode do not count changes in place. A random cell leaves the random numbers of the
    # training as they are.
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        tokens = torch.zeros(ROWS, input_size)
        before = dict(zip(names, initial_states(cell, tokens), strict=True))
        fields = [torch.zeros(ROWS, width) for width in widths]
        given = {"its inputs": tokens, **{f"the state {name}": value for name, value in before.items()}}
        given |= {f"the field {name}": values for name, values in zip(cell.fields, fields, strict=True)}
        versions = {label: value._version for label, value in given.items()}
        result = _try_step(cell, tokens, before, fields, where)
        _check_result(cell, result, tokens.dtype, where)
        for label, version in versions.items():
            if given[label]._version != version:
                raise InputError(where, f"step changes {label} in place", "return a new tensor, as by + instead of +=")
        if not tokens.is_meta:
            _check_rows(cell, input_size, widths, where)


def _check_states(states: Any, where: str) -> None:
    if not isinstance(states, (list, tuple)) or not states or not all(isinstance(state, State) for state in states):
        raise InputError(where, "has no attribute states", WRITE_STATES)
    names = [state.name for state in states]
    if len(set(names)) < len(names):
        raise InputError(where, f"has two states of one name: {', '.join(map(str, names))}", "give each its own name")
    for name, shape, initial in states:
        if not isinstance(name, str) or not name:
            raise InputError(where, f"has a state with the name {name!r}", WRITE_STATES)
        if not isinstance(shape, (list, tuple)) or not all(isinstance(size, int) and size > 0 for size in shape):
            problem = f"has the state {name} of the shape {shape!r}, which is not a tuple of integers from 1"
            raise InputError(where, problem, f'write State("{name}", (hidden_size,)), or () for one number')
        if not isinstance(initial, (int, float)) or not abs(initial) <= -LOWEST:
            # A bundle stores the initial value as JSON, which has neither tensors nor infinite numbers.
            value = f"{initial:g}" if isinstance(initial, (int, float)) else f"a {type(initial).__name__}"
            problem = f"has the state {name} that starts at {value}, which is not a finite number"
            remedy = f'write a number, such as State("{name}", {tuple(shape)}, -1e30) for -inf'
            raise InputError(where, problem, remedy)


def _check_signature(cell: RecurrentCell, where: str) -> None:
    """Raise InputError unless `step` takes the tokens, the states and one argument for each field."""
    if type(cell).step is RecurrentCell.step:
        raise InputError(where, "has no method step", "write step(self, inputs, state), not forward")
    taken = inspect.signature(cell.step)
    try:
        taken.bind(None, None, *cell.fields)
    except TypeError:
        expected = ", ".join(("self", "inputs", "state", *cell.fields))
        problem = f"step takes {taken}, and fields has {', '.join(cell.fields) or 'no name'}"
        remedy = f"write step({expected}), or list the fields that it takes in fields"
        raise InputError(where, problem, remedy) from None


def _check_rows(cell: RecurrentCell, input_size: int, widths: Sequence[int], where: str) -> None:
    """Raise InputError unless a row of a batch has the same results as the row alone.

    The rows are the second tokens of random sequences, so that the states are states that the cell itself returned.
    """
    generator = torch.Generator().manual_seed(0)  # the random numbers of the training stay as they are
    names = [state.name for state in cell.states]

    def draw(width: int) -> Tensor:
        return torch.randn(ROWS, width, generator=generator)

    first, tokens = draw(input_size), draw(input_size)
    first_fields, fields = ([draw(width) for width in widths] for _ in range(2))
    start = dict(zip(names, initial_states(cell, first), strict=True))
    before = {name: value.clone() for name, value in _try_step(cell, first, start, first_fields, where)[1].items()}

    def run(rows: slice) -> list[Tensor]:
        state = {name: value[rows].clone() for name, value in before.items()}
        output, after = _try_step(cell, tokens[rows].clone(), state, [values[rows].clone() for values in fields], where)
        return [output.clone(), *(after[name].clone() for name in names)]

    everything = slice(None)
    together = run(everything)
    if _row_error(run(everything), together, everything) > MAX_ROW_ERROR:
        remedy = "use nn.Dropout, or F.dropout with training=self.training, and keep what a step changes in states"
        raise InputError(where, "step returns other results for the same arguments in evaluation mode", remedy)
    for row in range(ROWS):
        rows = slice(row, row + 1)
        alone = run(rows)
        for name, value, batch in zip(("output", *names), alone, together, strict=True):
            if value.shape != batch[rows].shape:
                label = name if name == "output" else f"state {name}"
                problem = f"step returns the {label} as {_describe(value)} for 1 token"
                raise InputError(where, problem, f"return {tuple(batch[rows].shape)}, as by squeeze(dim) for squeeze()")
        error = _row_error(alone, together, rows)
        if error > MAX_ROW_ERROR:
            problem = f"step mixes the rows of a batch: a row changes by up to {error:.2g} with the other rows"
            raise InputError(where, problem, WRITE_ROWS)


def _row_error(some: Sequence[Tensor], others: Sequence[Tensor], rows: slice) -> float:
    """Return the largest difference between results and the `rows` of other results, relative to values above 1."""
    largest = 0.0
    for one, other in zip(some, (result[rows] for result in others), strict=True):
        same = (one == other) | (one.isnan() & other.isnan())
        difference = torch.where(same, 0.0, (one - other).abs() / other.abs().clamp(min=1.0))
        largest = max(largest, float(difference.nan_to_num(math.inf, math.inf).max()))
    return largest


def _try_step(
    cell: RecurrentCell, tokens: Tensor, states: Mapping[str, Tensor], fields: Sequence[Tensor], where: str
) -> Any:
    modes = {module: module.training for module in cell.modules()}
    try:
        with torch.no_grad():
            return cell.eval().step(tokens, dict(states), *fields)
    except InputError:
        raise
    except Exception as error:  # third-party code may raise any exception
        shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in states.items())
        problem = f"step fails on inputs {tuple(tokens.shape)} and states {shapes}"
        if fields:
            shapes = ", ".join(f"{name} {tuple(value.shape)}" for name, value in zip(cell.fields, fields, strict=True))
            problem += f" and fields {shapes}"
        raise InputError(where, f"{problem} ({type(error).__name__}: {first_line(error)})") from error
    finally:
        for module, training in modes.items():
            module.training = training


def _check_result(cell: RecurrentCell, result: Any, dtype: torch.dtype, where: str) -> None:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping)):
        raise InputError(where, f"step returns {_describe(result)}", WRITE_STEP)
    output, new = result
    kind = str(dtype).removeprefix("torch.")
    if not isinstance(output, Tensor) or output.shape != (ROWS, cell.size) or output.dtype != dtype:
        problem = f"step returns the output {_describe(output)} for {ROWS} tokens"
        raise InputError(where, problem, f"return a {kind} tensor {(ROWS, cell.size)}, as size says")
    names = {state.name for state in cell.states}
    if new.keys() != names:
        problem = f"step returns the states {', '.join(sorted(map(str, new))) or 'of an empty dict'}"
        raise InputError(where, problem, f"return {', '.join(sorted(names))}, as states says")
    for state in cell.states:
        value, shape = new[state.name], (ROWS, *state.shape)
        if not isinstance(value, Tensor) or value.shape != shape or value.dtype != dtype:
            problem = f"step returns the state {state.name} as {_describe(value)} for {ROWS} tokens"
            raise InputError(where, problem, f"return a {kind} tensor {shape}, as states says")


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor {tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, tuple):
        return f"a tuple of {', '.join(type(part).__name__ for part in value) or 'nothing'}"
    return f"a {type(value).__name__}"
