"""Corrections to Lightning's checkpoints, so that a resumed run equals one that was never interrupted."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
from torch import Tensor, nn

GRADIENTS = "accumulated_gradients"


def finish_progress(checkpoint: dict[str, Any]) -> None:
    """Count the batch or the epoch after which a checkpoint was written as completed, in place.

    Lightning writes checkpoints from hooks that it calls before it counts. When it resumes, it skips a validation and
    an end of epoch that were still due, and with `max_steps` ends an epoch twice. Once the batch is counted, they run.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop")
    if loops is None:
        return
    epoch, batch = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    if _lacks_completion(epoch["current"]):
        _complete(epoch)
        # With `max_steps` Lightning would read the counts of the epoch that ended as those of the next one.
        batch["current"] = dict.fromkeys(batch["current"], 0)
        batch["is_last_batch"] = False
    elif _lacks_completion(batch["current"]):
        _complete(batch)
        if GRADIENTS not in checkpoint:
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
        # One validation batch started and none done: a validation that is due after this batch runs from its start.
        validation = loops["epoch_loop.val_loop.batch_progress"]
        validation["current"] = dict.fromkeys(validation["current"], 0)
        validation["total"] |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}


def _lacks_completion(counts: dict[str, int]) -> bool:
    return counts["ready"] == counts["started"] == counts["processed"] == counts["completed"] + 1


def _complete(progress: dict[str, Any]) -> None:
    for counts in (progress["total"], progress["current"]):
        counts |= dict.fromkeys(counts, counts["processed"])


def save_gradients(checkpoint: dict[str, Any], model: nn.Module, trainer: pl.Trainer) -> None:
    """Add the gradients of batches that wait for their optimizer step, as the mean over all ranks."""
    if trainer.fit_loop._should_accumulate():
        checkpoint[GRADIENTS] = {
            name: trainer.strategy.reduce(weight.grad.clone(), reduce_op="mean")
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }


def load_gradients(gradients: dict[str, Tensor], model: nn.Module) -> None:
    """Restore saved gradients. Call it once the weights are on their device."""
    for name, gradient in gradients.items():
        weight = model.get_parameter(name)
        weight.grad = gradient.to(weight)
