"""Changes of the structure of a network during training, including the state of its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from seqclf.config.targets import Config
from seqclf.errors import InputError
from seqclf.models.ensemble import build_classifier
from seqclf.models.structure.carry_optimizer import carry_optimizer
from seqclf.models.structure.change_network import (
    ChangedNetwork,
    change_network,
    frozen_weights,
    set_trainable,
)
from seqclf.models.structure.options import ModelChange, changed_config, read_change
from seqclf.training.module import SequenceTask
from seqclf.training.weight_average import WeightAverage, averaged_names


class StructureChange(NamedTuple):
    """Description of a change that was made to a network.

    `text`: the change in words. `preserves`: True if the logits changed only by rounding errors. `weights`: number of
    weights of the network after the change.
    """

    text: str
    preserves: bool
    weights: int


def change_structure(
    task: SequenceTask,
    optimizer: torch.optim.Optimizer | None = None,
    *,
    freeze: str | Sequence[str] = (),
    unfreeze: str | Sequence[str] = (),
    **changes: Any,
) -> StructureChange:
    """Change the network of a task between two optimizer steps.

    `changes`: new values of `model` settings, such as `layers=2`, `hidden_size=192` or `pooling="mean+max"`. `freeze`,
    `unfreeze`: dotted names of modules, such as `embedding`. Weights that the same call adds are not frozen. Added
    layers start as the identity, and added units start as copies of old units, so the network still computes the same
    function. A new cell, a new pooling or fewer layers change the function that the network computes.

    `task`: the task in training. Its `model` is replaced by a new network, which shares all weights of unchanged size
    with the old network. `optimizer`: the optimizer of the task, None outside of training. The optimizer keeps its
    state for the weights. Checkpoints that are saved after the change contain the new structure. Raises InputError if
    the change is impossible; the task then stays unchanged::

        change = seqclf.change_structure(task, optimizer, layers=2, freeze="embedding")
        print(change.text)  # layers 1 → 2, embedding frozen
    """
    change = read_change(ModelChange, {**changes, "freeze": freeze, "unfreeze": unfreeze}, "change_structure")
    seed = int(torch.randint(2**62, ()))
    return apply_change(task, optimizer, change, "change_structure", seed)


def apply_change(
    task: SequenceTask, optimizer: torch.optim.Optimizer | None, change: ModelChange, key: str, seed: int
) -> StructureChange:
    """Apply a validated change to the network of a task.

    `key`: config key at the start of error messages. `seed`: random seed of the new weights.
    """
    before = dict(task.model.named_parameters())
    model: Config = task.hparams["model"]
    changes = change.of_model()
    config = changed_config(model, changes, key) if changes else model
    states = {name: weight.requires_grad for name, weight in before.items()}
    means: Any = _network_of_means(task) if changes else None
    changed = ChangedNetwork(task.model, {}, True)
    try:
        set_trainable(task.model, change.unfreeze, True, f"{key}.unfreeze")
        set_trainable(task.model, change.freeze, False, f"{key}.freeze")
        if changes:
            changed = _changed_network(task, task.model, config, key, seed)
        if not any(weight.requires_grad for weight in changed.network.parameters()):
            raise InputError(key, "leaves no weight that learns", "freeze fewer modules")
        if changes and optimizer is not None:
            carry_optimizer(optimizer, before, changed.network, changed.axes)
    except InputError:
        for name, weight in before.items():
            weight.requires_grad_(states[name])
        raise
    task.model = changed.network
    task.hparams["model"] = config
    task.hparams["frozen"] = frozen_weights(task.model)
    if task.average is not None:
        if means is not None:  # the same seed, so that both networks get the same new weights
            means = _changed_network(task, means, config, key, seed).network
        _carry_means(task.average, task.model, means)
    for weight in task.model.parameters():
        weight.grad = None
    weights = sum(weight.numel() for weight in task.model.parameters())
    return StructureChange(describe_change(model, change), changed.preserves, weights)


def _changed_network(task: SequenceTask, network: Any, config: Config, key: str, seed: int) -> ChangedNetwork:
    dataset = task.hparams["dataset"]
    fields, classes = dataset["fields"], len(dataset["classes"])
    try:
        return change_network(network, config, fields, classes, seed)
    except InputError as error:  # a constructor does not know the config key, so the key is added to its error
        raise error.within(key) from None


def _network_of_means(task: SequenceTask) -> Any:
    """Return a copy of the network of a task with averaged weights, None for a task that averages none."""
    if task.average is None:
        return None
    dataset, weight = task.hparams["dataset"], next(task.model.parameters())
    # A deep copy would also copy the hooks of a debugger.
    with torch.random.fork_rng(devices=[]):
        network = build_classifier(task.hparams["model"], dataset["fields"], len(dataset["classes"]))
    network.to(weight).load_state_dict(task.model.state_dict() | task.average.values)
    return network


def _carry_means(average: WeightAverage, network: Any, means: Any) -> None:
    """Continue the means of a changed network. `means`: changed network of the means, None for an unchanged shape."""
    names = {*average.values, *averaged_names(network)}
    changed = average.values if means is None else means.state_dict()
    average.renew(network, {name: tensor for name, tensor in changed.items() if name in names})


def describe_change(model: Config, change: ModelChange) -> str:
    """Return a short description of a change to the config of a model.

    >>> describe_change({"layers": 1, "encoder": {}}, ModelChange(layers=2, freeze="embedding"))
    'layers 1 → 2, embedding frozen'
    """
    encoder = model.get("encoder")
    values = {**model, **encoder} if isinstance(encoder, dict) else model
    parts = [f"{name} {_shown(values[name])} → {_shown(value)}" for name, value in change.of_model().items()]
    for names, state in ((change.freeze, "frozen"), (change.unfreeze, "no longer frozen")):
        parts += [f"{', '.join(names)} {state}"] if names else []
    return ", ".join(parts)


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
