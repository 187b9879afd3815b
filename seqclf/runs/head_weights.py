"""Parts of a trained network that validation rows set, such as the weights of its heads."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from seqclf.batching.split_rows import SplitRows
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console
from seqclf.training.callbacks import write_checkpoint
from seqclf.training.losses import class_weights_of
from seqclf.training.module import SequenceTask


def rows_for(task: SequenceTask, validation: Split) -> SplitRows:
    """Return the validation rows as the network of a task reads them after the training."""
    return SplitRows(validation, "", class_weights_of(task.loss, len(task.classes)), task.device)


def set_by_validation(task: SequenceTask, validation: Split) -> str | None:
    """Let the network of a trained task read the validation rows. Returns a text about what they set, or None."""
    rows = rows_for(task, validation)
    return task.model.fit_to_validation(rows) if len(rows) else None


def fit_to_validation(task: SequenceTask, validation: Split, checkpoint: Path) -> bool:
    """Call `set_by_validation`, and put what the rows set into the checkpoint. Returns False if they set nothing."""
    text = set_by_validation(task, validation)
    if text is None:
        return False
    console.print(f"heads: {text}", soft_wrap=True)
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state["state_dict"] = {name: tensor.cpu() for name, tensor in task.state_dict().items()}
    content = io.BytesIO()
    torch.save(state, content)
    write_checkpoint(checkpoint, content.getbuffer())
    return True
