"""Whether a run may go on from a checkpoint."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from seqclf.batching.continuity import check_continuity
from seqclf.batching.datamodule import SequenceDataModule
from seqclf.build import locate
from seqclf.errors import InputError
from seqclf.learning.task import SequenceTask, read_checkpoint


def check_resumable(config: Mapping[str, Any], task: SequenceTask, batches: SequenceDataModule) -> None:
    """Raise unless the checkpoint continues this very task, has epochs left and, inside an epoch, the same batches."""
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
    check_continuity(f"checkpoint={path}", state.get(type(batches).__qualname__, {}), batches.settings())
    epochs = config["trainer"]["max_epochs"]
    if epochs is not None and 0 <= epochs <= state["epoch"] + 1:
        raise InputError(
            f"checkpoint={path}: has trained {state['epoch'] + 1} epochs already; "
            f"raise trainer.max_epochs (now {epochs})"
        )


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
