"""Change of the structure of a task's network while it trains, with its optimizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from seqclf.config.targets import Config
from seqclf.errors import InputError
from seqclf.models.structure.carry_optimizer import carry_optimizer
from seqclf.models.structure.change_network import change_network, frozen_weights, require_memory, set_trainable
from seqclf.models.structure.options import ModelChange, changed_config, read_change
from seqclf.training.module import SequenceTask


class StructureChange(NamedTuple):
    """A change that was made. `text`: it in a few words. `preserves`: the logits stay as they were, but for rounding.

    `weights`: number of weights of the network now.
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
    """Change the network of a task between two steps of its training.

    `changes`: new values of keys of `model`, such as `layers=2`, `hidden_size=192` or `pooling="mean+max"`. `freeze`,
    `unfreeze`: dotted names of modules, such as `embedding`; what a change adds at the same time is not frozen. Added
    layers start as the identity, and more units are copies of those there are, so that the network computes the same
    function. A new cell, another pooling and removed layers change it.

    `task.model` is a new network, which shares all weights that keep their size. `optimizer`: the one that trains it,
    which goes on with the state of the weights. The task's checkpoints hold the new structure. Raises InputError for a
    change that cannot be made, before anything is changed::

        change = seqclf.change_structure(task, optimizer, layers=2, freeze="embedding")
        print(change.text)  # layers 1 → 2, embedding frozen
    """
    change = read_change(ModelChange, {**changes, "freeze": freeze, "unfreeze": unfreeze}, "change_structure")
    seed = int(torch.randint(2**62, ()))
    return apply_change(task, optimizer, change, "change_structure", seed)


def apply_change(
    task: SequenceTask, optimizer: torch.optim.Optimizer | None, change: ModelChange, key: str, seed: int
) -> StructureChange:
    """Make a checked change. `key`: where it stands, for errors. `seed`: of new weights."""
    before = dict(task.model.named_parameters())
    model: Config = task.hparams["model"]
    changes = change.of_model()
    config = changed_config(model, changes, key) if changes else model
    states = {name: weight.requires_grad for name, weight in before.items()}
    try:
        _set_frozen(task.model, change, key)
        preserves = True
        if changes:
            dataset = task.hparams["dataset"]
            fields, classes = dataset["fields"], len(dataset["classes"])
            try:
                require_memory(config, fields, classes)
                changed = change_network(task.model, config, fields, classes, seed)
            except InputError as error:  # of a constructor, which does not know the key
                raise error.within(key) from None
            if not any(weight.requires_grad for weight in changed.network.parameters()):
                raise InputError(key, *NOTHING_LEARNS)
            if optimizer is not None:
                carry_optimizer(optimizer, before, changed.network, changed.axes)
            task.model, preserves = changed.network, changed.preserves
        elif not any(weight.requires_grad for weight in before.values()):
            raise InputError(key, *NOTHING_LEARNS)
    except InputError:
        for name, weight in before.items():
            weight.requires_grad_(states[name])
        raise
    task.hparams["model"] = config
    task.hparams["frozen"] = frozen_weights(task.model)
    for weight in task.model.parameters():
        weight.grad = None
    return StructureChange(
        describe_change(model, change), preserves, sum(weight.numel() for weight in task.model.parameters())
    )


NOTHING_LEARNS = ("leaves no weight that learns", "freeze fewer modules")


def _set_frozen(network: Any, change: ModelChange, key: str) -> None:
    set_trainable(network, change.unfreeze, True, f"{key}.unfreeze")
    set_trainable(network, change.freeze, False, f"{key}.freeze")


def describe_change(model: Config, change: ModelChange) -> str:
    """Return a change of a model's config in a few words.

    >>> describe_change({"layers": 1, "encoder": {}}, ModelChange(layers=2, freeze="embedding"))
    'layers 1 → 2, embedding frozen'
    """
    encoder = model.get("encoder")
    values = {**model, **encoder} if isinstance(encoder, dict) else model
    parts = [f"{name} {_shown(values[name])} → {_shown(value)}" for name, value in change.of_model().items()]
    parts += [f"{', '.join(names)} {state}" for names, state in _states(change) if names]
    return ", ".join(parts)


def _states(change: ModelChange) -> list[tuple[Sequence[str], str]]:
    return [(change.freeze, "frozen"), (change.unfreeze, "no longer frozen")]


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
