"""Run a trained model on some rows, and return all stages from raw rows to predicted labels."""

from __future__ import annotations

import numpy as np
import torch

from seqclf.batching.collate import pad
from seqclf.documents.blocks import Table, Text
from seqclf.documents.formatting import NO_VALUE, label_text, probability_text
from seqclf.evaluation.decisions.decision import Decision
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.data_stages import data_stages
from seqclf.walkthrough.heat_map import row_maps
from seqclf.walkthrough.network_stages import network_stages
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage


def inspect_rows(task: SequenceTask, rows: ShownRows, decision: Decision) -> list[Stage]:
    """Move the model of a task to the CPU, run the model on `rows` as one batch, and return all stages."""
    network = task.model.cpu().float().eval()
    arrays, lengths = pad(rows.sequences, np.arange(len(rows)))
    arrays = {field["name"]: arrays[field["name"]] for field in task.hparams["dataset"]["fields"]}
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}, torch.from_numpy(lengths), lengths
    with torch.inference_mode():
        logits = network(*batch).float().numpy()
    members = network.independent_parts()
    of_first = network_stages(members[0], lambda: members[0](*batch), rows)
    return [
        *data_stages(rows, arrays, lengths),
        *of_first,
        _logits(logits, rows, task.classes, len(members)),
        _labels(logits, rows, task.classes, decision),
    ]


def _logits(logits: np.ndarray, rows: ShownRows, classes: list[str], members: int) -> Stage:
    text = (
        "The network ends with one score for each class, the logit. Only the differences between the logits of a row "
        "matter."
    )
    note = f"The stages above are those of the first of {members} networks, whose probabilities are averaged."
    blocks = [Text(note) if members > 1 else None, *row_maps(logits, rows.names, classes, "classes")]
    return Stage("Logits", text, blocks, logits, ("rows", "classes"))


def _labels(logits: np.ndarray, rows: ShownRows, classes: list[str], decision: Decision) -> Stage:
    probabilities, predicted = decision.probabilities(logits), decision.choose(logits)
    table = []
    for row, best, label, values in zip(rows.names, predicted.tolist(), rows.labels, probabilities, strict=True):
        probability = float(values[best])
        answer = NO_VALUE if label is None else f"{label_text(label)}: {'right' if label == classes[best] else 'wrong'}"
        shown = probability_text(round(probability, 4))
        table.append([row, label_text(classes[best]), shown, probability, answer])
    columns = {"row": "text", "predicted": "text", "probability": "number", " ": "bar", "label": "text"}
    text = f"The softmax makes the logits of a row positive, so that they add up to 1. The decision is {decision.rule}"
    if decision.threshold is not None:
        text += f": {decision.positive} is predicted from a probability of {decision.threshold:.3g} on"
    return Stage("Probabilities and labels", f"{text}.", [Table(columns, table)], probabilities, ("rows", "classes"))
