"""Checkpoint files: written whole, and read safely. Their classes are imported after the content was checked."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from torch import Tensor

from seqclf.config.build import Trust, require_trusted
from seqclf.errors import InputError, first_line
from seqclf.system.atomic_files import REMEDY, write_bytes
from seqclf.system.state_validation import COUNT, Each, Where, error_context, require

TARGET = {"_target_": str}
TENSORS = Each(Where(Tensor, lambda value: value.layout == torch.strided, "a dense tensor"))
PARTS = {"model": TARGET, "loss": TARGET, "optimizer": TARGET, "metrics": [TARGET]}
SHAPE = {
    "hyper_parameters": {"dataset": dict, **PARTS, "monitor": (str, None), "frozen": [str], "seed": int},
    "state_dict": TENSORS,
    "global_step": COUNT,
    "epoch": COUNT,
}
DAMAGED = "it is damaged or of another version; train again, or choose another"
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
        raise InputError(f"checkpoint={path}", "is not a seqclf checkpoint", "give RUN/model.ckpt")
    with error_context(f"checkpoint={path}", DAMAGED):
        require(state, SHAPE)
        try:
            json.dumps(hyper)  # the manifest of a bundle stores the settings as JSON
        except (TypeError, ValueError, RecursionError):
            raise InputError("hyper_parameters", "must be plain texts, numbers and lists") from None
    return state


def check_trusted(hyper: Mapping[str, Any], path: Any, trust: Trust) -> None:
    """Raise InputError unless every `_target_` in the model and loss is of this package, torch.nn (loss) or `trust`."""
    for part, packages in TRUSTED.items():
        require_trusted(hyper.get(part), f"checkpoint={path}: {part}", packages, trust)


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


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint to a temporary file in the same folder, then renames it over the previous one.

    Lightning writes to $TMPDIR and moves the file. Between two file systems such a move is a copy, and a killed process
    leaves a truncated copy.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        # Write to a buffer first, because torch.save does not report a full disk when it writes to a file.
        buffer = io.BytesIO()
        try:
            torch.save(checkpoint, buffer)
            buffer.seek(0)
            # `torch.load` with `weights_only=True` would reject such objects, but only after the last epoch.
            refused = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(buffer))
        except Exception as error:  # pickling the state of a callback may raise any exception
            refused = [first_line(error)]
        if refused:
            problem = f"the state of one cannot be in a checkpoint ({refused[0]})"
            raise InputError("trainer.callbacks", problem, "return plain values and tensors from its state_dict")
        write_checkpoint(Path(path), buffer.getbuffer())


def write_checkpoint(path: Path, content: bytes | memoryview) -> None:
    """Replace a checkpoint file, or raise an InputError that names the last complete checkpoint to resume from."""
    try:
        write_bytes(path, content)
    except OSError as error:
        last = path.with_name("last.ckpt")  # do not suggest best.ckpt, which may be many epochs old
        advice = f"; the one before is complete: resume with checkpoint={last}" if last.is_file() else ""
        raise InputError(path, f"cannot be written ({error.strerror or error})", f"{REMEDY}{advice}") from None
