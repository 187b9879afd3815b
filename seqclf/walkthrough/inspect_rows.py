"""Run a trained model on some rows, and return all stages from raw rows to predicted labels."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from seqclf.batching.collate import pad
from seqclf.documents.blocks import HeatMaps, Table, Text
from seqclf.documents.formatting import NO_VALUE, probability_text
from seqclf.evaluation.decisions.decision import Decision
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.data_stages import data_stages
from seqclf.walkthrough.heat_map import number_map
from seqclf.walkthrough.network_stages import network_stages
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage

MAX_LOGITS = 12  # maximum number of classes in the heat map of the logits


class Inspection(NamedTuple):
    """Stages and predictions of B rows.

    `logits`, `probabilities`: (B, C) arrays. `predicted`: (B,) class numbers.
    """

    stages: list[Stage]
    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray


def inspect_rows(task: SequenceTask, rows: ShownRows, decision: Decision) -> Inspection:
    """Move the model of a task to the CPU, run the model on `rows` as one batch, and return all stages."""
    network = task.model.cpu().float().eval()
    arrays, lengths = pad(rows.sequences, np.arange(len(rows)))
    arrays = {field["name"]: arrays[field["name"]] for field in task.hparams["dataset"]["fields"]}
    batch = {name: torch.from_numpy(array) for name, array in arrays.items()}, torch.from_numpy(lengths), lengths
    with torch.inference_mode():
        logits = network(*batch).float().numpy()
    first, *others = network.independent_parts()  # the members of an ensemble
    stages = [*data_stages(rows, arrays, lengths), *network_stages(first, lambda: first(*batch), rows)]
    probabilities, predicted = decision.probabilities(logits), decision.choose(logits)
    note = f"The stages above are those of the first of {1 + len(others)} networks, whose probabilities are averaged."
    stages.append(_logits(logits, rows, task.classes, note if others else ""))
    stages.append(_labels(probabilities, predicted, rows, task.classes, decision))
    return Inspection(stages, logits, probabilities, predicted)


def _logits(logits: np.ndarray, rows: ShownRows, classes: list[str], note: str) -> Stage:
    text = (
        "The network ends with one score for each class, the logit. Only the differences between the logits of a row "
        "matter."
    )
    shown = np.sort(np.argsort(-logits.max(axis=0), kind="stable")[:MAX_LOGITS])
    left_out = len(classes) - len(shown)
    more = f"{left_out:,} classes of smaller logits are left out" if left_out else ""
    headings, largest = [classes[index] for index in shown], float(np.abs(logits[:, shown]).max())
    heat_map = number_map("", rows.names, logits[:, shown], headings, "row", largest, more)
    return Stage("Logits", text, [Text(note) if note else None, HeatMaps([heat_map])], logits, ("rows", "classes"))


def _labels(
    probabilities: np.ndarray, predicted: np.ndarray, rows: ShownRows, classes: list[str], decision: Decision
) -> Stage:
    table = []
    for row, best, label, values in zip(rows.names, predicted.tolist(), rows.labels, probabilities, strict=True):
        probability = float(values[best])
        answer = NO_VALUE if label is None else f"{label}: {'right' if label == classes[best] else 'wrong'}"
        table.append([row, classes[best], probability_text(round(probability, 4)), probability, answer])
    columns = {"row": "text", "predicted": "text", "probability": "number", " ": "bar", "label": "text"}
    text = f"The softmax makes the logits of a row positive, so that they add up to 1. {_decision_text(decision)}"
    return Stage("Probabilities and labels", text, [Table(columns, table)], probabilities, ("rows", "classes"))


def _decision_text(decision: Decision) -> str:
    if decision.rule == "argmax":
        return "The most probable class is predicted."
    if decision.threshold is None:
        return f"The class is chosen by decision.{decision.rule}."
    return f"decision.{decision.rule} predicts {decision.positive} from a probability of {decision.threshold:.3g} on."
