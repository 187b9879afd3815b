"""Safe reading of checkpoints from untrusted sources, and corrections to the checkpoints that Lightning writes.

Classes that a checkpoint names are imported only after its content was checked.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from seqclf.config.targets import Trust, require_trusted, targets
from seqclf.errors import InputError
from seqclf.system.state_validation import COUNT, Each, Where, error_context, require

TARGET = {"_target_": str}
SHAPE = {
    "hyper_parameters": {
        "dataset": dict,
        "model": TARGET,
        "loss": TARGET,
        "optimizer": TARGET,
        "monitor": (str, None),
        "frozen": [str],
        "seed": int,
    },
    "state_dict": Each(Where(Tensor, lambda value: value.layout == torch.strided, "a dense tensor")),
    "global_step": COUNT,
    "epoch": COUNT,
}
DAMAGED = "it is damaged or of another version; train again, or choose another"
# Packages whose code a checkpoint may always name.
TRUSTED = {"model": ("seqclf",), "loss": ("seqclf", "torch.nn")}


def read_checkpoint(path: Any) -> Mapping[str, Any]:
    """Return the content of a checkpoint file. Raises InputError unless seqclf wrote the file."""
    if not Path(path).exists():
        raise InputError(f"checkpoint={path}", "no such file")
    state: Any = None
    if Path(path).is_file():  # reading a FIFO would wait
        with suppress(Exception):  # the unpickler may raise anything on a file that is not a checkpoint
            state = torch.load(path, map_location="cpu", weights_only=True)
    hyper = state.get("hyper_parameters") if isinstance(state, dict) else None
    if not isinstance(hyper, dict) or "dataset" not in hyper:
        raise InputError(f"checkpoint={path}", "is not a seqclf checkpoint", "give RUN/checkpoints/best.ckpt")
    with error_context(f"checkpoint={path}", DAMAGED):
        require(state, SHAPE)
        try:
            json.dumps(hyper)  # the manifest of a bundle stores the settings as JSON
        except (TypeError, ValueError, RecursionError):
            raise InputError("hyper_parameters", "must be plain texts, numbers and lists") from None
    return state


def check_trusted(hyper: Mapping[str, Any], path: Any, trust: Trust) -> None:
    """Raise InputError unless every `_target_` in the model and loss of a checkpoint is of a trusted package.

    Trusted packages are this package, `torch.nn` for the loss, and the packages in `trust`.
    """
    for part, packages in TRUSTED.items():
        for key, target in targets(hyper.get(part), part):
            require_trusted(f"checkpoint={path}: {key}", target, packages, trust)


def check_weights(weights: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise InputError unless the weights of a checkpoint have the names and shapes of the `expected` weights."""
    for name, tensor in expected.items():
        if name not in weights:
            raise InputError(None, f"has no weight {name}, which its settings need")
        if weights[name].shape != tensor.shape:
            raise InputError(None, f"weight {name} is {_sizes(weights[name])}, its settings need {_sizes(tensor)}")
    if unknown := sorted(set(weights) - set(expected)):
        raise InputError(None, f"has the weight {unknown[0]}, which its settings do not know")


def _sizes(tensor: Tensor) -> str:
    return " by ".join(map(str, tensor.shape)) or "a number"


# Corrections to Lightning's checkpoints, so that a resumed run equals an uninterrupted run.

GRADIENTS = "accumulated_gradients"
LOGGED = "logged_values"
TRAINED = "trained_weights"  # key of the weights that the optimizer trains, beside their means in `state_dict`
RECENT = "recent_monitor_values"  # key of the last values of the monitored metric, dict step → value


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


def take_trained(checkpoint: dict[str, Any], prefix: str, is_averaged: bool) -> dict[str, Tensor]:
    """Put the trained weights into the `state_dict` of a checkpoint. Return their means by name, without `prefix`.

    Raises InputError for a checkpoint without them, if the training averages weights (`is_averaged`).
    """
    trained, weights = checkpoint.get(TRAINED, {}), checkpoint["state_dict"]
    if is_averaged and TRAINED not in checkpoint:
        raise InputError("checkpoint", f"has no {TRAINED} to go on with", "train anew, or set optimizer.average=null")
    means = {name.removeprefix(prefix): weights[name] for name in trained}
    checkpoint["state_dict"] = {**weights, **trained}
    return means


def save_gradients(checkpoint: dict[str, Any], model: nn.Module, trainer: pl.Trainer) -> None:
    """Add the accumulated gradients to a checkpoint between two optimizer steps, as the mean over all ranks."""
    batches = trainer.fit_loop.batch_idx + 1
    if batches % trainer.accumulate_grad_batches and batches < trainer.num_training_batches:
        checkpoint[GRADIENTS] = {
            name: trainer.strategy.reduce(weight.grad.clone(), reduce_op="mean")
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }
