"""The Lightning module: model, loss, metrics and optimiser, rebuilt from its checkpoint alone."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor, nn

from seqclf.batching.datamodule import Batch
from seqclf.config.instantiate import Trust, build, locate, package_of
from seqclf.errors import InputError
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.models.ensemble import Ensemble, build_classifier, vote
from seqclf.system.stored_state import error_context
from seqclf.training.checkpoint import check_trusted, check_weights, read_checkpoint
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, EvaluationMetrics
from seqclf.training.loop_state import GRADIENTS, finish_progress, load_gradients, save_gradients

MONITORED = "validation/monitor"
MOST_LOGGED_CLASSES = 50
TIE_BREAK = 1e-4
UNLIMITED_STEPS = 1e9  # more than any time limit leaves room for


class Prediction(NamedTuple):
    """What `trainer.predict` returns for a batch: `ids` (B,) int64, positions in the split, each row once;
    `logits` and `probabilities` (B, C) float32."""

    ids: Tensor
    logits: Tensor
    probabilities: Tensor


class SequenceTask(pl.LightningModule):
    """Trains a classifier of sequences.

    `dataset`: `Dataset.description()`; `model`, `loss`, `optimizer`: `_target_` dicts; `monitor`: the validation metric
    that decides which epoch is best. All are plain values and travel in the checkpoint, which therefore loads with
    `weights_only=True` and needs neither Hydra nor the data.
    """

    def __init__(
        self,
        dataset: dict[str, Any],
        model: dict[str, Any],
        loss: dict[str, Any],
        optimizer: dict[str, Any],
        monitor: str,
        seed: int,
    ):
        super().__init__()
        self.save_hyperparameters(logger=False)
        if monitor not in (*MAIN_METRICS, *RANKING_METRICS):
            raise InputError(f"monitor={monitor}: must be one of {', '.join((*MAIN_METRICS, *RANKING_METRICS))}")
        self.classes: list[str] = dataset["classes"]
        self.monitor = monitor
        self.optimizer = optimizer
        self.seed = seed
        self.step = 0  # of the training that made it, for a task that was loaded
        self.logged = 0  # the last step that was
        self.rate = 0.0  # of learning, at the last update
        self.step_loss = torch.tensor(0.0)  # of the last batch
        self.positive: str | None = dataset["positive"]
        self.epoch_scores: dict[str, EpochScores] = {}  # by split, of the running epoch
        self.gradients: dict[str, Tensor] = {}  # of a checkpoint from between two optimizer steps
        self.model = build_classifier(model, dataset["fields"], len(self.classes))
        self.loss = build(loss, nn.Module, classes=self.classes, class_counts=dataset["class_counts"])
        self.train_metrics = EpochMetrics(len(self.classes))
        self.evaluation_metrics = EvaluationMetrics(
            len(self.classes),
            ranked=monitor in RANKING_METRICS or len(self.classes) <= MOST_LOGGED_CLASSES,
            positive=None if self.positive is None else self.classes.index(self.positive),
        )

    def forward(self, batch: Batch) -> Tensor:
        """Logits (B, C); those of an ensemble that learns (members, B, C)."""
        return self.model(batch.fields, batch.lengths, batch.host_lengths)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        # The noise of a step is a function of its place alone, so a resumed run draws what an unbroken one would.
        place = (self.current_epoch << 24) + batch_idx
        seed = ((self.seed + 1) * 0x9E3779B1 + (self.global_rank << 44) + place) % 2**63
        torch.default_generator.manual_seed(seed)  # torch.manual_seed takes 1 ms where there is no GPU
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        logits = self(batch).float()
        if not isinstance(self.model, Ensemble):
            loss = self.loss(logits, batch.labels)
            self._count_step(logits, batch, loss)
            return loss * batch.weight
        # Scores are those of the vote. The sum of the members' losses lets each of them learn as it would alone.
        mean_logits = vote(logits.detach())
        self._count_step(mean_logits, batch, self.loss(mean_logits, batch.labels))
        return torch.stack([self.loss(member_logits, batch.labels) for member_logits in logits]).sum() * batch.weight

    def _count_step(self, logits: Tensor, batch: Batch, loss: Tensor) -> None:
        self.step_loss = loss.detach()
        self.train_metrics.update(logits, batch.labels, loss)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        save_gradients(checkpoint, self, self.trainer)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        finish_progress(checkpoint)
        self.gradients = checkpoint.get(GRADIENTS, {})

    def on_train_start(self) -> None:
        self.logged = self.global_step
        load_gradients(self.gradients, self)
        self.gradients = {}

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        if not isinstance(self.model, Ensemble) or not gradient_clip_val or gradient_clip_algorithm == "value":
            return super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)
        for member in self.model.members:
            nn.utils.clip_grad_norm_(member.parameters(), gradient_clip_val)

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        self.rate = optimizer.param_groups[0]["lr"]

    def on_train_batch_end(self, outputs: Any, batch: Batch, batch_idx: int) -> None:
        # By hand: `self.log` takes its time at every step, whether it is one that is logged or not.
        trainer: Any = self.trainer
        every, step = trainer.log_every_n_steps, self.global_step
        if every and step % every == 0 and step > self.logged and trainer.loggers:
            self.logged = step
            loss = float(self.step_loss)
            for logger in trainer.loggers:
                logger.log_metrics({"train/step_loss": loss, "lr": self.rate}, step)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self(batch).float()
        self.evaluation_metrics.update(logits, batch.labels, self.loss(logits, batch.labels))

    def test_step(self, batch: Batch, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: Batch, batch_idx: int) -> Prediction:
        logits = self(batch).float()
        return Prediction(torch.from_numpy(batch.ids), logits, logits.softmax(dim=-1))

    def on_train_epoch_end(self) -> None:
        self._finish_epoch("train", self.train_metrics)

    def on_validation_epoch_end(self) -> None:
        if self.trainer.sanity_checking:
            self.evaluation_metrics.reset()
            return
        scores = self._finish_epoch("validation", self.evaluation_metrics)
        sign = -1.0 if self.monitor == "loss" else 1.0
        # Recall on a small validation set takes few values: among equals the epoch of the lower loss is the better.
        value = sign * scores.get(self.monitor, 0.0) - TIE_BREAK * scores["loss"] / (1 + scores["loss"])
        self.log(MONITORED, value, logger=False)

    def on_test_epoch_end(self) -> None:
        self._finish_epoch("test", self.evaluation_metrics)

    def _finish_epoch(self, split: str, metrics: EpochMetrics) -> dict[str, float]:
        """Compute, log and return the scores of a split, and start to count anew."""
        result = metrics.compute()
        metrics.reset()
        if not math.isfinite(result.scores["loss"]):
            raise InputError(
                f"the {split} loss of epoch {self.current_epoch} is not finite; lower optimizer.lr "
                f"(now {self.optimizer['lr']}) or trainer.gradient_clip_val"
            )
        self.epoch_scores[split] = result
        self._log_scores(split, result)
        return result.scores

    def _log_scores(self, split: str, result: EpochScores) -> None:
        """Hand scores to the loggers and to callbacks that monitor them by name, such as `validation/recall`."""
        values = main_scores(split, result)
        if split != "train" and len(self.classes) <= MOST_LOGGED_CLASSES:
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
        # Lightning clips no gradients in mixed precision where the optimiser could unscale them, as a fused one can.
        fused = self.trainer.precision not in ("16-mixed", "bf16-mixed")
        optimizer, scheduler = self.make_optimizer(self.trainer.estimated_stepping_batches, fused, self._elapsed())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def _elapsed(self) -> Callable[[], float] | None:
        """Share of `trainer.max_time` that has passed, the same on every rank; None without such a limit."""
        trainer: Any = self.trainer
        timer = next((one for one in trainer.callbacks if isinstance(one, Timer)), None)
        if timer is None or timer.time_remaining() is None:
            return None

        def elapsed() -> float:
            passed, left = timer.time_elapsed(), timer.time_remaining() or 0.0
            share = passed / max(1e-9, passed + left)
            # Ranks with clocks of their own would take steps of different sizes, and their weights would drift apart.
            return trainer.strategy.broadcast(share) if trainer.world_size > 1 else share

        return elapsed

    def make_optimizer(
        self, steps: float, fused: bool = True, elapsed: Callable[[], float] | None = None
    ) -> tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LambdaLR]:
        """The optimizer and its schedule (see `schedule_factor`). `fused`: where its settings say so and it can be.

        Raises InputError on settings that cannot be."""
        settings = dict(self.optimizer)
        if not fused or "fused" not in inspect.signature(locate(settings["_target_"])).parameters:
            settings.pop("fused", None)
        schedule = settings.pop("schedule")
        decay = settings.pop("weight_decay", 0.0)
        # Biases, norms and other vectors are not decayed: shrinking them regularises nothing.
        matrices = [weight for weight in self.model.parameters() if weight.ndim > 1]
        vectors = [weight for weight in self.model.parameters() if weight.ndim <= 1]
        groups = [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]
        factor = schedule_factor(steps, elapsed, **schedule)
        optimizer = build(settings, torch.optim.Optimizer, params=groups)
        return optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


def main_scores(split: str, result: EpochScores) -> dict[str, float]:
    """Scores as `split/metric`, in the order of the record's columns. Those that are not defined are left out."""
    scores = result.scores
    return {f"{split}/{name}": scores[name] for name in (*MAIN_METRICS, *RANKING_METRICS) if name in scores}


def schedule_factor(
    steps: float, elapsed: Callable[[], float] | None = None, *, warmup: float, decay: str, floor: float
) -> Callable[[int], float]:
    """Learning rate multiplier as a function of the step.

    The rate rises over the share `warmup` of all `steps`, then falls to `floor` along `decay` (`cosine`, `linear` or
    `none`). With a time limit, `elapsed()` is the share of it that has passed, and training is taken to be as far on as
    the steps or the clock say, whichever is more, so that the rate is at its floor when either limit ends training.
    """
    if decay not in ("cosine", "linear", "none"):
        raise InputError(f"optimizer.schedule.decay={decay}: must be cosine, linear or none")
    if not math.isfinite(steps) and elapsed is not None:
        steps = UNLIMITED_STEPS  # the clock alone counts
    climb = max(1.0, warmup * steps) if math.isfinite(steps) else 1.0

    def factor(step: int) -> float:
        position: float = step
        if elapsed is not None:
            position = max(position, min(1.0, elapsed()) * steps)
        if position < climb:
            return (position + 1) / (climb + 1)
        if decay == "none" or not math.isfinite(steps):
            return 1.0
        done = min(1.0, (position - climb) / max(1.0, steps - climb))
        remaining = (1 + math.cos(math.pi * done)) / 2 if decay == "cosine" else 1 - done
        return floor + (1 - floor) * remaining

    return factor


def load_task(path: Any, trust: Trust = ()) -> SequenceTask:
    """A task from its checkpoint, on the CPU and in evaluation mode.

    `trust`: packages beside this one whose code the checkpoint may name as its model or loss, or True for any. Raises
    InputError on a file that is no checkpoint, or one that does not fit together.
    """
    state = read_checkpoint(path)
    hyper, weights = state["hyper_parameters"], state["state_dict"]
    check_trusted(hyper, path, trust)
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train again, or give another"):
        if package_of(hyper["model"]["_target_"]) == "seqclf":
            _check_size(hyper, weights)
        if unknown := set(hyper) - set(inspect.signature(SequenceTask).parameters):
            raise InputError(f"hyper_parameters.{min(unknown)} is not known")
        task = SequenceTask(**hyper)
        check_weights(weights, task.state_dict())
        try:
            task.load_state_dict(weights)
        except (RuntimeError, TypeError) as error:
            raise InputError(f"its weights cannot be loaded ({str(error).splitlines()[0]})") from None
    task.step = state["global_step"]
    return task.eval()


def _check_size(hyper: Mapping[str, Any], weights: Mapping[str, Tensor]) -> None:
    """Raise unless the network has the size of its weights. Built without memory, as its settings may say anything."""
    dataset = hyper["dataset"]
    with torch.device("meta"):
        sketch = build_classifier(hyper["model"], dataset["fields"], len(dataset["classes"]))
    expected_weights = {f"model.{name}": tensor for name, tensor in sketch.state_dict().items()}
    check_weights({name: tensor for name, tensor in weights.items() if name.startswith("model.")}, expected_weights)
