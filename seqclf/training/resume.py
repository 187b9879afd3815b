"""Checks that a checkpoint can be resumed with the config of the current run."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor, nn

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.resume_settings import POSITION, check_same_batches
from seqclf.errors import InputError
from seqclf.system.state_validation import COUNT, Each, Where, error_context, require
from seqclf.training.checkpoint import (
    LOGGED,
    RECENT,
    REFITTED,
    SHAPE,
    TRAINED,
    check_weights,
    read_checkpoint,
)
from seqclf.training.epoch_record import EpochRecord, Speed
from seqclf.training.module import SequenceTask
from seqclf.training.weight_average import averaged_names


def check_optimizer_state(saved: Mapping[str, Any], fresh: torch.optim.Optimizer) -> None:
    """Raise InputError unless an optimizer can continue with its saved state.

    `saved`: the state of the optimizer in a checkpoint. `fresh`: an optimizer with the same settings and no state. The
    form of the state differs between optimizers, and for some, such as Adafactor, it depends on the shape of the
    weight. The saved state of a weight is therefore compared with the state of `fresh` after a step on zeros.
    """
    places = [(index, weight.shape) for index, group in enumerate(fresh.param_groups) for weight in group["params"]]
    if not saved["state"].keys() <= set(range(len(places))):
        raise InputError("optimizer_states", "is of another optimizer")
    for group, fresh_group in zip(saved["param_groups"], fresh.param_groups, strict=True):
        # Other settings are not compared. For example, `fused` is False in mixed precision but may be True in `fresh`.
        numbers = {name: value for name, value in fresh_group.items() if type(value) in (int, float)}
        _require_form(group, numbers)
    for place in dict.fromkeys(places):
        expected = _state_after_a_step(fresh, *place)
        for number, state in saved["state"].items():  # a frozen weight, or one without a gradient so far, has none
            if places[number] == place:
                _require_form(state, expected)


def _state_after_a_step(fresh: torch.optim.Optimizer, index: int, shape: torch.Size) -> Mapping[str, Any]:
    """Return the optimizer state of a weight in parameter group `index` after one step on zeros.

    The returned dict is empty if the optimizer cannot take the step.
    """
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.zeros(shape)
    groups, fresh.param_groups = fresh.param_groups, [{**fresh.param_groups[index], "params": [weight]}]
    try:
        fresh.step()
    except Exception:  # a third-party optimizer may need a closure
        return {}
    finally:
        fresh.param_groups = groups
    return fresh.state.pop(weight, {})


def _require_form(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise InputError unless `state` has the numbers of `expected`, and its tensors in their sizes."""
    for name, value in expected.items():
        saved = state.get(name)
        is_number = isinstance(saved, (int, float, Tensor))
        # A scalar is a number in some versions of PyTorch and a tensor in others.
        is_scalar = isinstance(value, (int, float)) or (isinstance(value, Tensor) and not value.ndim)
        if is_scalar and is_number and (not isinstance(saved, Tensor) or saved.ndim == 0):
            continue
        if isinstance(value, (int, float, Tensor)) and getattr(saved, "shape", None) != getattr(value, "shape", ()):
            raise InputError("optimizer_states", f"{name} is missing or does not have the size of its weight")


TRACKED = dict.fromkeys(("ready", "started", "processed", "completed"), COUNT)
PROGRESS = {"total": TRACKED, "current": TRACKED}
# Shape of the optimizer state: a dict weight index → state of the weight.
MOMENTS = Where(dict, lambda state: all(isinstance(moments, dict) for moments in state.values()), "a mapping")
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
    "optimizer_states": Where([{"state": MOMENTS}], lambda states: len(states) == 1, "one optimizer's"),
    "lr_schedulers": Where(
        [{"last_epoch": int, "base_lrs": [float]}], lambda states: len(states) == 1, "one learning rate schedule's"
    ),
}
SAVER = {  # shape of the state of a `ModelCheckpoint`, which deletes the files of earlier best epochs
    "dirpath": str,
    "best_model_path": str,
    "kth_best_model_path": str,
    "last_model_path": str,
    "best_k_models": dict,
}
RECORD = {  # shape of the state of an `EpochRecord`
    "history": [{"epoch": COUNT, "step": COUNT, "seconds": float, **dict.fromkeys(Speed._fields, float), "lr": float}],
    "seen": Each(COUNT),
    "seconds": float,
    "validation": (Each(float), None),
    "validation_losses": dict,
}

MONITORABLE = Each(Where(Tensor, lambda value: value.ndim == 0, "a number"))

# Shape of the last values of the monitored metric: a dict number of optimizer steps → value.
RECENT_VALUES = Where(
    dict,
    lambda values: all(type(step) is int and type(value) is float for step, value in values.items()),
    "values by step",
)


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder with the most optimizer steps, or None if the folder has no checkpoints.

    A damaged checkpoint is skipped with a warning. Raises InputError if all checkpoints are damaged.
    """
    whole: list[tuple[int, bool, Path]] = []
    damaged: list[InputError] = []
    for path in sorted(folder.glob("*.ckpt")):
        try:
            state = read_checkpoint(path)
            if REFITTED in state:  # the run resumes from last.ckpt, and refits again
                continue
            with error_context(f"checkpoint={path}", "it is damaged or of another version"):
                require(state, RESUMED)
        except InputError as error:
            damaged.append(error)
            continue
        # At the same step `last.ckpt` is preferred, because it is written at the end of the epoch and `best.ckpt` after
        # the validation.
        whole.append((state["global_step"], path.name == "last.ckpt", path))
    if damaged and not whole:
        raise damaged[0].with_remedy("remove it to train from the start, or name another folder by hydra.run.dir")
    for refusal in damaged:
        warnings.warn(f"{refusal}; passed over", stacklevel=2)
    return max(whole)[-1] if whole else None


def check_resumable(config: Mapping[str, Any], task: SequenceTask, batches: SequenceDataModule) -> None:
    """Raise InputError unless `config.checkpoint` was trained with the settings of `task` and the same batches.

    Batches are compared only for a checkpoint inside an epoch. A checkpoint of a completed training is accepted, and is
    evaluated and exported without further training.
    """
    path = config["checkpoint"]
    state = read_checkpoint(path)
    if REFITTED in state:
        raise InputError(
            f"checkpoint={path}",
            "was trained on validation too (refit=true), which could not choose an epoch any more",
            f"resume with checkpoint={Path(path).with_name('last.ckpt')}",
        )
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "seed", "frozen"):
        saved, current = state["hyper_parameters"][part], task.hparams[part]
        if saved != current and part == "dataset" and _has_other_holdout(saved, current):
            raise InputError(
                f"checkpoint={path}",
                f"was trained with another decision: its validation has {saved['rows']['validation']:,} rows, now it "
                f"has {current['rows']['validation']:,}",
                "set the same decision.holdout, and a guarantee (decision.min_recall, min_precision or max_alerts) "
                "if its run had one",
            )
        if saved != current:
            key = {"dataset": "data", "frozen": "structure"}.get(part, part)
            raise InputError(
                f"checkpoint={path}",
                f"was trained with another {key}{_differences(key, saved, current)}",
                f"set the same {key} as its run",
            )
    _check_parts(state, task, path)
    position = state.get(type(batches).__qualname__)
    if position is not None:  # a fit without `SequenceDataModule` saves no position
        with error_context(f"checkpoint={path}", "it is damaged; train from the start"):
            require(position, POSITION)
        check_same_batches(f"checkpoint={path}", position, batches.settings())
    epochs, started = config["trainer"]["max_epochs"], _epochs_started(state)
    if epochs is not None and 0 <= epochs < started:
        raise InputError(
            f"checkpoint={path}", f"has started epoch {started} already", f"raise trainer.max_epochs (now {epochs})"
        )


def _has_other_holdout(saved: Any, current: Any) -> bool:
    """Return True if two dataset descriptions differ only in the number of validation rows.

    A guarantee on a metric (such as `decision.min_recall`) holds out some of the validation rows.
    """
    if not isinstance(saved, dict) or not isinstance(saved.get("rows"), dict) or "validation" not in saved["rows"]:
        return False
    rows = {**saved["rows"], "validation": current["rows"]["validation"]}
    return rows != saved["rows"] and {**saved, "rows": rows} == current


def epochs_started(path: Path) -> int:
    """Return the number of epochs that the run of a checkpoint file has started, including an unfinished epoch."""
    state = read_checkpoint(path)
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train from the start"):
        require(state, RESUMED)
    return _epochs_started(state)


def _epochs_started(state: Mapping[str, Any]) -> int:
    """Return the number of started epochs from the content of a checkpoint, including an unfinished epoch."""
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


def _check_parts(state: Mapping[str, Any], task: SequenceTask, path: Any) -> None:
    """Raise InputError unless a checkpoint holds all values that Lightning needs to resume.

    Without these checks, Lightning could raise any kind of exception for a damaged checkpoint.
    """
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train from the start"):
        require(state, RESUMED)
        require(state, {LOGGED: MONITORABLE, RECENT: RECENT_VALUES})
        check_weights(state["state_dict"], task.state_dict())
        if task.optimizer.get("average") is not None:
            _check_trained(state, task)
        for name, callback_state in state["callbacks"].items():
            if name.startswith(ModelCheckpoint.__qualname__):
                _check_saver(name, callback_state)
            if name == EpochRecord.__qualname__:
                require(callback_state, RECORD, f"callbacks.{name}")
        optimizer, schedule = task.make_optimizer(steps=1)
        try:
            optimizer.load_state_dict(copy.deepcopy(state["optimizer_states"][0]))
            schedule.load_state_dict(copy.deepcopy(state["lr_schedulers"][0]))
        except Exception as error:  # PyTorch may raise any exception on invalid values
            raise InputError(None, f"its optimizer cannot resume ({type(error).__name__}: {error})") from None
        check_optimizer_state(state["optimizer_states"][0], task.make_optimizer(steps=1)[0])


def _check_trained(state: Mapping[str, Any], task: SequenceTask) -> None:
    """Raise InputError unless a checkpoint holds the trained weights beside their means."""
    if TRAINED not in state:
        raise InputError(None, f"has no {TRAINED}")
    trained, known = state[TRAINED], task.state_dict()
    require(trained, SHAPE["state_dict"], TRAINED)
    # A weight that was frozen during the training stays in the average.
    names = dict.fromkeys([*(f"model.{name}" for name in averaged_names(task.model)), *trained])
    check_weights(trained, {name: known[name] for name in names if name in known})


def _check_saver(name: str, state: Mapping[str, Any]) -> None:
    """Raise InputError unless all files in the state of a `ModelCheckpoint` are in its own folder.

    A `ModelCheckpoint` may delete the files in its state, and must not delete files in other folders.
    """
    require(state, SAVER, f"callbacks.{name}")
    files = [state[key] for key in ("best_model_path", "kth_best_model_path", "last_model_path")]
    for file in [*files, *state["best_k_models"]]:
        if file and (not isinstance(file, str) or str(Path(file).parent) != state["dirpath"]):
            raise InputError(f"callbacks.{name}", f"{file} is not in its folder {state['dirpath']}")


def _differences(key: str, saved: Any, current: Any) -> str:
    """Return the settings of `saved` that differ in `current`, written as command-line overrides."""
    if not isinstance(saved, dict) or "_target_" not in saved:
        return ""
    saved, current = _flat(saved), _flat(current)
    changed = [f"{key}.{name}={value}" for name, value in saved.items() if current.get(name) != value]
    return f" ({' '.join(changed)})" if changed else ""


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return a flat dict dotted name → value of nested settings, such as settings with an encoder block."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat
