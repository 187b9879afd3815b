"""Checks that a checkpoint can be resumed with the config of the current run."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.resume_settings import POSITION, check_same_batches
from seqclf.config.documentation import flat_keys
from seqclf.errors import InputError
from seqclf.settings.override_text import hydra_value
from seqclf.system.state_validation import COUNT, Each, error_context, require
from seqclf.training.checkpoint import check_weights, read_checkpoint
from seqclf.training.exact_resume import LOGGED, RECENT
from seqclf.training.task import SequenceTask

RESUMED = {  # what a checkpoint needs beside its weights
    "loops": {"fit_loop": {"epoch_progress": {"current": {"started": COUNT}}}},
    "callbacks": Each(dict),
    "optimizer_states": list,
    "lr_schedulers": list,
    LOGGED: dict,
    RECENT: dict,
}
SAVER = {  # shape of the state of a `ModelCheckpoint`, which deletes the files of earlier best epochs
    "dirpath": str,
    "best_model_path": str,
    "kth_best_model_path": str,
    "last_model_path": str,
    "best_k_models": dict,
}
DAMAGED = "it is damaged or of another version; train from the start"
CONFIG_KEYS = {"dataset": "data", "frozen": "structure"}  # dict hyperparameter → config key, where the names differ


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the checkpoint in a folder with the most optimizer steps, None without one. Damaged ones are skipped.

    Raises InputError if all checkpoints are damaged.
    """
    whole: list[tuple[int, bool, Path]] = []
    damaged: list[InputError] = []
    for path in sorted(folder.glob("*.ckpt")):
        try:
            state = read_checkpoint(path)
            _require_resumable(state, path)
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
    where, state = f"checkpoint={path}", read_checkpoint(path)
    _require_resumable(state, path)
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
    epochs, started = config["trainer"]["max_epochs"], _epochs_started(state)
    if epochs is not None and 0 <= epochs < started:
        raise InputError(where, f"has started epoch {started} already", f"raise trainer.max_epochs (now {epochs})")


def epochs_started(path: Path) -> int:
    """Return the number of epochs that the run of a checkpoint file has started, including an unfinished epoch."""
    state = read_checkpoint(path)
    _require_resumable(state, path)
    return _epochs_started(state)


def _require_resumable(state: Mapping[str, Any], path: Any) -> None:
    if "loops" not in state:  # the model of all rows (data.split.fold=all)
        raise InputError(f"checkpoint={path}", "holds a model, and no training to resume", f"set start={path}")
    with error_context(f"checkpoint={path}", DAMAGED):
        require(state, RESUMED)


def _epochs_started(state: Mapping[str, Any]) -> int:
    """Return the number of started epochs from the content of a checkpoint, including an unfinished epoch."""
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


def _check_same_settings(where: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "seed", "frozen"):
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
    """A `ModelCheckpoint` may delete the files in its state, which must be in its own folder."""
    require(state, SAVER, f"callbacks.{name}")
    files = [state[key] for key in ("best_model_path", "kth_best_model_path", "last_model_path")]
    for file in [*files, *state["best_k_models"]]:
        if file and (not isinstance(file, str) or str(Path(file).parent) != state["dirpath"]):
            raise InputError(f"callbacks.{name}", f"{file} is not in its folder {state['dirpath']}")
