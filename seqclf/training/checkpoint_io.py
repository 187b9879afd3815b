"""Writing of checkpoint files, each replaced at once or not at all."""

from __future__ import annotations

import io
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
        torch.save(checkpoint, buffer)
        write_checkpoint(Path(path), buffer.getbuffer())


def write_checkpoint(path: Path, content: bytes | memoryview) -> None:
    """Replace a checkpoint file by `content`. Raises InputError, with the file to resume from, if the disk refuses."""
    try:
        write_bytes(path, content)
    except OSError as error:
        last = path.with_name("last.ckpt")  # not the best one, which may be many epochs behind
        advice = f"; the one before is complete: resume with checkpoint={last}" if last.is_file() else ""
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); {REMEDY}{advice}") from None
