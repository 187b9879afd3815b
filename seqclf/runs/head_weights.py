"""Parts of a trained network that validation rows set, such as the weights of its heads."""

from __future__ import annotations

import io
from pathlib import Path

import torch

from seqclf.batching.split_rows import SplitRows
from seqclf.data.storage.store import Split
from seqclf.documents.terminal import console
from seqclf.models.network import as_network
from seqclf.training.callbacks import write_checkpoint
from seqclf.training.losses import class_weights_of
from seqclf.training.module import SequenceTask


def fit_to_validation(task: SequenceTask, validation: Split, checkpoint: Path) -> None:
    """Let the network of a trained task read the validation rows, and put what they set into its checkpoint file."""
    if not len(validation.labels):
        return
    rows = SplitRows(validation, "", class_weights_of(task.loss, len(task.classes)), task.device)
    text = as_network(task.model).fit_to_validation(rows)
    if text is None:
        return
    console.print(f"heads: {text}", soft_wrap=True)
    state = torch.load(checkpoint, map_location="cpu", weights_only=True)
    state["state_dict"] = {name: tensor.cpu() for name, tensor in task.state_dict().items()}
    content = io.BytesIO()
    torch.save(state, content)
    write_checkpoint(checkpoint, content.getbuffer())
