"""Loading of a task from its checkpoint."""

from __future__ import annotations

from typing import Any

from seqclf.config.targets import Trust
from seqclf.errors import InputError, first_line
from seqclf.system.state_validation import error_context
from seqclf.training.checkpoint import DAMAGED, check_trusted, check_weights, read_checkpoint
from seqclf.training.task import SequenceTask


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
    task.is_fitted = True
    return task.eval()
