"""State of a fit that Lightning leaves out of a checkpoint: a resumed run equals an uninterrupted one to the bit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.callbacks import Callback
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn

from seqclf.batching.split_rows import SplitRows
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.models.auto.feature_cache import feature_cache
from seqclf.models.network import SequenceNetwork
from seqclf.training.losses import class_weights_of
from seqclf.training.weight_average import TRAINED

# Keys of a checkpoint: gradients accumulated between two optimizer steps, values that callbacks may monitor, and the
# last values of the monitored metric (dict step → value).
GRADIENTS, LOGGED, RECENT = "accumulated_gradients", "logged_values", "recent_monitor_values"


class ExactResume(Callback):
    """Lets the network read the training rows of a new run, and saves and restores what a resumed run needs."""

    def __init__(self) -> None:
        self.restored: Mapping[str, Any] = {}

    def setup(self, trainer: Any, task: Any, stage: str) -> None:
        if stage == TrainerFn.FITTING:
            task.monitor.values = {}  # Lightning loads the values of a checkpoint after `setup`

    def on_save_checkpoint(self, trainer: Any, task: Any, checkpoint: dict[str, Any]) -> None:
        reduce = trainer.strategy.reduce
        if trainer.world_size > 1:  # the counts of all ranks
            for name, count in task.train_metrics.state_dict(prefix="train_metrics.").items():
                checkpoint["state_dict"][name] = reduce(count.clone(), reduce_op="sum")
        batches = trainer.fit_loop.batch_idx + 1
        if batches % trainer.accumulate_grad_batches and batches < trainer.num_training_batches:
            gradients = {name: weight.grad for name, weight in task.named_parameters() if weight.grad is not None}
            checkpoint[GRADIENTS] = {name: reduce(grad.clone(), reduce_op="mean") for name, grad in gradients.items()}
        checkpoint[LOGGED] = {name: value.detach().clone() for name, value in trainer.callback_metrics.items()}
        checkpoint[RECENT] = dict(task.monitor.values)

    def on_load_checkpoint(self, trainer: Any, task: Any, checkpoint: dict[str, Any]) -> None:
        if trainer.state.fn != TrainerFn.FITTING or "loops" not in checkpoint:  # Lightning rejects weights alone
            return
        finish_progress(checkpoint)  # before Lightning restores its loops
        task.load_state_dict(checkpoint.get(TRAINED, {}), strict=False)  # `state_dict` holds their means
        if trainer.global_rank > 0:  # rank 0 goes on with the sums over all ranks
            task.train_metrics.reset()
        task.monitor.values = dict(checkpoint[RECENT])
        self.restored = {GRADIENTS: checkpoint.get(GRADIENTS, {}), LOGGED: checkpoint[LOGGED]}

    def on_fit_start(self, trainer: Any, task: Any) -> None:
        splits = getattr(trainer.datamodule, "splits", None)
        train = splits.get("train") if isinstance(splits, Mapping) else None
        if train is None and not task.is_fitted and any(map(_reads_training_rows, task.model.modules())):
            problem = "has no rows that the network can read before the first step"
            raise InputError("trainer.fit", problem, "give it a SequenceDataModule")
        if train is not None and not task.is_fitted:
            task.fit_to(train)
            for buffer in task.model.buffers() if trainer.world_size > 1 else ():
                buffer.copy_(trainer.strategy.broadcast(buffer))  # rounding may differ between machines
        if train is not None:
            trainer.datamodule.features = feature_cache(task.model, rows_of(task, train))

    def on_train_start(self, trainer: Any, task: Any) -> None:
        restored, self.restored = self.restored, {}
        for name, gradient in restored.get(GRADIENTS, {}).items():
            weight = task.get_parameter(name)
            weight.grad = gradient.to(weight)
        # Callbacks that monitor a validation metric get the values of the last validation, as in an uninterrupted run.
        for name, value in restored.get(LOGGED, {}).items():
            trainer.callback_metrics[name] = value.to(task.device)

    def teardown(self, trainer: Any, task: Any, stage: str) -> None:
        if trainer.datamodule is not None:
            trainer.datamodule.features = None


def rows_of(task: Any, split: Split) -> SplitRows:
    """Return the rows of a split as the network of a task reads them."""
    digest, weights = task.hparams["dataset"].get("digest", ""), class_weights_of(task.loss, len(task.classes))
    return SplitRows(split, digest, weights, task.device)


def _reads_training_rows(part: nn.Module) -> bool:
    """Return True if a network sets buffers by training rows."""
    return isinstance(part, SequenceNetwork) and type(part).fit_to is not SequenceNetwork.fit_to


def finish_progress(checkpoint: dict[str, Any]) -> None:
    """Mark the last batch or epoch of a checkpoint as completed, and change `checkpoint` in place.

    Lightning writes a checkpoint before it counts the batch or epoch as completed. On resuming, it would skip a
    validation and an end of epoch that are still due, and with `max_steps` end an epoch twice.
    """
    loops = checkpoint.get("loops", {}).get("fit_loop")
    if loops is None:
        return
    epoch, batch = loops["epoch_progress"], loops["epoch_loop.batch_progress"]
    if _lacks_completion(epoch["current"]):
        _complete(epoch)
        # With `max_steps` Lightning would use the counts of the completed epoch for the next epoch.
        batch["current"] = dict.fromkeys(batch["current"], 0)
        batch["is_last_batch"] = False
    elif _lacks_completion(batch["current"]):
        _complete(batch)
        if GRADIENTS not in checkpoint:
            loops["epoch_loop.state_dict"]["_batches_that_stepped"] += 1
        # One validation batch started and none completed: a validation that is due now runs from its first batch.
        validation = loops["epoch_loop.val_loop.batch_progress"]
        validation["current"] = dict.fromkeys(validation["current"], 0)
        validation["total"] |= {"ready": 1, "started": 1, "processed": 0, "completed": 0}


def _lacks_completion(counts: dict[str, int]) -> bool:
    return counts["ready"] == counts["started"] == counts["processed"] == counts["completed"] + 1


def _complete(progress: dict[str, Any]) -> None:
    for counts in (progress["total"], progress["current"]):
        counts |= dict.fromkeys(counts, counts["processed"])
