"""Changes of the structure of a network during training, with its optimizer: by a call, or by a schedule."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch import nn

from seqclf.config.build import Config, targets
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.models.change_network import (
    ChangedNetwork,
    change_network,
    changed_config,
    freeze_weights,
    frozen_weights,
    set_trainable,
)
from seqclf.models.ensemble import build_classifier
from seqclf.settings.train_settings import ModelChange, read_change, read_schedule
from seqclf.training.task import SequenceTask


class StructureChange(NamedTuple):
    """A change that was made, in words, True if no logit changed (but by rounding), and the weights afterwards."""

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
    Weights that the same call adds are not frozen. `task`: its `model` is replaced by a new network, which shares all
    weights of unchanged size. `optimizer`: that of the task, None outside of training. It keeps its state for these
    weights, and starts anew for the others. Checkpoints that are saved after the change contain the new structure.
    Raises InputError if the change is impossible; the task then stays unchanged::

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
        widened = [(name, widen) for name, widen in changed.widenings.items() if name in average.values]
        average.renew(task.model, average.values | {name: widen(average.values[name]) for name, widen in widened})
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

    A weight that both networks have keeps its state, and others start without one. New weights join the group of their
    kind, matrices or vectors.
    """
    require_changeable(optimizer)
    weights, old = dict(network.named_parameters()), {id(weight): name for name, weight in before.items()}
    groups = dict[str, int]()
    for index, group in enumerate(optimizer.param_groups):
        groups |= {old[id(weight)]: index for weight in group["params"] if id(weight) in old}
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
    """Describe a change of the config of a model.

    >>> describe_change({"layers": 1, "encoder": {}}, ModelChange(layers=2, freeze="embedding"))
    'layers 1 → 2, embedding frozen'
    """
    values = {**model, **model.get("encoder", {})}
    parts = [f"{name} {values[name]} → {value}" for name, value in change.of_model().items()]
    for names, state in ((change.freeze, "frozen"), (change.unfreeze, "no longer frozen")):
        parts += [f"{', '.join(names)} {state}"] if names else []
    return ", ".join(parts)


class StructureSchedule(Callback):
    """Changes the network of a `SequenceTask` before the first step of each scheduled epoch, and prints each change.

    `entries`: list of dicts `{epoch: N, KEY: VALUE}` as in the config key `structure` (see `seqclf.change_structure`).
    Epochs are numbered from 1. The callback works in any Trainer with a single device::

        schedule = StructureSchedule([{"epoch": 3, "layers": 2}])
        pl.Trainer(max_epochs=5, callbacks=[schedule]).fit(task, datamodule=batches)
    """

    def __init__(self, entries: Sequence[Config]):
        self.changes = read_schedule(entries)
        self.resizes = any(change.of_model() for _, change in self.changes)
        self.epoch = 0  # number of the last epoch whose changes were made

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.epoch = state_dict["epoch"]

    def check(self, task: SequenceTask) -> None:
        """Raise InputError if a scheduled change cannot be made: all are tried on the meta device."""
        model = copy.deepcopy(task.model).to("meta") if self.changes else None
        trial: Any = SimpleNamespace(model=model, hparams=dict(task.hparams), average=None)
        for key, change in self.changes:
            apply_change(trial, None, change, key, seed=0)

    def advance(self, task: SequenceTask, epoch: int) -> None:
        """Make all changes up to `epoch`, so that the task can load the weights of a checkpoint of that epoch."""
        for key, change in self.changes:
            if change.epoch <= epoch:
                apply_change(task, None, change, key, seed=0)
        self.epoch = epoch

    def setup(self, trainer: pl.Trainer, task: Any, stage: str) -> None:
        self.check_trainer(trainer)
        task.on_load_checkpoint = partial(_take_structure, task)  # a checkpoint may hold another structure

    def check_trainer(self, trainer: pl.Trainer) -> None:
        """Raise InputError if the trainer keeps copies of the weights, as several devices and averaging do."""
        if self.changes and not isinstance(trainer.strategy, SingleDeviceStrategy):
            remedy = "set trainer.devices=1 trainer.strategy=auto, or remove structure"
            raise InputError("structure", "changes a model on one device only", remedy)
        averages = (WeightAveraging, StochasticWeightAveraging)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, averages) and self.resizes:
                problem = f"{type(callback).__name__} of trainer.callbacks averages the weights of one structure"
                raise InputError("structure", problem, "remove it, or structure")

    def on_train_start(self, trainer: pl.Trainer, task: Any) -> None:
        if self.resizes:
            require_changeable(trainer.optimizers[0])

    def on_train_batch_start(self, trainer: Any, task: Any, batch: Any, batch_idx: int) -> None:
        if (epoch := trainer.current_epoch + 1) == self.epoch:
            return
        self.epoch = epoch
        for index, (key, change) in enumerate(self.changes):
            if change.epoch != epoch:
                continue
            # Each change has its own seed, which is the same in a resumed run.
            made = apply_change(task, trainer.optimizers[0], change, key, seed=(task.seed << 32) + index)
            function = "the same" if made.preserves else "another"
            size = f" ({made.weights:,} weights, {function} function)" if change.of_model() else ""
            console.print(f"epoch {epoch:>3}  {made.text}{size}", soft_wrap=True)


def _take_structure(task: SequenceTask, checkpoint: dict[str, Any]) -> None:
    """Replace the network of a task by a new one with the structure of a checkpoint, before its weights are loaded."""
    saved, held = checkpoint["hyper_parameters"], task.hparams
    # Build the network only if the checkpoint names the same classes, so that a checkpoint cannot run other code.
    if list(targets(saved["model"], "model")) == list(targets(held["model"], "model")):
        task.model = build_classifier(saved["model"], held["dataset"]["fields"], len(task.classes)).to(task.device)
        freeze_weights(task.model, saved["frozen"])
        held["model"], held["frozen"] = saved["model"], saved["frozen"]
