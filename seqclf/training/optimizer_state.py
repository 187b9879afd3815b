"""State of an optimizer from a checkpoint, compared with the state that the optimizer itself would make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.errors import InputError


def check_optimizer_state(optimizer: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> None:
    """Raise InputError unless an optimizer that took the state of a checkpoint can go on with it.

    `fresh`: another one with the same settings and weights, which has taken no state. It makes steps on other weights.
    Each optimizer keeps a state of another form, and some, as Adafactor, one that depends on the form of the weight.
    So the state of a weight is compared with that of a trial step on zeros of its shape.
    """
    if not all(isinstance(weight, Tensor) for weight in optimizer.state) or not _has_numbers(optimizer, fresh):
        raise InputError("optimizer_states", "is of another optimizer")
    expected: dict[tuple[int, torch.Size], Mapping[str, Any]] = {}
    for index, group in enumerate(optimizer.param_groups):
        for weight in group["params"]:
            if weight not in optimizer.state:  # frozen, or without a gradient so far
                continue
            form = index, weight.shape
            if form not in expected:
                expected[form] = _state_after_a_step(fresh, *form)
            _check_state(optimizer.state[weight], expected[form])


def _has_numbers(optimizer: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> bool:
    """Return True if every setting that is a number in the groups of the fresh optimizer still is one.

    Switches are left out: `fused` is off in mixed precision, which a fresh optimizer does not know of.
    """
    for group, fresh_group in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        numbers = [name for name, value in fresh_group.items() if type(value) in (int, float)]
        if not all(isinstance(group.get(name), (int, float, Tensor)) for name in numbers):
            return False
    return True


def _state_after_a_step(fresh: torch.optim.Optimizer, index: int, shape: torch.Size) -> Mapping[str, Any]:
    """Return the state of a weight of the group `index` after a step. Empty, if the optimizer cannot make the step."""
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.zeros(shape)
    groups, fresh.param_groups = fresh.param_groups, [{**fresh.param_groups[index], "params": [weight]}]
    fresh.state.clear()
    try:
        fresh.step()
    except Exception:  # one of another package may need a closure
        return {}
    finally:
        fresh.param_groups = groups
    return fresh.state.pop(weight, {})


def _check_state(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise InputError unless the state of a weight has the parts, and their sizes, of the expected one."""
    for name, value in expected.items():
        if name not in state:
            raise InputError("optimizer_states", f"lacks {name} of a weight")
        # A scalar may be a number or a tensor, by the version of PyTorch.
        is_number = isinstance(state[name], (int, float)) and isinstance(value, Tensor) and not value.ndim
        if isinstance(value, Tensor) and not is_number and getattr(state[name], "shape", None) != value.shape:
            raise InputError("optimizer_states", f"{name} does not have the size of its weight")
