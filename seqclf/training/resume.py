"""Checks that a checkpoint continues the run that is configured."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from torch import Tensor, nn

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.resume_settings import check_same_batches
from seqclf.config.targets import defaults_of, locate, targets
from seqclf.data.encoding.declaration import stored_schema
from seqclf.errors import InputError
from seqclf.system.state_validation import COUNT, Each, Where, error_context, require
from seqclf.training.callbacks import EarlyStopping
from seqclf.training.check_targets import resolve_loss, resolve_model
from seqclf.training.checkpoint import LOGGED, check_weights, read_checkpoint
from seqclf.training.epoch_record import EpochRecord, Speed
from seqclf.training.module import SequenceTask
from seqclf.training.structure_schedule import StructureSchedule

# State of an optimizer from a checkpoint, compared with the state that the optimizer itself would make.


def check_optimizer_state(optimizer: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> None:
    """Raise InputError unless an optimizer that took the state of a checkpoint can go on with it.

    `fresh`: another one with the same settings and weights, which has taken no state. It makes steps on other weights.
    Each optimizer keeps a state of another form, and some, as Adafactor, one that depends on the form of the weight.
    So the state of a weight is compared with that of a trial step on zeros of its shape.
    """
    if not all(isinstance(weight, Tensor) for weight in optimizer.state) or not _has_numbers(optimizer, fresh):
        raise InputError("optimizer_states", "is of another optimizer")
    expected: dict[tuple[int, torch.Size], Mapping[str, Any]] = {}
    for index, group in enumerate(optimizer.param_groups):
        for weight in group["params"]:
            if weight not in optimizer.state:  # frozen, or without a gradient so far
                continue
            form = index, weight.shape
            if form not in expected:
                expected[form] = _state_after_a_step(fresh, *form)
            _check_state(optimizer.state[weight], expected[form])


def _has_numbers(optimizer: torch.optim.Optimizer, fresh: torch.optim.Optimizer) -> bool:
    """Return True if every setting that is a number in the groups of the fresh optimizer still is one.

    Switches are left out: `fused` is off in mixed precision, which a fresh optimizer does not know of.
    """
    for group, fresh_group in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        numbers = [name for name, value in fresh_group.items() if type(value) in (int, float)]
        if not all(isinstance(group.get(name), (int, float, Tensor)) for name in numbers):
            return False
    return True


def _state_after_a_step(fresh: torch.optim.Optimizer, index: int, shape: torch.Size) -> Mapping[str, Any]:
    """Return the state of a weight of the group `index` after a step. Empty, if the optimizer cannot make the step."""
    weight = nn.Parameter(torch.zeros(shape))
    weight.grad = torch.zeros(shape)
    groups, fresh.param_groups = fresh.param_groups, [{**fresh.param_groups[index], "params": [weight]}]
    fresh.state.clear()
    try:
        fresh.step()
    except Exception:  # one of another package may need a closure
        return {}
    finally:
        fresh.param_groups = groups
    return fresh.state.pop(weight, {})


def _check_state(state: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Raise InputError unless the state of a weight has the parts, and their sizes, of the expected one."""
    for name, value in expected.items():
        if name not in state:
            raise InputError("optimizer_states", f"lacks {name} of a weight")
        # A scalar may be a number or a tensor, by the version of PyTorch.
        is_number = isinstance(state[name], (int, float)) and isinstance(value, Tensor) and not value.ndim
        if isinstance(value, Tensor) and not is_number and getattr(state[name], "shape", None) != value.shape:
            raise InputError("optimizer_states", f"{name} does not have the size of its weight")


TRACKED = dict.fromkeys(("ready", "started", "processed", "completed"), COUNT)
PROGRESS = {"total": TRACKED, "current": TRACKED}
# State of a `SequenceDataModule`, see `resume_settings`.
POSITION = {"settings": Each((int, float, str, bool, None)), "trained": COUNT}
# State of an optimizer, by weight.
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
SAVER = {  # state of a `ModelCheckpoint`, which deletes the files of earlier best epochs
    "dirpath": str,
    "best_model_path": str,
    "kth_best_model_path": str,
    "last_model_path": str,
    "best_k_models": dict,
}
RECORD = {  # state of an `EpochRecord`
    "history": [
        {"epoch": COUNT, "step": COUNT, "seconds": float, **dict.fromkeys(Speed._fields, float), "lr": float}
        | {"observation": str}
    ],
    "seen": Each(COUNT),
    "seconds": float,
}

VALIDATION = {"scores": Each(float), "alarm": (str, None), "recall": (float, None)}  # of the running epoch
MONITORABLE = Each(Where(Tensor, lambda value: value.ndim == 0, "a number"))

# Names of callbacks in a checkpoint → the settings that add them.
SETTINGS = {StructureSchedule.__qualname__: "structure", EarlyStopping.__qualname__: "patience"}


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder that was trained furthest, None if there is none.

    A damaged one is passed over, with a warning. Raises InputError if all are damaged.
    """
    whole: list[tuple[int, bool, Path]] = []
    damaged: list[InputError] = []
    for path in sorted(folder.glob("*.ckpt")):
        try:
            state = read_checkpoint(path)
            with error_context(f"checkpoint={path}", "it is damaged or of another version"):
                require(state, RESUMED)
        except InputError as error:
            damaged.append(error)
            continue
        # Of one step, `last.ckpt` knows the end of the epoch, and `best.ckpt` only its validation.
        whole.append((state["global_step"], path.name == "last.ckpt", path))
    if damaged and not whole:
        raise damaged[0].with_remedy("remove it to train from the start, or name another folder by hydra.run.dir")
    for refusal in damaged:
        warnings.warn(f"{refusal}; passed over", stacklevel=2)
    return max(whole)[-1] if whole else None


def check_resumable(config: Mapping[str, Any], task: SequenceTask, batches: SequenceDataModule) -> None:
    """Raise InputError unless the checkpoint continues this task and, inside an epoch, the same batches.

    A checkpoint whose epochs are all done passes: it is scored and exported without training.
    """
    path = config["checkpoint"]
    state = read_checkpoint(path)
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "seed"):
        saved, current = state["hyper_parameters"][part], task.hparams[part]
        # Code that only the checkpoint names is not imported.
        if part in COMPLETED and list(targets(saved, part)) == list(targets(current, part)):
            with error_context(f"checkpoint={path}", "it is damaged or of another version"):
                saved, current = COMPLETED[part](saved), COMPLETED[part](current)
        if saved != current and part == "dataset" and _has_other_holdout(saved, current):
            raise InputError(
                f"checkpoint={path}",
                f"was trained with another decision: its validation has {saved['rows']['validation']:,} rows, now it "
                f"has {current['rows']['validation']:,}",
                "set the same decision.holdout, and a guarantee (decision.min_recall, min_precision or max_alerts) "
                "if its run had one",
            )
        if saved != current:
            key = "data" if part == "dataset" else part
            raise InputError(
                f"checkpoint={path}",
                f"was trained with another {key}{_differences(key, saved, current)}",
                f"set the same {key} as its run{_structure_remedy(config, state) if key == 'model' else ''}",
            )
    if state["hyper_parameters"].get("frozen", []) != task.hparams["frozen"]:
        raise InputError(
            f"checkpoint={path}",
            "was trained with other frozen weights",
            "set the same structure as its run, up to the epoch of the checkpoint",
        )
    _check_parts(state, task, path)
    position = state.get(type(batches).__qualname__)
    if position is not None:  # a Trainer without our DataModule saves none
        with error_context(f"checkpoint={path}", "it is damaged; train from the start"):
            require(position, POSITION)
        check_same_batches(f"checkpoint={path}", position, batches.settings())
    epochs, started = config["trainer"]["max_epochs"], _epochs_started(state)
    if epochs is not None and 0 <= epochs < started:
        raise InputError(
            f"checkpoint={path}", f"has started epoch {started} already", f"raise trainer.max_epochs (now {epochs})"
        )


def left_out(path: Path, callbacks: Iterable[Callback]) -> list[str]:
    """Return the settings of a checkpoint's run whose callbacks are not among those of the run that continues it."""
    present = {callback.state_key for callback in callbacks}
    # Another `checkpoint_every` is another saver, which continues nothing.
    names = [name.partition("{")[0] for name in read_checkpoint(path)["callbacks"].keys() - present]
    missing = {name for name in names if name != ModelCheckpoint.__qualname__}
    return sorted(SETTINGS.get(name, f"{name} of trainer.callbacks") for name in missing)


def _structure_remedy(config: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """Return what else to set where a schedule of changes has made the model what it is."""
    had_schedule = any(name.startswith("StructureSchedule") for name in state.get("callbacks", {}))
    return (
        ", and the same structure up to the epoch of the checkpoint" if had_schedule or config.get("structure") else ""
    )


def _has_other_holdout(saved: Any, current: Any) -> bool:
    """Return True if two dataset descriptions differ only in the number of validation rows.

    A guarantee holds out some of them.
    """
    if not isinstance(saved, dict) or not isinstance(saved.get("rows"), dict) or "validation" not in saved["rows"]:
        return False
    rows = {**saved["rows"], "validation": current["rows"]["validation"]}
    return rows != saved["rows"] and {**saved, "rows": rows} == current


def epochs_started(path: Path) -> int:
    """Return the number of epochs that the run of a checkpoint has started, an unfinished one included."""
    state = read_checkpoint(path)
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train from the start"):
        require(state, RESUMED)
    return _epochs_started(state)


def _epochs_started(state: Mapping[str, Any]) -> int:
    """Return the number of epochs that were started, an unfinished one included."""
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


def _check_parts(state: Mapping[str, Any], task: SequenceTask, path: Any) -> None:
    """Raise InputError unless the checkpoint holds what Lightning needs to resume.

    Lightning itself would raise any kind of error on a damaged checkpoint.
    """
    with error_context(f"checkpoint={path}", "it is damaged or of another version; train from the start"):
        require(state, RESUMED)
        require(state.get(LOGGED, {}), MONITORABLE, LOGGED)
        check_weights(state["state_dict"], task.state_dict())
        for name, callback_state in state["callbacks"].items():
            if name.startswith(ModelCheckpoint.__qualname__):
                _check_saver(name, callback_state)
            if name == EpochRecord.__qualname__:
                require(callback_state, RECORD, f"callbacks.{name}")
                # Older checkpoints have none.
                require(callback_state.get("validation"), (VALIDATION, None), f"callbacks.{name}.validation")
        optimizer, schedule = task.make_optimizer(steps=1)
        try:
            optimizer.load_state_dict(copy.deepcopy(state["optimizer_states"][0]))
            schedule.load_state_dict(copy.deepcopy(state["lr_schedulers"][0]))
        except Exception as error:  # PyTorch may raise anything on values of another kind
            raise InputError(None, f"its optimizer cannot resume ({type(error).__name__}: {error})") from None
        fresh, _ = task.make_optimizer(steps=1)
        check_optimizer_state(optimizer, fresh)


def _check_saver(name: str, state: Mapping[str, Any]) -> None:
    """Raise unless the files of a `ModelCheckpoint` are in its folder, so that it never deletes any other file."""
    require(state, SAVER, f"callbacks.{name}")
    files = [state[key] for key in ("best_model_path", "kth_best_model_path", "last_model_path")]
    for file in [*files, *state["best_k_models"]]:
        if file and (not isinstance(file, str) or str(Path(file).parent) != state["dirpath"]):
            raise InputError(f"callbacks.{name}", f"{file} is not in its folder {state['dirpath']}")


def _complete_dataset(description: Mapping[str, Any]) -> Mapping[str, Any]:
    schema = description.get("schema")
    return {**description, "schema": stored_schema(schema).to_dict()} if isinstance(schema, Mapping) else description


def _complete_optimizer(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {**defaults_of(locate(settings["_target_"])), **settings}


# Parts whose settings may lack some in an older checkpoint, which then have the default values.
COMPLETED: dict[str, Callable[[Any], Any]] = {
    "dataset": _complete_dataset,
    "model": resolve_model,
    "loss": resolve_loss,
    "optimizer": _complete_optimizer,
}


def _differences(key: str, saved: Any, current: Any) -> str:
    """Return the settings of `saved` that differ in `current`, as a user types them."""
    if not isinstance(saved, dict) or "_target_" not in saved:
        return ""
    saved, current = _flat(saved), _flat(current)
    changed = [f"{key}.{name}={value}" for name, value in saved.items() if current.get(name) != value]
    return f" ({' '.join(changed)})" if changed else ""


def _flat(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return settings by dotted names, those of an encoder's block among them."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return flat
