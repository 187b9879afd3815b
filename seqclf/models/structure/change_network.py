"""Construction of a changed network, whose weights are computed from the weights of the old network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import torch
from torch import nn

from seqclf.config.hints import did_you_mean
from seqclf.config.targets import Config
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.ensemble import Ensemble, build_classifier
from seqclf.models.heads.network import HeadsClassifier
from seqclf.models.heads.recurrent_head import RecurrentHead
from seqclf.models.structure.axes import Axes, continued_weight
from seqclf.models.structure.network_axes import continue_classifier, continue_heads, start_as_identity


class ChangedNetwork(NamedTuple):
    """A network after a change of its model config.

    `axes`: dict weight name → axes, for each weight that continues an old weight (see `Axis`). `preserves`: True if the
    changed network computes the same logits as the old network, except for rounding errors.
    """

    network: Any
    axes: dict[str, Axes]
    preserves: bool


def change_network(
    network: Any, config: Config, fields: Sequence[FieldSpec], num_classes: int, seed: int
) -> ChangedNetwork:
    """Build the network of a new config, with weights that continue the weights of the old network.

    `network`: the old network, which must read the same fields. The caller must not use the old network afterwards,
    because the new network takes over its unchanged weights as the same parameters. `config`: the new model config.
    `seed`: random seed for the new weights. The new network is on the same device as the old network.
    """
    weight = next(network.parameters())
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        with torch.device("meta" if weight.is_meta else "cpu"):
            changed = build_classifier(config, fields, num_classes)
        changed.to(dtype=weight.dtype, device=weight.device)
        axes: dict[str, Axes] = {}
        preserves = True
        for (prefix, before), (_, after) in zip(members(network), members(changed), strict=True):
            if isinstance(before, HeadsClassifier):
                continued = continue_heads(before, after)
            else:
                continued = continue_classifier(before, after)
                start_as_identity(before.encoder, after.encoder)
            _hand_over(before, after, continued.axes)
            axes |= {f"{prefix}{name}": of_weight for name, of_weight in continued.axes.items()}
            preserves &= continued.preserves
    for module in changed.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN needs all weights of a layer in one block of memory
    changed.train(network.training)
    return ChangedNetwork(changed, axes, preserves)


@torch.no_grad()
def _hand_over(old: nn.Module, new: nn.Module, axes: Mapping[str, Axes]) -> None:
    """Set the weights and buffers of `new` to values from `old`.

    A weight whose axes are all unchanged is not copied: `new` gets the parameter of `old`.
    """
    for name, _ in list(new.named_parameters()):
        if name not in axes:
            continue
        weight = old.get_parameter(name)
        if not is_kept(axes[name], weight):
            weight = nn.Parameter(continued_weight(weight, axes[name]), requires_grad=weight.requires_grad)
        owner, _, leaf = name.rpartition(".")
        setattr(new.get_submodule(owner), leaf, weight)
    buffers = dict(old.named_buffers())
    for name, values in new.named_buffers():
        if name in axes:
            values.copy_(continued_weight(buffers[name], axes[name]))
        elif name in buffers and buffers[name].shape == values.shape:
            values.copy_(buffers[name])


def is_kept(axes: Axes, weight: torch.Tensor) -> bool:
    """Return True if no axis of a weight is changed."""
    return all(axis.is_kept(size) for axis, size in zip(axes, weight.shape, strict=True))


def members(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield a prefix and a classifier for each member of an ensemble, or for the network itself.

    The prefix is the start of the classifier's weight names in `network`.
    """
    if isinstance(network, Ensemble):
        yield from ((f"members.{index}.", member) for index, member in enumerate(network.members))
    else:
        yield "", network


def set_trainable(network: Any, modules: Sequence[str], trainable: bool, key: str) -> None:
    """Freeze or unfreeze the weights of modules. In an ensemble, the modules of all members are frozen or unfrozen.

    `modules`: dotted names of modules, such as `embedding` or `encoder.forward_layers.0`. A network of heads has those
    of its recurrent head, too. `trainable`: False to freeze, True to unfreeze. A frozen weight gets no gradient, so an
    optimizer does not change the weight. Raises an InputError that begins with `key` if a module does not exist, or if
    its weights are already frozen or unfrozen as requested.
    """
    for name in modules:
        found = False
        for _, member in members(network):
            for weight in _module(member, name, key).parameters():
                found |= weight.requires_grad != trainable
                weight.requires_grad_(trainable)
                weight.grad = None
        if not found:
            state = "is not frozen" if trainable else "has no weight that learns"
            raise InputError(f"{key}={name}", state, "remove it")


def _module(network: nn.Module, name: str, key: str) -> nn.Module:
    heads = network.heads if isinstance(network, HeadsClassifier) else ()
    parts = [network, *(head for head in heads if isinstance(head, RecurrentHead))]
    for part in parts:
        with suppress(AttributeError):
            return part.get_submodule(name) if name else part
    modules = [each for part in parts for each in part.named_modules()]
    names = [known for known, module in modules if known and any(True for _ in module.parameters())]
    top = ", ".join(known for known in names if "." not in known)
    hint = did_you_mean(name, names)
    raise InputError(f"{key}={name}", "no such module", hint or f"write one of {top}, or a part of one")


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
