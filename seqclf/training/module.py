"""Lightning module of a classifier: model, loss, metrics and optimizer, rebuilt from its checkpoint alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from seqclf.batching.datamodule import Batch
from seqclf.config.defaults import default_settings
from seqclf.config.targets import Config, Trust, arguments_of, build, is_foreign, locate, targets
from seqclf.data.storage.dataset import DatasetDescription
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import EPOCH_METRICS, epoch_value
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.models.ensemble import build_classifier
from seqclf.models.network import as_network
from seqclf.models.structure.change_network import freeze_weights
from seqclf.system.state_validation import error_context
from seqclf.training.check_targets import resolve_loss, resolve_model
from seqclf.training.checkpoint import (
    GRADIENTS,
    LOGGED,
    check_size,
    check_trusted,
    check_weights,
    finish_progress,
    load_gradients,
    read_checkpoint,
    save_gradients,
)
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, EvaluationMetrics
from seqclf.training.gradient_clipping import clip_norm
from seqclf.training.losses import build_loss
from seqclf.training.missing_weights import check_registered
from seqclf.training.schedule import elapsed_share, schedule_factor
from seqclf.training.step_memory import StepMemory

MONITORED = "validation/monitor"  # logged value that the best checkpoint and early stopping follow
MAX_LOGGED_CLASSES = 50


class Prediction(NamedTuple):
    """Predictions of one batch, as `trainer.predict` returns them.

    `ids`: (B,) int64, row indices in the split. `logits` and `probabilities`: (B, C) float32.
    """

    ids: Tensor
    logits: Tensor
    probabilities: Tensor


class SequenceTask(pl.LightningModule):
    """Trains a classifier of sequences.

    `dataset`: `Dataset.description()`. `model`, `loss`, `optimizer`: `_target_` dicts. `monitor`: the validation metric
    that chooses the best epoch. `frozen`: names of weights of the network that do not learn. What is left out has the
    value of conf/. All are plain values and travel in the checkpoint, which therefore loads with `weights_only=True`
    and needs neither Hydra nor the data. In any Trainer::

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
        model, loss = resolve_model(model), resolve_loss(loss)
        monitor = default_settings("monitor") if monitor is None else monitor
        seed = default_settings("seed") if seed is None else seed
        frozen = list(frozen or ())
        # It reads the variables of these names, so that a checkpoint holds the defaults of now and not None.
        self.save_hyperparameters(logger=False)
        if monitor not in EPOCH_METRICS:
            raise InputError(f"monitor={monitor}", f"must be one of {', '.join(EPOCH_METRICS)}")
        self.classes: list[str] = dataset["classes"]
        self.monitor = monitor
        self.optimizer = optimizer
        self.seed = seed
        self.trained_steps = 0  # optimizer steps in the checkpoint that the task was loaded from
        self.last_logged_step = 0
        self.learning_rate = 0.0  # of the last optimizer step
        self.step_loss = torch.tensor(0.0)  # mean loss of the last batch
        self.gradient_norm = torch.tensor(0.0)  # before clipping, at the last logged step
        self.positive: str | None = dataset["positive"]
        self.epoch_scores: dict[str, EpochScores] = {}  # by split, the last ones
        self.batch_shape = (0, 0)  # rows and longest length of the last batch
        self.skips_not_finite = False  # True: the rows of a step that is left out do not count (see NotFiniteSteps)
        self.changes_structure = False  # True: its network in a checkpoint may be another one (see StructureSchedule)
        self.gradients: dict[str, Tensor] = {}  # accumulated, from a checkpoint between two optimizer steps
        self.logged_values: dict[str, Tensor] = {}  # what callbacks may monitor, from a checkpoint
        self.model = build_classifier(model, dataset["fields"], len(self.classes))
        freeze_weights(self.model, frozen)
        self.loss = build_loss(loss, self.classes, dataset["class_counts"])
        check_registered(self.model, f"model._target_={model['_target_']}")
        check_registered(self.loss, f"loss._target_={loss['_target_']}")
        self.train_metrics = EpochMetrics(len(self.classes))
        self.evaluation_metrics = EvaluationMetrics(
            len(self.classes),
            ranked=monitor in RANKING_METRICS or len(self.classes) <= MAX_LOGGED_CLASSES,
            positive=None if self.positive is None else self.classes.index(self.positive),
        )

    def forward(self, batch: Batch) -> Tensor:
        """Return logits (B, C), or (members, B, C) of an ensemble in training."""
        return self.model(batch.fields, batch.lengths, batch.host_lengths)

    def logits_of(self, batch: Batch) -> Tensor:
        """Return logits (B, C) float32 in evaluation. Raises InputError if the network returns another shape."""
        logits, shape = self(batch), (len(batch.host_lengths), len(self.classes))
        returned = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        if returned != shape:
            target = self.hparams["model"]["_target_"]
            problem = f"returns {returned} for {shape[0]} sequences of {shape[1]} classes"
            raise InputError(f"model._target_={target}", problem, f"return logits {shape}")
        return logits.float()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        self._note_shape(batch)
        # Random numbers depend on epoch, batch and rank alone, so a resumed run draws what an unbroken one would.
        position = (self.current_epoch << 24) + batch_idx
        seed = ((self.seed + 1) * 0x9E3779B1 + (self.global_rank << 44) + position) % 2**63
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 1 ms where there is no GPU
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def on_validation_batch_start(self, batch: Batch, *_: int) -> None:
        self._note_shape(batch)

    def _note_shape(self, batch: Batch) -> None:
        self.batch_shape = (len(batch.host_lengths), int(batch.host_lengths.max()))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        logits, loss, total = as_network(self.model).training_loss(
            batch.fields, batch.lengths, batch.host_lengths, batch.labels, self.loss
        )
        self.step_loss = loss.detach()
        counts = bool(batch.weight)  # 0 for a rank without rows at this step
        if counts and not (self.skips_not_finite and not torch.isfinite(loss)):  # asks the device only if it skips
            self.train_metrics.update(logits, batch.labels, loss)
        return total * batch.weight

    def step_memory(self) -> StepMemory:
        """Return what measures the memory of a training step, for `batching.max_tokens=auto`."""
        return StepMemory(self)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._sum_counts(checkpoint["state_dict"])
        save_gradients(checkpoint, self, self.trainer)
        checkpoint[LOGGED] = {name: value.detach().clone() for name, value in self.trainer.callback_metrics.items()}

    def _sum_counts(self, weights: dict[str, Tensor]) -> None:
        """Replace the counts of this rank's training rows by those of all ranks, of which rank 0 writes the file."""
        if self.trainer.world_size > 1:
            for name, count in self.train_metrics.state_dict(prefix="train_metrics.").items():
                weights[name] = self.trainer.strategy.reduce(count.clone(), reduce_op="sum")

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        finish_progress(checkpoint)
        if self.global_rank > 0:  # rank 0 goes on with the counts of all ranks
            counts = self.train_metrics.state_dict(prefix="train_metrics.")
            checkpoint["state_dict"] |= {name: torch.zeros_like(count) for name, count in counts.items()}
        if self.changes_structure:
            self._take_structure(checkpoint["hyper_parameters"])
        self.gradients = checkpoint.get(GRADIENTS, {})
        self.logged_values = checkpoint.get(LOGGED, {})

    def _take_structure(self, saved: Mapping[str, Any]) -> None:
        """Build the network of the checkpoint whose weights are about to be loaded."""
        model, frozen = saved["model"], saved.get("frozen", [])
        # Its classes are known, so that a checkpoint runs no code of its choice.
        if list(targets(model, "model")) == list(targets(self.hparams["model"], "model")):
            self.model = build_classifier(model, self.hparams["dataset"]["fields"], len(self.classes)).to(self.device)
            freeze_weights(self.model, frozen)
            self.hparams["model"], self.hparams["frozen"] = model, frozen

    def on_train_start(self) -> None:
        self.last_logged_step = self.global_step
        load_gradients(self.gradients, self)
        # Callbacks that monitor a validation see the last one, as if the run had not stopped.
        values = {name: value.to(self.device) for name, value in self.logged_values.items()}
        self.trainer.callback_metrics.update(values)
        self.gradients, self.logged_values = {}, {}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        limit = 0.0 if gradient_clip_algorithm == "value" else gradient_clip_val or 0.0  # of the norm
        parts = as_network(self.model).independent_parts()
        if limit and len(parts) > 1:
            # A large gradient of one must not shrink the steps of the others.
            for part in parts:
                clip_norm(part.parameters(), limit)
        elif limit and self._clips_plain_weights(limit):
            clip_norm((weight for group in optimizer.param_groups for weight in group["params"]), limit)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def _clips_plain_weights(self, limit: float) -> bool:
        """Return True if Lightning would clip the gradients of the optimizer's weights, as they are, to `limit`."""
        return bool(
            self._fabric is None
            and type(self.trainer.precision_plugin) is Precision  # not of mixed, half or double precision
            and self.trainer.gradient_clip_val == limit > 0
        )

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.learning_rate = optimizer.param_groups[0]["lr"]
        if self._is_logged(self.global_step + 1):  # only then, because a norm takes a pass over all gradients
            gradients = [weight.grad for weight in self.parameters() if weight.grad is not None]
            self.gradient_norm = nn.utils.get_total_norm(gradients)

    def _is_logged(self, step: int) -> bool:
        trainer: Any = self.trainer
        every = trainer.log_every_n_steps
        # The first step too, since a short run may have no other.
        return bool(every and (step == 1 or step % every == 0) and step > self.last_logged_step and trainer.loggers)

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        # Not by `self.log`, which takes a millisecond at every step, also at those that are not logged.
        step = self.global_step
        if self._is_logged(step):
            self.last_logged_step = step
            values = {
                "train/step_loss": float(self.step_loss),
                "train/gradient_norm": float(self.gradient_norm),
                "lr": self.learning_rate,
            }
            for logger in self.trainer.loggers:
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
        self.log(MONITORED, epoch_value(scores, self.monitor), logger=False)

    def on_test_epoch_end(self) -> None:
        self._finish_epoch("test", self.evaluation_metrics)

    def _finish_epoch(self, split: str, metrics: EpochMetrics) -> dict[str, float]:
        """Compute, log and return the scores of a split, and start to count anew."""
        result = metrics.compute()
        metrics.reset()
        if not math.isfinite(result.scores["loss"]):
            raise InputError(
                None,
                f"the {split} loss of epoch {self.current_epoch + 1} is not finite",
                f"lower optimizer.lr (now {self.optimizer['lr']}) or trainer.gradient_clip_val; debug=nan names the "
                "module and the rows",
            )
        self.epoch_scores[split] = result
        self._log_scores(split, result)
        return result.scores

    def _log_scores(self, split: str, result: EpochScores) -> None:
        """Hand scores to the loggers and to callbacks that monitor them by name, such as `validation/recall`."""
        values = named_scores(split, result)
        if split != "train" and len(self.classes) <= MAX_LOGGED_CLASSES:
            by_class = zip(self.classes, result.recall_by_class.tolist(), result.support.tolist(), strict=True)
            values |= {f"{split}/recall/{label}": recall for label, recall, rows in by_class if rows}
        fitting = self.trainer.state.fn == TrainerFn.FITTING
        # `validate` and `test` return what goes to the loggers. While fitting, Lightning would write a step that is one
        # behind, so the loggers are called here.
        self.log_dict(values, logger=not fitting)
        if fitting:
            for logger in self.trainer.loggers:
                logger.log_metrics({**values, "epoch": self.current_epoch}, self.global_step)
                logger.save()

    def configure_optimizers(self) -> Any:
        # In mixed precision Lightning does not clip gradients for an optimizer that unscales them, as a fused one can.
        fused = self.trainer.precision not in ("16-mixed", "bf16-mixed")
        optimizer, scheduler = self.make_optimizer(
            self.trainer.estimated_stepping_batches, fused, elapsed_share(self.trainer)
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def make_optimizer(
        self, steps: float, fused: bool = True, elapsed: Callable[[], float] | None = None
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        """Return the optimizer and its learning rate schedule (see `schedule_factor`).

        `steps`: optimizer steps of the training. `fused=False` overrides `optimizer.fused`, for mixed precision. Raises
        InputError on settings that the optimizer refuses.
        """
        settings = dict(self.optimizer)
        taken = arguments_of(locate(settings["_target_"]))
        if not fused or "fused" not in taken.names:
            settings.pop("fused", None)
        schedule = settings.pop("schedule")
        groups: list[dict[str, Any]] = [
            {"params": [weight for weight in self.model.parameters() if weight.ndim > 1]},
            {"params": [weight for weight in self.model.parameters() if weight.ndim <= 1]},
        ]
        if taken.accepts("weight_decay"):
            # Biases, norms and other vectors are not decayed: shrinking them regularises nothing.
            for group, decay in zip(groups, (settings.pop("weight_decay", 0.0), 0.0), strict=True):
                group["weight_decay"] = decay
        elif "weight_decay" in settings:
            raise InputError("optimizer.weight_decay", f"no such argument of {taken.owner}", "remove it")
        factor = schedule_factor(steps, elapsed, **schedule)
        optimizer = build(settings, torch.optim.Optimizer, params=groups)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def _with_defaults(name: str, settings: Config | None) -> Config:
    """Return the settings of a group of conf/ with the defaults for those that are missing."""
    if settings is None:
        return default_settings(name)
    if not isinstance(settings, Mapping):
        raise InputError(
            f"{name}={settings!r}",
            f'must be a mapping of settings, such as load_config(["{name}={settings}"])["{name}"]',
        )
    return dict(settings) if "_target_" in settings else {**default_settings(name), **settings}


def named_scores(split: str, result: EpochScores) -> dict[str, float]:
    """Scores as `split/metric`, in the order of the record's columns. Those that are not defined are left out."""
    scores = result.scores
    return {f"{split}/{name}": scores[name] for name in EPOCH_METRICS if name in scores}


def load_task(path: Any, trust: Trust = ()) -> SequenceTask:
    """Return a task from its checkpoint, on the CPU and in evaluation mode.

    `trust`: packages, in addition to this one, whose code the checkpoint may name as its model or loss, or True for
    any. Raises InputError on a file that is no checkpoint, or one whose parts do not fit together.
    """
    state = read_checkpoint(path)
    hyper, weights = state["hyper_parameters"], state["state_dict"]
    check_trusted(hyper, path, trust)
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train again, or choose another"):
        if not any(is_foreign(target) for _, target in targets(hyper["model"], "model")):
            check_size(hyper, weights)
        if unknown := set(hyper) - set(inspect.signature(SequenceTask).parameters):
            raise InputError(f"hyper_parameters.{min(unknown)}", "unknown key")
        task = SequenceTask(**hyper)
        check_weights(weights, task.state_dict())
        try:
            task.load_state_dict(weights)
        except (RuntimeError, TypeError) as error:
            raise InputError(None, f"its weights cannot be loaded ({first_line(error)})") from None
    task.trained_steps = state["global_step"]
    return task.eval()
