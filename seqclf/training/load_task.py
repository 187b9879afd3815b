"""Loading of a task from its checkpoint, and the file of the finished model of a run."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor

from seqclf.config.build import Trust
from seqclf.errors import InputError, first_line
from seqclf.models.ensemble import networks_of
from seqclf.models.network import SequenceNetwork
from seqclf.system.state_validation import error_context, require
from seqclf.training.callbacks import write_checkpoint
from seqclf.training.checkpoint import DAMAGED, TENSORS, check_trusted, check_weights, read_checkpoint
from seqclf.training.task import SequenceTask

BEFORE = "before_validation"  # key of the buffers that validation rows set, with their values while the model trained


def load_task(path: Any, trust: Trust = ()) -> SequenceTask:
    """Load a task from its checkpoint, on the CPU and in evaluation mode.

    `trust`: names of third-party packages that the model and loss of the checkpoint may use, or True for any package.
    Raises InputError if the file is not a checkpoint, or if its settings and weights do not match.
    """
    state = read_checkpoint(path)
    hyper, weights = state["hyper_parameters"], state["state_dict"]
    check_trusted(hyper, path, trust)
    with error_context(f"checkpoint={path}", DAMAGED):
        try:
            task = SequenceTask(**hyper)
            check_weights(weights, task.state_dict())
            task.load_state_dict(weights)
        except InputError:
            raise
        except Exception as error:  # settings of another version may fail in any way
            raise InputError(None, f"its model cannot be built ({type(error).__name__}: {first_line(error)})") from None
    task.trained_steps = state["global_step"]
    return task.eval()


def save_model(path: Path, task: SequenceTask, epoch: int, before: Mapping[str, Tensor]) -> None:
    """Save a finished model. `before`: buffers of the network that validation rows set, with their values before."""
    state = {
        "pytorch-lightning_version": pl.__version__,
        "epoch": epoch,
        "global_step": task.trained_steps,
        "state_dict": {name: tensor.cpu() for name, tensor in task.state_dict().items()},
        "hyper_parameters": dict(task.hparams),
        BEFORE: {name: tensor.cpu() for name, tensor in before.items()},
    }
    content = io.BytesIO()
    torch.save(state, content)
    write_checkpoint(path, content.getbuffer())


def lacks_validation(path: Path, task: SequenceTask) -> bool:
    """Return True if a checkpoint is of a training, and validation rows set more in the finished model."""
    own = (type(part).fit_to_validation for part in networks_of(task.model))
    return BEFORE not in read_checkpoint(path) and any(hook is not SequenceNetwork.fit_to_validation for hook in own)


def set_by_validation(path: Path) -> Mapping[str, Tensor]:
    """Return the buffers of a network that validation rows set in a checkpoint, with their values before."""
    found = read_checkpoint(path).get(BEFORE, {})
    with error_context(f"checkpoint={path}", DAMAGED):
        require(found, TENSORS, BEFORE)
    return found
