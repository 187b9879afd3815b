"""Modules and parameters of a network that PyTorch does not see, so that no checkpoint holds their weights.

`nn.Module` registers what an attribute holds itself, and not what a list, tuple or dict in it holds. Such a layer is
neither trained nor stored nor moved to another device, and a network that is rebuilt draws its weights anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from seqclf.errors import InputError

REMEDY = "put modules into torch.nn.ModuleList or ModuleDict, parameters into ParameterList or ParameterDict"


def unregistered(network: nn.Module) -> list[str]:
    """Return the names of the modules and parameters that only plain containers hold.

    >>> network = nn.Module()
    >>> network.layers = [nn.Linear(2, 2), {"last": nn.Linear(2, 2)}]
    >>> unregistered(network)
    ['layers[0]', "layers[1]['last']"]
    """
    seen = {id(part) for part in (*network.modules(), *network.parameters())}
    waiting = [
        (f"{path}.{name}".lstrip("."), value)
        for path, module in network.named_modules()
        for name, value in vars(module).items()
    ]
    found = []
    while waiting:
        name, value = waiting.pop(0)
        if id(value) in seen:
            continue
        if isinstance(value, (nn.Module, nn.Parameter)):
            found.append(name)
        elif isinstance(value, Mapping):
            waiting += [(f"{name}[{key!r}]", part) for key, part in value.items()]
        elif isinstance(value, (list, tuple, set)):
            waiting += [(f"{name}[{index}]", part) for index, part in enumerate(value)]
        else:
            continue
        seen.add(id(value))
    return found


def check_registered(network: Any, key: str) -> None:
    """Raise InputError, which begins with `key`, if a checkpoint of `network` would miss weights."""
    if names := unregistered(network):
        raise InputError(key, f"keeps {_listed(names)} in a plain container, which no checkpoint holds", REMEDY)


def missing_phrase(network: nn.Module) -> str:
    """Return a phrase that names the weights of a trained network that its checkpoint misses, as far as they show."""
    names = unregistered(network)
    return f"its checkpoint misses {_listed(names)}" if names else "its checkpoint misses weights or other state"


def _listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
