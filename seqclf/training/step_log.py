"""Logging of optimizer steps and epochs."""

from __future__ import annotations

import math
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn

from seqclf.errors import InputError
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.training.epoch_metrics import EpochMetrics, EpochScores, epoch_scores

MAX_LOGGED_CLASSES = 50


class StepLog(Callback):
    """Logs the loss, gradient norm and learning rate of steps, and the scores of epochs, and weighs short steps.

    `self.log` is not used, because it takes a millisecond at every step, also at steps that are not logged.
    """

    def on_before_optimizer_step(self, trainer: Any, task: Any, optimizer: Any) -> None:
        # Lightning divides each loss by the full number, also for the fewer batches before the end of an epoch.
        every = trainer.accumulate_grad_batches
        if summed := (trainer.fit_loop.batch_idx + 1) % every:
            for weight in task.parameters():
                if weight.grad is not None:
                    weight.grad.mul_(every / summed)
        step, every = task.global_step + 1, trainer.log_every_n_steps
        # The first step is logged too, because a short run may have no other logged step.
        if not trainer.loggers or not every or (step > 1 and step % every):
            return
        gradients = [weight.grad for weight in task.parameters() if weight.grad is not None]
        values = {
            "train/step_loss": float(task.step_loss),
            "train/gradient_norm": float(nn.utils.get_total_norm(gradients)),  # before clipping
            "lr": optimizer.param_groups[0]["lr"],
        }
        for logger in trainer.loggers:
            logger.log_metrics(values, step)


def finish_epoch(task: Any, split: str, metrics: EpochMetrics) -> None:
    """Log the scores of an epoch for the loggers, and for callbacks that monitor one, such as `validation/recall`.

    Raises InputError for a loss that is not finite.
    """
    result = task.epoch_scores[split] = epoch_scores(metrics)
    if not math.isfinite(result.scores["loss"]):
        remedy = f"lower optimizer.lr (now {task.optimizer['lr']}) or trainer.gradient_clip_val"
        raise InputError(None, f"the {split} loss of epoch {task.current_epoch + 1} is not finite", remedy)
    values = named_scores(split, result)
    if split != "train" and len(task.classes) <= MAX_LOGGED_CLASSES:
        by_class = zip(task.classes, result.recall_by_class.tolist(), result.support.tolist(), strict=True)
        values |= {f"{split}/recall/{label}": recall for label, recall, rows in by_class if rows}
    fitting = task.trainer.state.fn == TrainerFn.FITTING
    # `trainer.validate` and `trainer.test` return the logged values. During a fit, Lightning would log a step number
    # that is one too low, so the loggers are called here.
    task.log_dict(values, logger=not fitting)
    if fitting:
        for logger in task.trainer.loggers:
            logger.log_metrics({**values, "epoch": task.current_epoch}, task.global_step)
            logger.save()


def named_scores(split: str, result: EpochScores) -> dict[str, float]:
    """Return a dict `split/metric` → score, in the order of `EPOCH_METRICS` and without undefined scores."""
    return {f"{split}/{name}": result.scores[name] for name in EPOCH_METRICS if name in result.scores}
