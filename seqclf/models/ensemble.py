"""Ensemble that averages the probabilities of several classifiers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.config.build import build, locate_subclass
from seqclf.data.field_spec import FieldSpec, static_specs
from seqclf.errors import InputError
from seqclf.models.network import Fields, HostLengths, Loss, SequenceNetwork, TrainingLoss, vote

RUN_SETTINGS = ("members",)  # keys of the block `model` that no network takes


class Ensemble(SequenceNetwork):
    """Ensemble of classifiers of one architecture with different initial weights (Lakshminarayanan et al. 2017).

    Each member learns from its own errors, and `vote` averages the members' probabilities to logits (B, C).
    """

    def __init__(self, members: Iterable[SequenceNetwork]):
        super().__init__()
        networks = list(members)
        self.members: Any = nn.ModuleList(networks)
        self.shortening = networks[0].shortening

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths) -> Tensor:
        return vote(torch.stack([member(fields, lengths, host_lengths) for member in self.members]))

    def embedding_layers(self) -> dict[str, nn.Module]:
        of_members = [member.embedding_layers() for member in self.members]
        return {f"{name} {number}": each[name] for number, each in enumerate(of_members, start=1) for name in each}

    def training_loss(
        self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, labels: Tensor, loss: Loss
    ) -> TrainingLoss:
        """Return the sum of the members' losses, so that each member trains independently. The logits are the vote."""
        parts = [member.training_loss(fields, lengths, host_lengths, labels, loss) for member in self.members]
        logits = vote(torch.stack([part.logits.detach() for part in parts]))
        return TrainingLoss(logits, loss(logits, labels), torch.stack([part.total for part in parts]).sum())


def networks_of(network: SequenceNetwork) -> list[SequenceNetwork]:
    """Return the networks that are fitted to rows: the members of an `Ensemble`, or the network itself."""
    return list(network.members) if isinstance(network, Ensemble) else [network]


def reads_static(target: str) -> bool:
    """Return True if the network class `target` of a config reads static fields."""
    network: Any = locate_subclass(target, SequenceNetwork, "model._target_")
    return bool(network.reads_static)


# Names of other columns of predictions and scores, and of other outputs of streams
TAKEN = {"id", "row", "split", "label", "group", "group_name", "fold", "length", "truncated", "alert", "error"}
TAKEN |= {"logits", "embedding", "lengths", "prediction", "unknown", "far", "tokens", "parents", "halted"}
TAKEN |= {"weight", "cost", "position", "time"}
NO_STATIC = ("reads no static fields", "set reads_static = True in the class, or data.static={}")  # problem, remedy


def build_classifier(model: Mapping[str, Any], fields: Sequence[FieldSpec], num_classes: int) -> Any:
    """Build the network of a `_target_` dict, or an ensemble of networks if its key `members` is above 1.

    A class with a `config_class` has its members inside.
    """
    target = model["_target_"]
    is_inside = hasattr(locate_subclass(target, SequenceNetwork, "model._target_"), "config_class")
    if static_specs(fields) and not reads_static(target):
        raise InputError(f"model._target_={target}", *NO_STATIC)
    design = {key: value for key, value in model.items() if is_inside or key not in RUN_SETTINGS}
    # Members differ only in their random initial weights.
    networks = [
        build(design, SequenceNetwork, "model._target_", fields=fields, num_classes=num_classes)
        for _ in range(1 if is_inside else model["members"])
    ]
    if any(map(nn.parameter.is_lazy, networks[0].parameters())):
        problem = "has lazy modules, which a checkpoint cannot hold"
        raise InputError(f"model._target_={target}", problem, "give their sizes")
    check_outputs(networks[0], fields)
    return networks[0] if len(networks) == 1 else Ensemble(networks)


def check_members(network: type[SequenceNetwork], members: int) -> None:
    """Raise InputError if a network with extra outputs has more than one member: members would have other ones."""
    names = ", ".join(network.extra_outputs)
    if names and members != 1:
        raise InputError(f"model.members={members}", f"only one network can return {names}", "set model.members=1")


def check_outputs(network: SequenceNetwork, fields: Sequence[FieldSpec]) -> None:
    """Raise InputError if an extra output has the name of a field, or of a column of predictions or scores."""
    names = {field["name"] for field in fields} | TAKEN
    listed = list(network.extra_outputs)
    taken = [name for name in listed if name.casefold() in names or name.startswith("probability")]
    if taken := [*taken, *(name for name in listed if not name or listed.count(name) > 1)]:
        where = f"{type(network).__module__}.{type(network).__qualname__}"
        problem = f"has an extra output named '{taken[0]}': a field, a column of predictions, or twice the same"
        raise InputError(where, problem, "rename it in extra_outputs")
