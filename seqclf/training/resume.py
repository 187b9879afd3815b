"""Whether a run may go on from a checkpoint."""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.resume_settings import check_same_batches
from seqclf.config.instantiate import locate
from seqclf.errors import InputError
from seqclf.system.stored_state import COUNT, Each, Where, error_context, require
from seqclf.training.checkpoint import check_weights, read_checkpoint
from seqclf.training.module import SequenceTask

TRACKED = dict.fromkeys(("ready", "started", "processed", "completed"), COUNT)
PROGRESS = {"total": TRACKED, "current": TRACKED}
# Of a `SequenceDataModule`, see `continuity`.
POSITION = {"settings": Each((int, float, str, bool, None)), "trained": COUNT}
RESUMED = {
    "pytorch-lightning_version": Where(
        str, lambda text: re.fullmatch(r"\d+(\.\d+)+\S*", text) is not None, "a version"
    ),
    "loops": {
        "fit_loop": {
            "state_dict": dict,
            "epoch_progress": PROGRESS,
            "epoch_loop.state_dict": {"_batches_that_stepped": COUNT},
            "epoch_loop.batch_progress": PROGRESS,
            "epoch_loop.scheduler_progress": {"total": Each(COUNT), "current": Each(COUNT)},
            "epoch_loop.val_loop.state_dict": dict,
            "epoch_loop.val_loop.batch_progress": PROGRESS,
        }
    },
    "callbacks": Each(dict),
    "optimizer_states": Where(
        [{"state": Where(dict, lambda state: all(isinstance(kept, dict) for kept in state.values()), "a mapping")}],
        lambda states: len(states) == 1,
        "one optimizer's",
    ),
    "lr_schedulers": Where(
        [{"last_epoch": int, "base_lrs": [float]}], lambda states: len(states) == 1, "one learning rate schedule's"
    ),
}
SAVER = {  # of a `ModelCheckpoint`, which deletes what was best before
    "dirpath": str,
    "best_model_path": str,
    "kth_best_model_path": str,
    "last_model_path": str,
    "best_k_models": dict,
}


def check_resumable(config: Mapping[str, Any], task: SequenceTask, batches: SequenceDataModule) -> None:
    """Raise unless the checkpoint continues this very task and, inside an epoch, the same batches.

    One whose epochs are all done is scored and exported.
    """
    path = config["checkpoint"]
    state = read_checkpoint(path)
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "seed"):
        was, wanted = state["hyper_parameters"][part], task.hparams[part]
        if _target(was) == _target(wanted):  # what only the checkpoint names is not imported
            was, wanted = _completed(was), _completed(wanted)
        if was != wanted and part == "dataset" and _other_rows_apart(was, wanted):
            raise InputError(
                f"checkpoint={path}: was trained with another decision: its validation has "
                f"{was['rows']['validation']:,} rows, now it has {wanted['rows']['validation']:,}; give the same "
                "decision.holdout, and a promise (decision.min_recall, min_precision or max_alerts) if its run had one"
            )
        if was != wanted:
            key = "data" if part == "dataset" else part
            raise InputError(
                f"checkpoint={path}: was trained with another {key}{_differences(key, was, wanted)}; "
                f"give the same {key} as its run"
            )
    _check_parts(state, task, path)
    position = state.get(type(batches).__qualname__)
    if position is not None:  # a Trainer without our DataModule saves none
        with error_context(f"checkpoint={path}", "it is damaged; train from the start"):
            require(position, POSITION)
        check_same_batches(f"checkpoint={path}", position, batches.settings())
    epochs, begun = config["trainer"]["max_epochs"], _epochs_begun(state)
    if epochs is not None and 0 <= epochs < begun:
        raise InputError(f"checkpoint={path}: has begun epoch {begun} already; raise trainer.max_epochs (now {epochs})")


def _other_rows_apart(was: Any, wanted: Any) -> bool:
    """True if two dataset descriptions differ only in how many validation rows there are, as a promise keeps some."""
    if not isinstance(was, dict) or not isinstance(was.get("rows"), dict) or "validation" not in was["rows"]:
        return False
    rows = {**was["rows"], "validation": wanted["rows"]["validation"]}
    return rows != was["rows"] and {**was, "rows": rows} == wanted


def _epochs_begun(state: Mapping[str, Any]) -> int:
    """The number of epochs that are trained, the one that a checkpoint was written inside of included."""
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


def _check_parts(state: Mapping[str, Any], task: SequenceTask, path: Any) -> None:
    """Raise unless the checkpoint holds what Lightning goes on from, which would raise anything where it does not."""
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train from the start"):
        require(state, RESUMED)
        check_weights(state["state_dict"], task.state_dict())
        for name, kept in state["callbacks"].items():
            if "dirpath" in kept:
                _check_saver(name, kept)
        optimizer, schedule = task.make_optimizer(steps=1)
        fresh = [dict(group) for group in optimizer.param_groups]
        try:
            optimizer.load_state_dict(copy.deepcopy(state["optimizer_states"][0]))
            schedule.load_state_dict(copy.deepcopy(state["lr_schedulers"][0]))
        except Exception as error:  # whatever PyTorch makes of values of any kind
            raise InputError(f"its optimizer cannot go on ({type(error).__name__}: {error})") from None
        if not all(isinstance(weight, Tensor) for weight in optimizer.state) or not _has_numbers(optimizer, fresh):
            raise InputError("optimizer_states: is not of this optimizer")
        if len({frozenset(moments) for moments in optimizer.state.values()}) > 1:
            raise InputError("optimizer_states: lacks something of a weight")
        for weight, moments in optimizer.state.items():
            for name, value in moments.items():
                if isinstance(value, Tensor) and value.ndim and value.shape != weight.shape:
                    raise InputError(f"optimizer_states: {name} is not of the size of its weight")


def _has_numbers(optimizer: torch.optim.Optimizer, fresh: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every setting that is a number in a fresh optimizer still is one."""
    return all(
        isinstance(group.get(name), (int, float, Tensor))
        for group, usual in zip(optimizer.param_groups, fresh, strict=True)
        for name, value in usual.items()
        if isinstance(value, (int, float))
    )


def _check_saver(name: str, kept: Mapping[str, Any]) -> None:
    """Raise unless the files of a `ModelCheckpoint` are in its own folder, so that nothing else is ever deleted."""
    require(kept, SAVER, f"callbacks.{name}")
    files = [kept[key] for key in ("best_model_path", "kth_best_model_path", "last_model_path")]
    for file in [*files, *kept["best_k_models"]]:
        if file and (not isinstance(file, str) or str(Path(file).parent) != kept["dirpath"]):
            raise InputError(f"callbacks.{name}: {file} is not in its folder {kept['dirpath']}")


def _target(settings: Any) -> Any:
    return settings.get("_target_") if isinstance(settings, dict) else None


def _completed(settings: Any) -> Any:
    """A `_target_` dict with the defaults of what it leaves out, as those of older checkpoints do."""
    if not isinstance(settings, dict) or "_target_" not in settings:
        return settings
    known = inspect.signature(locate(settings["_target_"])).parameters.values()
    return {**{one.name: one.default for one in known if one.default is not one.empty}, **settings}


def _differences(key: str, was: Any, wanted: Any) -> str:
    """The settings of `was` that `wanted` has otherwise, as they are given."""
    if not isinstance(was, dict) or "_target_" not in was:
        return ""
    told = [f"{key}.{name}={value}" for name, value in was.items() if wanted.get(name) != value]
    return f" ({' '.join(told)})" if told else ""
