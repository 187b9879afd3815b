"""Changes of the structure of a network during training, including the state of its optimizer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import nn

from seqclf.config.build import Config
from seqclf.errors import InputError
from seqclf.models.change_network import ChangedNetwork, change_network, changed_config, frozen_weights, set_trainable
from seqclf.settings.training import ModelChange, read_change
from seqclf.training.task import SequenceTask


class StructureChange(NamedTuple):
    """Description of a change that was made to a network, in words, and its number of weights afterwards.

    `preserves`: True if the logits changed only by rounding errors.
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

    `changes`: new values of the `model` settings `layers`, `hidden_size` and `dropout` of a recurrent network, such as
    `layers=2`. Added layers start as the identity and added units as copies of old ones, so the network still computes
    the same function; fewer layers change it. `freeze`, `unfreeze`: dotted names of modules, such as `embedding`.
    Weights that the same call adds are not frozen.

    `task`: its `model` is replaced by a new network, which shares all weights of unchanged size. `optimizer`: that of
    the task, None outside of training. It keeps its state for these weights, and starts anew for the others.
    Checkpoints that are saved after the change contain the new structure. Raises InputError if the change is
    impossible; the task then stays unchanged::

        change = seqclf.change_structure(task, optimizer, layers=2, freeze="embedding")
        print(change.text)  # layers 1 → 2, embedding frozen
    """
    change = read_change(ModelChange, {**changes, "freeze": freeze, "unfreeze": unfreeze}, "change_structure")
    seed = int(torch.randint(2**62, ()))
    return apply_change(task, optimizer, change, "change_structure", seed)


def apply_change(
    task: SequenceTask, optimizer: torch.optim.Optimizer | None, change: ModelChange, key: str, seed: int
) -> StructureChange:
    """Apply a validated change to the network of a task. `key`: config key at the start of error messages."""
    before = dict(task.model.named_parameters())
    model: Config = task.hparams["model"]
    changes = change.of_model()
    config = changed_config(model, changes, key) if changes else model
    trainable = {name: weight.requires_grad for name, weight in before.items()}
    changed = ChangedNetwork(task.model, {}, True)
    try:
        set_trainable(task.model, change.unfreeze, True, f"{key}.unfreeze")
        set_trainable(task.model, change.freeze, False, f"{key}.freeze")
        if changes:
            dataset = task.hparams["dataset"]
            changed = change_network(task.model, config, dataset["fields"], len(dataset["classes"]), seed)
        if not any(weight.requires_grad for weight in changed.network.parameters()):
            raise InputError(key, "leaves no weight that learns", "freeze fewer modules")
        if changes and optimizer is not None:
            carry_optimizer(optimizer, before, changed.network)
    except InputError:
        for name, weight in before.items():
            weight.requires_grad_(trainable[name])
        raise
    task.model = changed.network
    task.hparams["model"] = config
    task.hparams["frozen"] = frozen_weights(task.model)
    if (average := task.average) is not None:
        # The means are divided among copies as the weights are, so the averaged network computes the same function too.
        means = average.values | {
            name: widen(average.values[name]) for name, widen in changed.widenings.items() if name in average.values
        }
        average.renew(task.model, means)
    for weight in task.model.parameters():
        weight.grad = None
    weights = sum(weight.numel() for weight in task.model.parameters())
    return StructureChange(describe_change(model, change), changed.preserves, weights)


def require_changeable(optimizer: torch.optim.Optimizer) -> None:
    """Raise InputError for an optimizer whose state of a weight cannot start anew during training."""
    if isinstance(optimizer, (torch.optim.LBFGS, torch.optim.Adagrad)):
        name = type(optimizer).__name__
        raise InputError("optimizer", f"{name} cannot change its weights", "choose another optimizer, such as adamw")


def carry_optimizer(optimizer: torch.optim.Optimizer, before: Mapping[str, nn.Parameter], network: nn.Module) -> None:
    """Make an optimizer of the old network, whose weights are `before`, train the changed network, or raise InputError.

    A weight that both networks have keeps its state. A widened weight takes the place of the old one, and starts
    without a state. New weights join the group of their kind, matrices or vectors (see `SequenceTask.make_optimizer`).
    """
    require_changeable(optimizer)
    weights, old = dict(network.named_parameters()), {id(weight): name for name, weight in before.items()}
    groups = {
        old[id(weight)]: index
        for index, group in enumerate(optimizer.param_groups)
        for weight in group["params"]
        if id(weight) in old
    }
    if not groups:
        raise InputError("optimizer", "holds no weight of this network", "give the optimizer that trains it")
    of_kind = {before[name].ndim > 1: index for name, index in groups.items()}
    groups |= {name: of_kind.get(weight.ndim > 1, 0) for name, weight in weights.items() if name not in before}
    for index, group in enumerate(optimizer.param_groups):
        others = [weight for weight in group["params"] if id(weight) not in old]
        # In the order of the network, so that the optimizer of a resumed run can load the state.
        group["params"] = [*(weight for name, weight in weights.items() if groups.get(name) == index), *others]
        group.pop("param_names", None)  # names are optional, and those of the old weights would be wrong
    for name, weight in before.items():
        if weights.get(name) is not weight:
            optimizer.state.pop(weight, None)


def describe_change(model: Config, change: ModelChange) -> str:
    """Return a short description of a change to the config of a model.

    >>> describe_change({"layers": 1, "encoder": {}}, ModelChange(layers=2, freeze="embedding"))
    'layers 1 → 2, embedding frozen'
    """
    values = {**model, **model.get("encoder", {})}
    parts = [f"{name} {values[name]} → {value}" for name, value in change.of_model().items()]
    for names, state in ((change.freeze, "frozen"), (change.unfreeze, "no longer frozen")):
        parts += [f"{', '.join(names)} {state}"] if names else []
    return ", ".join(parts)
