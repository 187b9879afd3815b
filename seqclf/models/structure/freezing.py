"""Freezing of the weights of modules, which training then leaves as they are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from torch import nn

from seqclf.errors import InputError
from seqclf.models.ensemble import Ensemble
from seqclf.models.heads.recurrent_head import RecurrentHead
from seqclf.settings.similar_names import did_you_mean


def set_trainable(network: Any, modules: Sequence[str], trainable: bool, key: str) -> None:
    """Freeze or unfreeze (`trainable`) the weights of modules, in an ensemble those of all members.

    `modules`: dotted names, such as `embedding` or `encoder.forward_layers.0`; a network of heads has those of its
    recurrent head, too. A frozen weight gets no gradient, so an optimizer does not change it. Raises an InputError that
    begins with `key` if a module does not exist, or if its weights are already as requested.
    """
    for name in modules:
        weights = _weights(network, name, key)
        if all(weight.requires_grad == trainable for weight in weights):
            state = "is not frozen" if trainable else "has no weight that learns"
            raise InputError(f"{key}={name}", state, "remove it")
        for weight in weights:
            weight.requires_grad_(trainable)


def _weights(network: Any, name: str, key: str) -> list[nn.Parameter]:
    members = list(network.members) if isinstance(network, Ensemble) else [network]
    owners = [members, [head for head in network.modules() if isinstance(head, RecurrentHead)]]
    for parts in filter(None, owners):
        with suppress(AttributeError):
            found = [part.get_submodule(name) if name else part for part in parts]
            return [weight for module in found for weight in module.parameters()]
    modules = [each for parts in owners for part in parts[:1] for each in part.named_modules()]
    names = [known for known, module in modules if known and any(True for _ in module.parameters())]
    top = ", ".join(known for known in names if "." not in known)
    remedy = did_you_mean(name, names) or f"write one of {top}, or a part of one"
    raise InputError(f"{key}={name}", "no such module", remedy)


def frozen_weights(network: nn.Module) -> list[str]:
    """Return the names of the frozen weights of a network."""
    return [name for name, weight in network.named_parameters() if not weight.requires_grad]


def freeze_weights(network: nn.Module, names: Sequence[str]) -> None:
    """Freeze the weights in `names`, a list of weight names that `frozen_weights` returned."""
    weights = dict(network.named_parameters())
    for name in names:
        if name not in weights:
            raise InputError("frozen", f"{name} is no weight of the model")
        weights[name].requires_grad_(False)
