"""Running mean of the weights of a network in training, which is validated, saved and exported in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback, StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from seqclf.errors import InputError

TRAINED = "trained_weights"  # key of a checkpoint: the weights that are trained, beside their means in `state_dict`
EVERY = 4  # optimizer steps between two updates, because an update reads all weights
NORM_STATISTICS = ("running_mean", "running_var")  # buffers of the normalisation layers of PyTorch


class WeightAverage:
    """Exponential running mean of the trainable weights of a network and of its normalisation statistics.

    A module names its statistics, which are buffers, in the class attribute `averaged_buffers`. `decay`: fraction of
    the mean that a step keeps; less in the first steps. `means`: those of a checkpoint, None to start at the weights.
    While the network holds the means (`in_network`), `values` holds the trained weights, and else the means.

    >>> network = nn.Linear(1, 1, bias=False)
    >>> average = WeightAverage(network, decay=0.5)
    >>> nn.init.zeros_(average.values["weight"]), nn.init.constant_(network.weight.requires_grad_(False), 16.0)
    (tensor([[0.]]), Parameter containing:
    tensor([[16.]]))
    >>> average.update(network, step=10_000)
    >>> average.values["weight"]
    tensor([[15.]])
    """

    def __init__(self, network: nn.Module, decay: float, means: Mapping[str, Tensor] | None = None):
        self.decay = decay
        self.in_network = False
        self.values: dict[str, Tensor] = {}
        self.renew(network, means or {})

    def renew(self, network: nn.Module, means: Mapping[str, Tensor]) -> None:
        """Average the weights of `network` from now on. A weight that has no mean in `means` starts at its value.

        A weight with a mean stays in the average if it is frozen, so that a change of the structure moves no logit.
        """
        tensors = _tensors(network)
        names = dict.fromkeys([*averaged_names(network), *(name for name in means if name in tensors)])
        self.statistics = [name for name in names if not isinstance(tensors[name], nn.Parameter)]
        self.values = {name: means.get(name, tensors[name]).detach().to(tensors[name], copy=True) for name in names}

    @torch.no_grad()
    def update(self, network: nn.Module, step: int, over_ranks: Callable[[Tensor], Tensor] | None = None) -> None:
        """Move the means towards the weights after optimizer step `step`, if the step is a multiple of `EVERY`.

        `over_ranks`: function that returns the mean of a tensor over all ranks, for statistics of their own batches.
        """
        if step % EVERY:
            return
        tensors = _tensors(network)
        if over_ranks is not None:
            tensors |= {name: over_ranks(tensors[name].clone()) for name in self.statistics}
        decay = min(self.decay**EVERY, (1 + step) / (10 + step))
        for name, value in self.values.items():
            value.lerp_(tensors[name], 1 - decay)

    @torch.no_grad()
    def swap(self, network: nn.Module) -> None:
        """Exchange the weights of the network and `values`."""
        tensors = _tensors(network)
        held = {name: tensors[name].detach().clone() for name in self.values}
        for name, values in self.values.items():
            tensors[name].copy_(values)
        self.values, self.in_network = held, not self.in_network

    def separate(self, weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
        """Put the means into `weights`, the state of the network, and return the trained weights in their place."""
        values = {f"{prefix}{name}": tensor for name, tensor in self.values.items()}
        if self.in_network:
            return values
        trained = {name: weights[name] for name in values}
        weights |= values
        return trained


def averaged_names(network: nn.Module) -> list[str]:
    """Return the names of the weights and statistics of a network that are averaged. Only saved tensors are."""
    tensors, saved = _tensors(network), network.state_dict().keys()
    names = [name for name, weight in network.named_parameters(remove_duplicate=False) if weight.requires_grad]
    for path, module in network.named_modules(remove_duplicate=False):
        names += [f"{path}.{name}".lstrip(".") for name in _statistics(module)]
    return [name for name in names if name in saved and tensors[name].is_floating_point()]


def _statistics(module: nn.Module) -> Iterable[str]:
    is_norm = {*NORM_STATISTICS} <= dict(module.named_buffers(recurse=False)).keys()
    return NORM_STATISTICS if is_norm else getattr(module, "averaged_buffers", ())


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return dict(network.named_parameters(remove_duplicate=False)) | dict(network.named_buffers(remove_duplicate=False))


class AveragedWeights(Callback):
    """Averages the weights of a fit (`task.average`). Validations, checkpoints and the network then have the means."""

    def __init__(self, decay: float):
        self.decay = decay
        self.means: dict[str, Tensor] = {}  # of a checkpoint, until the fit starts

    def setup(self, trainer: Any, task: Any, stage: str) -> None:
        if stage != TrainerFn.FITTING:
            return
        task.average = None
        for callback in trainer.callbacks:
            if isinstance(callback, (WeightAveraging, StochasticWeightAveraging)):
                problem = f"{type(callback).__name__} averages weights that are averaged already"
                raise InputError("trainer.callbacks", problem, "remove it, or set optimizer.average=null")

    def on_load_checkpoint(self, trainer: Any, task: Any, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            if TRAINED not in checkpoint:
                problem = f"has no {TRAINED} to go on with"
                raise InputError("checkpoint", problem, "train anew, or set optimizer.average=null")
            weights = checkpoint["state_dict"]
            self.means = {name.removeprefix("model."): weights[name] for name in checkpoint[TRAINED]}

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        task.average, self.means = WeightAverage(task.model, self.decay, self.means), {}
        # Callbacks that write checkpoints run after the step, so that a checkpoint holds the means of its step.
        self.handle = trainer.optimizers[0].register_step_post_hook(partial(self._update, trainer, task))

    def _update(self, trainer: Any, task: Any, *_: Any) -> None:
        ranks = partial(trainer.strategy.reduce, reduce_op="mean") if trainer.world_size > 1 else None
        task.average.update(task.model, trainer.global_step + 1, ranks)

    def on_validation_start(self, trainer: Any, task: Any) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self._hold_means(task, True)

    def on_validation_end(self, trainer: Any, task: Any) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            self._hold_means(task, False)

    def on_fit_end(self, trainer: Any, task: Any) -> None:
        self.handle.remove()
        self._hold_means(task, True)

    def _hold_means(self, task: Any, held: bool) -> None:
        if task.average.in_network != held:
            task.average.swap(task.model)
