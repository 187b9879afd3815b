"""A network after a change of its config: its weights continue those of the old network as far as they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import psutil
import torch
from torch import nn

from seqclf.config.suggestions import did_you_mean
from seqclf.config.targets import Config, is_foreign, targets
from seqclf.data.field_spec import FieldSpec
from seqclf.errors import InputError
from seqclf.models.ensemble import Ensemble, build_classifier
from seqclf.models.structure.axes import Axes, continued_weight
from seqclf.models.structure.network_axes import continue_classifier, start_as_identity


class ChangedNetwork(NamedTuple):
    """A new network, and the axes of its weights that continue old ones.

    `preserves`: its logits are those of the old network, but for rounding.
    """

    network: Any
    axes: dict[str, Axes]
    preserves: bool


def change_network(
    network: Any, config: Config, fields: Sequence[FieldSpec], num_classes: int, seed: int
) -> ChangedNetwork:
    """Return the network of `config` with the weights of `network`, an earlier one of the same data.

    Weights that keep their size stay the same parameters, frozen or not. `seed`: of the new weights. The old network
    must not be used any more. A network without memory, on the device `meta`, becomes another one.
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
            continued = continue_classifier(before, after)
            start_as_identity(before.encoder, after.encoder)
            _hand_over(before, after, continued.axes)
            axes |= {f"{prefix}{name}": of_weight for name, of_weight in continued.axes.items()}
            preserves &= continued.preserves
    for module in changed.modules():
        if isinstance(module, nn.RNNBase):
            module.flatten_parameters()  # cuDNN wants the weights of a layer in one block of memory
    changed.train(network.training)
    return ChangedNetwork(changed, axes, preserves)


def require_memory(config: Config, fields: Sequence[FieldSpec], num_classes: int) -> None:
    """Raise InputError if the weights of a network and their gradients need more memory than there is.

    They are counted on a network without memory. One with code of another package, which may need its weights when it
    is made, is not counted.
    """
    if any(is_foreign(target) for _, target in targets(config, "model")):
        return
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = build_classifier(config, fields, num_classes)
    needed = 2 * sum(weight.numel() * weight.element_size() for weight in network.parameters())
    available = psutil.virtual_memory().total
    if needed > available:
        raise InputError(
            None,
            f"the weights and their gradients need {needed / 1e9:,.0f} GB, and there are {available / 1e9:,.0f} GB of "
            "memory",
            "choose a smaller size",
        )


@torch.no_grad()
def _hand_over(old: nn.Module, new: nn.Module, axes: Mapping[str, Axes]) -> None:
    """Give `new` the weights of `old`, those that keep their size as they are."""
    for name, initial in list(new.named_parameters()):
        if name not in axes:
            continue
        weight = old.get_parameter(name)
        if not is_kept(axes[name], weight):
            weight = nn.Parameter(continued_weight(weight, initial, axes[name]), requires_grad=weight.requires_grad)
        owner, _, leaf = name.rpartition(".")
        setattr(new.get_submodule(owner), leaf, weight)
    buffers = dict(old.named_buffers())
    for name, values in new.named_buffers():
        if name in buffers and buffers[name].shape == values.shape:
            values.copy_(buffers[name])


def is_kept(axes: Axes, weight: torch.Tensor) -> bool:
    """Return True if a weight stays as it is."""
    return all(axis.is_kept(size) for axis, size in zip(axes, weight.shape, strict=True))


def members(network: Any) -> Iterator[tuple[str, Any]]:
    """Yield each classifier of an ensemble, or the network itself, with the beginning of the names of its weights."""
    if isinstance(network, Ensemble):
        yield from ((f"members.{index}.", member) for index, member in enumerate(network.members))
    else:
        yield "", network


def set_trainable(network: Any, modules: Sequence[str], trainable: bool, key: str) -> None:
    """Freeze the weights of modules, or let them learn again. In an ensemble, those of every member.

    `modules`: dotted names in the network, such as `embedding` or `encoder.forward_layers.0`. A frozen weight has no
    gradient, so no optimizer changes it. Raises InputError, which begins with `key`, for a name without such weights.
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
    try:
        return network.get_submodule(name) if name else network
    except AttributeError:
        names = [known for known, module in network.named_modules() if known and any(True for _ in module.parameters())]
        top = ", ".join(known for known in names if "." not in known)
        hint = did_you_mean(name, names)
        raise InputError(f"{key}={name}", "no such module", hint or f"write one of {top}, or a part of one") from None


def frozen_weights(network: nn.Module) -> list[str]:
    """Return the names of the weights that do not learn."""
    return [name for name, weight in network.named_parameters() if not weight.requires_grad]


def freeze_weights(network: nn.Module, names: Sequence[str]) -> None:
    """Freeze weights by name, as `frozen_weights` lists them."""
    weights = dict(network.named_parameters())
    for name in names:
        if name not in weights:
            raise InputError("frozen", f"{name} is no weight of the model")
        weights[name].requires_grad_(False)
