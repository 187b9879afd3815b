"""Whether a run may go on from a checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from seqclf.batching.continuity import check_continuity
from seqclf.batching.datamodule import SequenceDataModule
from seqclf.build import locate
from seqclf.errors import InputError
from seqclf.learning.task import SequenceTask, check_weights, read_checkpoint


def check_resumable(config: Mapping[str, Any], task: SequenceTask, batches: SequenceDataModule) -> None:
    """Raise unless the checkpoint continues this very task and, inside an epoch, the same batches.

    One whose epochs are all done is scored and exported.
    """
    path = config["checkpoint"]
    state = read_checkpoint(path)
    for part in ("dataset", "model", "loss", "optimizer", "monitor", "seed"):
        was, wanted = _completed(state["hyper_parameters"].get(part)), _completed(task.hparams[part])
        if was != wanted:
            key = "data" if part == "dataset" else part
            raise InputError(
                f"checkpoint={path}: was trained with another {key}{_differences(key, was, wanted)}; "
                f"give the same {key} as its run"
            )
    check_weights(task, state, path)
    check_continuity(f"checkpoint={path}", state.get(type(batches).__qualname__, {}), batches.settings())
    epochs, begun = config["trainer"]["max_epochs"], _epochs_begun(state)
    if epochs is not None and 0 <= epochs < begun:
        raise InputError(f"checkpoint={path}: has begun epoch {begun} already; raise trainer.max_epochs (now {epochs})")


def _epochs_begun(state: Mapping[str, Any]) -> int:
    """The number of epochs that are trained, the one that a checkpoint was written inside of included."""
    return state["loops"]["fit_loop"]["epoch_progress"]["current"]["started"]


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
