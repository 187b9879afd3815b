"""Writing of checkpoint files, each replaced at once or not at all."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO

from seqclf.errors import InputError
from seqclf.system.atomic_files import REMEDY, write_bytes


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint next to its target and renames it, so the earlier one stays until the new one is complete.

    Lightning's default writes to $TMPDIR and moves: across file systems that is a copy, which a kill truncates.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        buffer = io.BytesIO()  # torch's writer does not pass on the error of a full disk
        try:
            torch.save(checkpoint, buffer)
        except Exception as error:  # whatever the state of a callback raises; a buffer in memory raises nothing
            raise InputError(
                None,
                f"a callback puts into checkpoints what cannot be saved ({error})",
                "use plain values and tensors",
            ) from None
        _require_plain(buffer, checkpoint)
        write_checkpoint(Path(path), buffer.getbuffer())


def _require_plain(content: io.BytesIO, checkpoint: Mapping[str, Any]) -> None:
    """Raise InputError unless a checkpoint can be read with `weights_only=True`.

    Only classes of another package can spoil that, and the run would notice it after its last epoch.
    """
    if not _objects(content):
        return
    for name, state in checkpoint.get("callbacks", {}).items():
        buffer = io.BytesIO()
        torch.save(state, buffer)
        if objects := _objects(buffer):
            raise InputError(
                "trainer.callbacks",
                f"the state of {name} holds {objects[0]}, which a checkpoint cannot hold",
                "return plain values and tensors from its state_dict",
            )
    raise InputError(
        None,
        f"a callback puts {_objects(content)[0]} into checkpoints, which cannot hold it",
        "use plain values and tensors",
    )


def _objects(content: io.BytesIO) -> list[str]:
    """Return the names of the classes and functions that unpickling would have to call."""
    content.seek(0)
    return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(content))


def write_checkpoint(path: Path, content: bytes | memoryview) -> None:
    """Replace a checkpoint file by `content`. Raises InputError, with the file to resume from, if the disk refuses."""
    try:
        write_bytes(path, content)
    except OSError as error:
        last = path.with_name("last.ckpt")  # not the best one, which may be many epochs behind
        advice = f"; the one before is complete: resume with checkpoint={last}" if last.is_file() else ""
        raise InputError(path, f"cannot be written ({error.strerror or error})", f"{REMEDY}{advice}") from None
