"""Transfer of an optimizer and its state to a network whose structure was changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.errors import InputError
from seqclf.models.structure.axes import Axes, continued_moment

# dict name of a state in torch.optim → power. The power is 1 for a state that scales with the gradient, and 2 for a
# state that scales with the squared gradient.
POWERS = {
    **dict.fromkeys(("momentum_buffer", "exp_avg", "grad_avg", "exp_inf"), 1),
    **dict.fromkeys(("exp_avg_sq", "max_exp_avg_sq", "square_avg", "sum"), 2),
}


def carry_optimizer(
    optimizer: torch.optim.Optimizer, before: Mapping[str, nn.Parameter], network: nn.Module, axes: Mapping[str, Axes]
) -> None:
    """Make an optimizer of the old network train the changed network.

    `before`: dict name → weight of the old network. `network`: the changed network. `axes`: dict weight name → axes,
    for each weight of the changed network that continues an old weight.

    A weight that continues an old weight stays in the parameter group of the old weight. A weight that continues no old
    weight is added to the group with the most similar weight name. Groups with a weight of the same kind, a matrix or a
    vector, are preferred. The optimizer state of an unchanged weight is kept. The optimizer state of a resized weight
    is resized. A weight that continues no old weight starts without a state. Raises InputError if the optimizer does
    not train the old network, or if the optimizer keeps one state for all weights together.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise InputError(
            "optimizer", "LBFGS keeps one state for all weights", "choose another optimizer to change a model"
        )
    weights = dict(network.named_parameters())
    old_names = {id(weight): name for name, weight in before.items()}
    groups = [
        [old_names[id(weight)] for weight in group["params"] if id(weight) in old_names]
        for group in optimizer.param_groups
    ]
    if not any(groups):
        raise InputError("optimizer", "holds no weight of this network", "give the optimizer that trains it")
    known = {name for names in groups for name in names}
    for name, weight in weights.items():
        if name not in before:
            groups[_nearest(name, weight, groups, before)].append(name)
    order = {name: index for index, name in enumerate(weights)}
    for group, names in zip(optimizer.param_groups, groups, strict=True):
        # Sort the weights in the order of the network, so that the optimizer of a resumed run can load the state.
        ordered = sorted((name for name in names if name in weights), key=order.__getitem__)
        others = [weight for weight in group["params"] if id(weight) not in old_names]
        group["params"] = [*(weights[name] for name in ordered), *others]
        group.pop("param_names", None)  # names are optional, and those of the old weights would be wrong
    for name, old in before.items():
        if name in known and weights.get(name) is not old:
            state = optimizer.state.pop(old, None)
            continued = _continued_state(state, old, axes[name]) if state and name in axes else {}
            if continued:  # a frozen weight gets no entry, because an empty state would look damaged
                optimizer.state[weights[name]] = continued
    _start_missing_state(optimizer, old_names.keys())


def _start_missing_state(optimizer: torch.optim.Optimizer, old_ids: Collection[int]) -> None:
    """Create the state of new weights, if the optimizer creates states in its constructor (as Adagrad does)."""
    for group in optimizer.param_groups:
        new = [weight for weight in group["params"] if id(weight) not in old_ids and not optimizer.state.get(weight)]
        options = {name: value for name, value in group.items() if name != "params"}
        try:
            started = type(optimizer)([{"params": new, **options}]).state if new else {}  # type: ignore[call-arg]
        except TypeError:  # a third-party optimizer may need other constructor arguments
            started = {}
        optimizer.state.update(started)


def _nearest(name: str, weight: Tensor, groups: list[list[str]], before: Mapping[str, nn.Parameter]) -> int:
    """Return the index of the parameter group to which a new weight is added."""

    def likeness(index: int) -> tuple[bool, int]:
        alike = [other for other in groups[index] if other in before and (before[other].ndim > 1) == (weight.ndim > 1)]
        return bool(alike), max((_common(name, other) for other in alike or groups[index]), default=0)

    return max(range(len(groups)), key=likeness)


def _common(name: str, other: str) -> int:
    """Return the number of parts at the start of two dotted names that are the same in both names.

    >>> _common("encoder.layers.0.weight", "encoder.layers.1.weight")
    2
    """
    pairs = zip(name.split("."), other.split("."), strict=False)
    return sum(1 for _ in takewhile(lambda parts: parts[0] == parts[1], pairs))


def _continued_state(state: Mapping[str, Any], old: Tensor, axes: Axes) -> dict[str, Any]:
    """Return the optimizer state of a resized weight, or an empty dict if the state cannot be resized."""
    continued: dict[str, Any] = {}
    for name, value in state.items():
        if not isinstance(value, Tensor) or value.ndim == 0:
            continued[name] = value
        elif value.shape == old.shape and name in POWERS:
            continued[name] = continued_moment(value, axes, POWERS[name])
        else:
            return {}
    return continued
