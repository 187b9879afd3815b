"""Search for layers and parameters that PyTorch does not register, and that checkpoints therefore lack.

`nn.Module` registers modules and parameters that are its attributes, but it does not look into lists, tuples or dicts.
An unregistered layer is not trained, not saved in checkpoints and not moved to another device. When the network is
built again from a checkpoint, an unregistered layer gets new random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from seqclf.errors import InputError

REMEDY = "put modules into torch.nn.ModuleList or ModuleDict, parameters into ParameterList or ParameterDict"


def unregistered(network: nn.Module) -> list[str]:
    """Return the names of modules and parameters that `network` holds only in plain lists, tuples, sets or dicts.

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
    """Raise InputError if a checkpoint of `network` would lack weights. `key`: config key at the start of the error."""
    if names := unregistered(network):
        raise InputError(key, f"keeps {_listed(names)} in a plain container, which no checkpoint holds", REMEDY)


def missing_phrase(network: nn.Module) -> str:
    """Return a phrase about the weights that the checkpoint of `network` lacks.

    The phrase names the weights if they can be found.
    """
    names = unregistered(network)
    return f"its checkpoint misses {_listed(names)}" if names else "its checkpoint misses weights or other state"


def _listed(names: list[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
