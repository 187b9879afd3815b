"""Lightning module of a classifier with its model, loss, metrics and optimizer, which its checkpoint can rebuild."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import StochasticWeightAveraging, WeightAveraging
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from seqclf.batching.datamodule import Batch
from seqclf.batching.split_rows import SplitRows
from seqclf.config.documentation import default_settings
from seqclf.config.targets import Config, Trust, arguments_of, build, locate, targets
from seqclf.data.storage.dataset import DatasetDescription
from seqclf.data.storage.store import Split
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import EPOCH_METRICS, epoch_value
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.smoothed_choice import MAX_WINDOW, smoothed_value, window_length
from seqclf.models.ensemble import Ensemble, build_classifier
from seqclf.models.network import SequenceNetwork
from seqclf.models.structure.freezing import freeze_weights
from seqclf.system.state_validation import error_context
from seqclf.training.checkpoint import (
    DAMAGED,
    GRADIENTS,
    LOGGED,
    RECENT,
    TRAINED,
    check_trusted,
    check_weights,
    finish_progress,
    read_checkpoint,
    save_gradients,
    take_trained,
)
from seqclf.training.checks.check_targets import resolve_for_data, resolve_loss, resolve_model
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, EvaluationMetrics, epoch_scores
from seqclf.training.losses import build_loss, class_weights_of
from seqclf.training.schedule import elapsed_share, schedule_factor
from seqclf.training.weight_average import WeightAverage

# Name of the logged value for the best checkpoint and early stopping. The value is smoothed (see `smoothed_choice`).
MONITORED = "validation/monitor"
MAX_LOGGED_CLASSES = 50


class Prediction(NamedTuple):
    """Predictions for one batch: (B,) int64 row indices in the split, and (B, C) float32 logits and probabilities."""

    ids: Tensor
    logits: Tensor
    probabilities: Tensor


class Restored(NamedTuple):
    """Values that a fit takes from its checkpoint, beside the weights, by name.

    `means`: averaged weights. `gradients`: accumulated between two optimizer steps. `logged`: values that callbacks may
    monitor.
    """

    means: Mapping[str, Tensor] = {}
    gradients: Mapping[str, Tensor] = {}
    logged: Mapping[str, Tensor] = {}


def step_seed(seed: int, rank: int, epoch: int, batch: int) -> int:
    """Return the seed of the random numbers of a training step, such as those of dropout.

    It depends on nothing else, so a resumed run draws the same numbers as an uninterrupted one. The ranks differ in the
    lowest 32 bits, because PyTorch's generator on a CPU reads no others.

    >>> len({step_seed(0, rank, epoch=3, batch=7) % 2**32 for rank in range(1000)})
    1000
    """
    return ((seed + 1) * 0x9E3779B1 + rank * 0x85EBCA77 + (epoch << 24) + batch) % 2**63


class SequenceTask(pl.LightningModule):
    """Lightning module that trains a sequence classifier.

    `dataset`: description of the dataset (`Dataset.description()`). `model`, `loss`, `optimizer`: `_target_` dicts.
    `monitor`: validation metric that chooses the best epoch, None for the last step. `frozen`: names of the weights
    that are not trained. Omitted arguments get the default values from conf/. All are plain values in the checkpoint,
    which can be loaded with `weights_only=True`, without Hydra and without the data. With `optimizer.average`,
    validations, checkpoints and the fitted model have averaged weights. The module works in any Trainer::

        dataset = seqclf.load_data("train.parquet", label="label")
        task = seqclf.SequenceTask(dataset.description(), model=seqclf.load_config(["model=gru"])["model"])
        pl.Trainer(max_epochs=5).fit(task, datamodule=seqclf.SequenceDataModule(dataset.splits))
    """

    def __init__(
        self,
        dataset: DatasetDescription,
        model: Config | None = None,
        loss: Config | None = None,
        optimizer: Config | None = None,
        monitor: str | None = None,
        seed: int | None = None,
        frozen: Sequence[str] | None = None,
    ):
        super().__init__()
        if not isinstance(dataset, Mapping):
            raise InputError("dataset", f"is of type {type(dataset).__name__}", "give Dataset.description()")
        model, loss, optimizer = (
            _with_defaults(*group) for group in (("model", model), ("loss", loss), ("optimizer", optimizer))
        )
        model, self.model_text = resolve_for_data(resolve_model(model), dataset)
        loss = resolve_loss(loss)
        seed = default_settings("seed") if seed is None else seed
        frozen = list(frozen or ())
        # `save_hyperparameters` reads locals, so a checkpoint stores the resolved defaults.
        self.save_hyperparameters(logger=False)
        if monitor not in (None, *EPOCH_METRICS):
            raise InputError(f"monitor={monitor}", f"must be one of {', '.join(EPOCH_METRICS)}")
        self.classes: list[str] = dataset["classes"]
        self.monitor = monitor
        self.optimizer = optimizer
        self.seed = seed
        # Running mean of the weights, in a fit with `optimizer.average`. After the fit, the network holds the means.
        self.average: WeightAverage | None = None
        self.restored = Restored()  # of a checkpoint, until the fit starts
        self.trained_steps = 0  # number of optimizer steps of the checkpoint that the task was loaded from
        self.scheduled_steps: float | None = None  # steps of the learning rate schedule; None: all steps of the trainer
        self.step_loss = torch.tensor(0.0)  # mean loss of the last batch
        self.epoch_scores: dict[str, EpochScores] = {}  # dict split → latest scores
        self.batch_shape = (0, 0)  # number of rows and length of the longest row in the last batch
        self.skips_not_finite = False  # True: metrics leave out rows of skipped steps (see NotFiniteSteps)
        self.changes_structure = False  # True: a checkpoint may hold another network structure (see StructureSchedule)
        self.is_fitted = False  # True: the network has read the training rows (see `SequenceNetwork.fit_to`)
        self.frozen_outputs: Any = None  # what the network computed of the training rows (see `frozen_outputs`)
        # Dict number of optimizer steps → value of the monitored metric, of the last validations. A resumed run may
        # repeat a validation, whose value then replaces the earlier one.
        self.recent_values: dict[int, float] = {}
        self.model = build_classifier(model, dataset["fields"], len(self.classes))
        freeze_weights(self.model, frozen)
        self.loss = build_loss(loss, self.classes, dataset["class_counts"])
        self.train_metrics = EpochMetrics(len(self.classes))
        positive = dataset["positive"]
        self.evaluation_metrics = EvaluationMetrics(
            len(self.classes),
            ranked=monitor in RANKING_METRICS or len(self.classes) <= MAX_LOGGED_CLASSES,
            positive=None if positive is None else self.classes.index(positive),
        )

    def setup(self, stage: str) -> None:
        if stage == TrainerFn.FITTING:
            self._refuse_other_averages()
            # Lightning loads the values of a checkpoint after `setup`.
            self.recent_values, self.average, self.restored = {}, None, Restored()

    def _refuse_other_averages(self) -> None:
        for callback in self.trainer.callbacks if self.optimizer.get("average") else ():  # type: ignore[attr-defined]
            if isinstance(callback, (WeightAveraging, StochasticWeightAveraging)):
                problem = f"{type(callback).__name__} averages weights that are averaged already"
                raise InputError("trainer.callbacks", problem, "remove it, or set optimizer.average=null")

    def on_fit_start(self) -> None:
        self._fit_to_rows()
        self.model.forget_validation()
        if (decay := self.optimizer.get("average")) is not None:
            self.average = WeightAverage(self.model, decay, self.restored.means)

    def on_fit_end(self) -> None:
        self._hold_means(True)
        self.frozen_outputs = None

    def on_validation_start(self) -> None:
        if self.trainer.state.fn == TrainerFn.FITTING:
            self._hold_means(True)

    def on_validation_end(self) -> None:
        if self.trainer.state.fn == TrainerFn.FITTING:
            self._hold_means(False)

    def _hold_means(self, held: bool) -> None:
        if self.average is not None and self.average.in_network != held:
            self.average.swap(self.model)

    def optimizer_step(self, *arguments: Any, **options: Any) -> None:
        super().optimizer_step(*arguments, **options)
        # Callbacks that write checkpoints run later, so that a checkpoint holds the means of its step.
        if self.average is not None:
            ranks = partial(self.trainer.strategy.reduce, reduce_op="mean") if self.trainer.world_size > 1 else None
            self.average.update(self.model, self.global_step + 1, ranks)

    def _fit_to_rows(self) -> None:
        splits = getattr(self.trainer.datamodule, "splits", None)  # type: ignore[attr-defined]
        if isinstance(splits, Mapping) and "train" in splits:
            self.fit_to(splits["train"])
        elif not self.is_fitted and any(map(_reads_training_rows, self.model.modules())):
            problem = "has no rows that the network can read before the first step"
            raise InputError("trainer.fit", problem, "give it a SequenceDataModule")

    def fit_to(self, train: Split) -> None:
        """Let the network read the training rows once (see `SequenceNetwork.fit_to`).

        A Trainer calls this method at the start. Call it before the first step of a training loop of your own.
        """
        weights = class_weights_of(self.loss, len(self.classes))
        rows = SplitRows(train, self.hparams["dataset"].get("digest", ""), weights, self.device)
        if not self.is_fitted:
            self.model.fit_to(rows)
            self.is_fitted = True
            if self._trainer is not None and self.trainer.world_size > 1:  # rounding may differ between machines
                for buffer in self.model.buffers():
                    buffer.copy_(self.trainer.strategy.broadcast(buffer))
        self.frozen_outputs = self.model.frozen_outputs(rows)

    def forward(self, batch: Batch) -> Tensor:
        """Return logits of shape (B, C), or (members, B, C) for an ensemble in training."""
        return self.model(batch.fields, batch.lengths, batch.host_lengths)

    def logits_of(self, batch: Batch) -> Tensor:
        """Return logits (B, C) float32 for evaluation. Raises InputError if the network returns another shape."""
        logits, shape = self(batch), (len(batch.host_lengths), len(self.classes))
        returned = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if returned != shape:
            target = self.hparams["model"]["_target_"]
            problem = f"returns {returned} for {shape[0]} sequences of {shape[1]} classes"
            raise InputError(f"model._target_={target}", problem, f"return logits {shape}")
        return logits.float()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self.batch_shape = _shape(batch)
        seed = step_seed(self.seed, self.global_rank, self.current_epoch, batch_idx)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 1 ms without a GPU
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def on_validation_batch_start(self, batch: Batch, *_: int) -> None:
        self.batch_shape = _shape(batch)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        fields = batch.fields
        if self.frozen_outputs is not None:
            outputs = self.frozen_outputs.batch(batch.ids, next(iter(fields.values())).shape[1])
            fields = fields | {name: values.to(self.device) for name, values in outputs.items()}
        logits, loss, total = self.model.training_loss(
            fields, batch.lengths, batch.host_lengths, batch.labels, self.loss
        )
        self.step_loss = loss.detach()
        counts = bool(batch.weight)  # 0 for a rank without rows at this step
        if counts and not (self.skips_not_finite and not torch.isfinite(loss)):  # waits for the device only if skipping
            self.train_metrics.update(logits, batch.labels, loss)
        return total * batch.weight

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._sum_counts(checkpoint["state_dict"])
        if self.average is not None:
            checkpoint[TRAINED] = self.average.separate(checkpoint["state_dict"], "model.")
        save_gradients(checkpoint, self, self.trainer)
        checkpoint[LOGGED] = {name: value.detach().clone() for name, value in self.trainer.callback_metrics.items()}
        checkpoint[RECENT] = dict(self.recent_values)

    def _sum_counts(self, weights: dict[str, Tensor]) -> None:
        if self.trainer.world_size > 1:
            for name, count in self.train_metrics.state_dict(prefix="train_metrics.").items():
                weights[name] = self.trainer.strategy.reduce(count.clone(), reduce_op="sum")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        finish_progress(checkpoint)
        self.is_fitted = True
        if self.global_rank > 0:  # rank 0 continues with the sums over all ranks, other ranks start at 0
            counts = self.train_metrics.state_dict(prefix="train_metrics.")
            checkpoint["state_dict"] |= {name: torch.zeros_like(count) for name, count in counts.items()}
        means: dict[str, Tensor] = {}
        if self._trainer is not None and self.trainer.state.fn == TrainerFn.FITTING:
            means = take_trained(checkpoint, "model.", self.optimizer.get("average") is not None)
        if self.changes_structure:
            self._take_structure(checkpoint["hyper_parameters"])
        self.restored = Restored(means, checkpoint.get(GRADIENTS, {}), checkpoint[LOGGED])
        self.recent_values = dict(checkpoint[RECENT])

    def _take_structure(self, saved: Mapping[str, Any]) -> None:
        """Replace the network by a new network with the structure in `saved`, the hyperparameters of a checkpoint."""
        model, frozen = saved["model"], saved["frozen"]
        # Build the network only if the checkpoint names the same classes, so that a checkpoint cannot run other code.
        if list(targets(model, "model")) == list(targets(self.hparams["model"], "model")):
            self.model = build_classifier(model, self.hparams["dataset"]["fields"], len(self.classes)).to(self.device)
            freeze_weights(self.model, frozen)
            self.hparams["model"], self.hparams["frozen"] = model, frozen

    def on_train_start(self) -> None:
        for name, gradient in self.restored.gradients.items():
            weight = self.get_parameter(name)
            weight.grad = gradient.to(weight)
        # Callbacks that monitor a validation metric get the values of the last validation, as in an uninterrupted run.
        values = {name: value.to(self.device) for name, value in self.restored.logged.items()}
        self.trainer.callback_metrics.update(values)
        self.restored = Restored()

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        members = self.model.independent_parts()
        if len(members) == 1 or not gradient_clip_val or gradient_clip_algorithm == "value":
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)
            return
        # Members are clipped separately: a large gradient of one member must not shrink the steps of other members.
        for member in members:
            nn.utils.clip_grad_norm_(member.parameters(), gradient_clip_val)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        trainer: Any = self.trainer
        # Lightning divides each loss by the full number, also for the fewer batches before the end of an epoch.
        every = trainer.accumulate_grad_batches
        if summed := trainer.fit_loop.epoch_loop.batch_progress.current.ready % every:
            for weight in self.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(every / summed)
        # `self.log` is not used, because it takes a millisecond at every step, also at steps that are not logged.
        step, every = self.global_step + 1, trainer.log_every_n_steps
        # The first step is logged too, because a short run may have no other logged step.
        if not trainer.loggers or not every or (step > 1 and step % every):
            return
        gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
        values = {
            "train/step_loss": float(self.step_loss),
            "train/gradient_norm": float(nn.utils.get_total_norm(gradients)),  # before clipping
            "lr": optimizer.param_groups[0]["lr"],
        }
        for logger in trainer.loggers:
            logger.log_metrics(values, step)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self.logits_of(batch)
        if batch.weight:
            self.evaluation_metrics.update(logits, batch.labels, self.loss(logits, batch.labels))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: Batch, batch_idx: int) -> Prediction:
        logits = self.logits_of(batch)
        return Prediction(torch.from_numpy(batch.ids), logits, logits.softmax(dim=-1))

    def on_train_epoch_end(self) -> None:
        self._finish_epoch("train", self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.sanity_checking:
            self.evaluation_metrics.reset()
            return
        scores = self._finish_epoch("validation", self.evaluation_metrics)
        if self.monitor is not None:
            self.log(MONITORED, self._smoothed(scores, self.monitor), logger=False)

    def _smoothed(self, scores: Mapping[str, float], monitor: str) -> float:
        """An undefined metric is 0 and enters no mean: a mean of others would count as its own."""
        value = epoch_value(scores, monitor)
        if monitor not in scores or not math.isfinite(value):
            return value
        values = {**self.recent_values, self.global_step: value}
        self.recent_values = dict(list(values.items())[-MAX_WINDOW:])
        window = window_length(self.trainer.max_epochs, self.trainer.check_val_every_n_epoch)
        return smoothed_value(list(self.recent_values.values()), window)

    def on_test_epoch_end(self) -> None:
        self._finish_epoch("test", self.evaluation_metrics)

    def _finish_epoch(self, split: str, metrics: EpochMetrics) -> dict[str, float]:
        result = epoch_scores(metrics)
        if not math.isfinite(result.scores["loss"]):
            raise InputError(
                None,
                f"the {split} loss of epoch {self.current_epoch + 1} is not finite",
                f"lower optimizer.lr (now {self.optimizer['lr']}) or trainer.gradient_clip_val",
            )
        self.epoch_scores[split] = result
        self._log_scores(split, result)
        return result.scores

    def _log_scores(self, split: str, result: EpochScores) -> None:
        """Log the scores for the loggers and for callbacks that monitor a score such as `validation/recall`."""
        values = named_scores(split, result)
        if split != "train" and len(self.classes) <= MAX_LOGGED_CLASSES:
            by_class = zip(self.classes, result.recall_by_class.tolist(), result.support.tolist(), strict=True)
            values |= {f"{split}/recall/{label}": recall for label, recall, rows in by_class if rows}
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        # `trainer.validate` and `trainer.test` return the logged values. During a fit, Lightning would log a step
        # number that is one too low, so the loggers are called here.
        self.log_dict(values, logger=not fitting)
        if fitting:
            for logger in self.trainer.loggers:
                logger.log_metrics({**values, "epoch": self.current_epoch}, self.global_step)
                logger.save()

    def configure_optimizers(self) -> Any:
        # In mixed precision Lightning does not clip gradients for an optimizer that unscales gradients itself. A fused
        # optimizer may unscale gradients itself.
        fused = self.trainer.precision not in ("16-mixed", "bf16-mixed")
        steps = self.trainer.estimated_stepping_batches if self.scheduled_steps is None else self.scheduled_steps
        optimizer, scheduler = self.make_optimizer(steps, fused, elapsed_share(self.trainer))
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def make_optimizer(
        self, steps: float, fused: bool = True, elapsed: Callable[[], float] | None = None
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        """Return the optimizer and its learning rate schedule (see `schedule_factor`), or raise InputError.

        `steps`: number of optimizer steps of the training. `fused`: False overrides `optimizer.fused`, for mixed
        precision. `elapsed`: function that returns the elapsed fraction of the time limit, None without a time limit.
        """
        settings = dict(self.optimizer)
        taken = arguments_of(locate(settings["_target_"]))
        if not fused or "fused" not in taken.names:
            settings.pop("fused", None)
        schedule = settings.pop("schedule")
        settings.pop("average", None)
        groups: list[dict[str, Any]] = [
            {"params": [weight for weight in self.model.parameters() if weight.ndim > 1]},
            {"params": [weight for weight in self.model.parameters() if weight.ndim <= 1]},
        ]
        if taken.accepts("weight_decay"):
            # Biases, norms and other vectors have no weight decay, because decay does not regularise them.
            for group, decay in zip(groups, (settings.pop("weight_decay", 0.0), 0.0), strict=True):
                group["weight_decay"] = decay
        elif "weight_decay" in settings:
            raise InputError("optimizer.weight_decay", f"no such argument of {taken.owner}", "remove it")
        factor = schedule_factor(steps, elapsed, **schedule)
        optimizer = build(settings, torch.optim.Optimizer, params=groups)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _with_defaults(name: str, settings: Config | None) -> Config:
    if settings is None:
        return default_settings(name)
    if not isinstance(settings, Mapping):
        raise InputError(
            f"{name}={settings!r}",
            f'must be a mapping of settings, such as load_config(["{name}={settings}"])["{name}"]',
        )
    return dict(settings) if "_target_" in settings else {**default_settings(name), **settings}


def named_scores(split: str, result: EpochScores) -> dict[str, float]:
    """Return a dict `split/metric` → score, in the order of `EPOCH_METRICS` and without undefined scores."""
    scores = result.scores
    return {f"{split}/{name}": scores[name] for name in EPOCH_METRICS if name in scores}


def _shape(batch: Batch) -> tuple[int, int]:
    return len(batch.host_lengths), int(batch.host_lengths.max())


def _reads_training_rows(part: nn.Module) -> bool:
    """Return True if a network sets buffers by training rows. An ensemble asks its members to."""
    own = getattr(type(part), "fit_to", SequenceNetwork.fit_to)
    return own not in (SequenceNetwork.fit_to, Ensemble.fit_to)


def load_task(path: Any, trust: Trust = ()) -> SequenceTask:
    """Load a task from its checkpoint, on the CPU and in evaluation mode.

    `trust`: names of third-party packages that the model and loss of the checkpoint may use, or True for any package.
    Raises InputError if the file is not a checkpoint, or if its settings and weights do not match.
    """
    state = read_checkpoint(path)
    hyper, weights = state["hyper_parameters"], state["state_dict"]
    check_trusted(hyper, path, trust)
    with error_context(f"checkpoint={path}", DAMAGED):
        try:
            task = SequenceTask(**hyper)
            check_weights(weights, task.state_dict())
            task.load_state_dict(weights)
        except InputError:
            raise
        except Exception as error:  # settings of another version may fail in any way
            raise InputError(None, f"its model cannot be built ({type(error).__name__}: {first_line(error)})") from None
    task.trained_steps = state["global_step"]
    task.is_fitted = True
    return task.eval()
