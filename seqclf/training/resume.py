"""Resuming a fit: checks of the checkpoint, and state that Lightning leaves out, so that no bit differs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import nn

from seqclf.batching.batches import SplitRows
from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.resume_settings import POSITION, check_same_batches
from seqclf.config.command_keys import flat_keys
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.models.auto.feature_cache import feature_cache
from seqclf.models.network import SequenceNetwork
from seqclf.settings.typed_text import hydra_value
from seqclf.system.state_validation import COUNT, Each, error_context, require
from seqclf.training.checkpoint import check_weights, read_checkpoint
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
        # For callbacks that monitor the last validation.
        for name, value in restored.get(LOGGED, {}).items():
            trainer.callback_metrics[name] = value.to(task.device)

    def teardown(self, trainer: Any, task: Any, stage: str) -> None:
        if trainer.datamodule is not None:
            trainer.datamodule.features = None


def rows_of(task: Any, split: Split) -> SplitRows:
    digest, weights = task.hparams["dataset"].get("digest", ""), class_weights_of(task.loss, len(task.classes))
    return SplitRows(split, digest, weights, task.device)


def _reads_training_rows(part: nn.Module) -> bool:
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


RESUMED = {  # what a checkpoint needs beside its weights
    "loops": {"fit_loop": {"epoch_progress": {"current": {"started": COUNT}}}},
    "callbacks": Each(dict),
    "optimizer_states": list,
    "lr_schedulers": list,
    LOGGED: dict,
    RECENT: dict,
}
FILES = ("best_model_path", "kth_best_model_path", "last_model_path")
# Shape of the state of a `ModelCheckpoint`, which deletes the files of earlier best epochs.
SAVER = {"dirpath": str, **dict.fromkeys(FILES, str), "best_k_models": dict}
DAMAGED = "it is damaged or of another version; train from the start"
CONFIG_KEYS = {"dataset": "data", "frozen": "structure"}  # dict hyperparameter → config key, where the names differ


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder with the most optimizer steps, None without one. Damaged ones are skipped.

    Raises InputError if all checkpoints are damaged.
    """
    whole, damaged = list[tuple[int, bool, Path]](), list[InputError]()
    for path in sorted(folder.glob("*.ckpt")):
        try:
            state = _read_resumable(path)
            # At the same step, `last.ckpt` is preferred: it is written after `best.ckpt`.
            whole.append((state["global_step"], path.name == "last.ckpt", path))
        except InputError as error:
            damaged.append(error)
    if damaged and not whole:
        raise damaged[0].with_remedy("remove it to train from the start, or name another folder by hydra.run.dir")
    for refusal in damaged:
        warnings.warn(f"{refusal}; passed over", stacklevel=2)
    return max(whole)[-1] if whole else None


def check_resumable(config: Mapping[str, Any], task: Any, batches: SequenceDataModule) -> None:
    """Raise InputError unless `config.checkpoint` was trained with the settings of `task` and the same batches.

    Batches are compared only for a checkpoint inside an epoch. A checkpoint of a completed training is accepted, and is
    evaluated and exported without further training.
    """
    where, state = f"checkpoint={config['checkpoint']}", _read_resumable(config["checkpoint"])
    _check_same_settings(where, state["hyper_parameters"], task.hparams)
    with error_context(where, DAMAGED):
        check_weights(state["state_dict"], task.state_dict())
        for name, saved in state["callbacks"].items():
            if name.startswith(ModelCheckpoint.__qualname__):
                _check_saver(name, saved)
        position = state.get(type(batches).__qualname__)
        if position is not None:  # a fit without `SequenceDataModule` saves no position
            require(position, POSITION)
    if position is not None:
        check_same_batches(where, position, batches.settings())
    epochs, started = config["trainer"]["max_epochs"], _started(state)
    if epochs is not None and 0 <= epochs < started:
        raise InputError(where, f"has started epoch {started} already", f"raise trainer.max_epochs (now {epochs})")


def epochs_started(path: Path) -> int:
    """Return the number of epochs that the run of a checkpoint file has started, including an unfinished epoch."""
    return _started(_read_resumable(path))


def _read_resumable(path: Any) -> Mapping[str, Any]:
    state = read_checkpoint(path)
    if "loops" not in state:  # the model of all rows (data.split.fold=all)
        raise InputError(f"checkpoint={path}", "holds a model, and no training to resume", f"set start={path}")
    with error_context(f"checkpoint={path}", DAMAGED):
        require(state, RESUMED)
    return state


def _started(state: Mapping[str, Any]) -> int:
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


def _check_same_settings(where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "metrics", "seed", "frozen"):
        if before[part] == now[part]:
            continue
        key = CONFIG_KEYS.get(part, part)
        saved, current = flat_keys({key: before[part]}), flat_keys({key: now[part]})
        differing = {name: value for name, value in saved.items() if current.get(name) != value}
        changed = [f"{name}={hydra_value(value)}" for name, value in differing.items() if not isinstance(value, list)]
        # A guarantee of `decision` holds out validation rows.
        same = "data and the same decision" if part == "dataset" else key
        shown = f" ({' '.join(changed)})" if changed else ""
        raise InputError(where, f"was trained with another {key}{shown}", f"set the same {same} as its run")


def _check_saver(name: str, state: Mapping[str, Any]) -> None:
    # A `ModelCheckpoint` may delete the files in its state.
    require(state, SAVER, f"callbacks.{name}")
    for file in [*(state[key] for key in FILES), *state["best_k_models"]]:
        if file and (not isinstance(file, str) or str(Path(file).parent) != state["dirpath"]):
            raise InputError(f"callbacks.{name}", f"{file} is not in its folder {state['dirpath']}")
