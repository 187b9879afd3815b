"""Run a trained model on some rows, and return all stages from raw rows to predicted labels."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from seqclf.batching.collate import pad
from seqclf.documents.blocks import Block, HeatMaps, Table, Text
from seqclf.documents.formatting import probability_text, shortened
from seqclf.evaluation.decisions.decision import Decision
from seqclf.models.ensemble import Ensemble
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.data_stages import MAX_NAME_CHARACTERS, data_stages
from seqclf.walkthrough.heat_map import ShownBatch, row_map
from seqclf.walkthrough.network_stages import network_stages
from seqclf.walkthrough.recording import as_array, record
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import Stage

MAX_LOGITS = 12  # maximum number of classes in the heat map of the logits
MAX_CLASSES = 5  # shown probabilities of each row, which are the largest ones


class Inspection(NamedTuple):
    """Stages and predictions of B rows.

    `lengths`: (B,) number of tokens of each row. `logits`, `probabilities`: (B, C) arrays. `predicted`: (B,) class
    numbers.
    """

    stages: list[Stage]
    lengths: np.ndarray
    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray


def inspect_rows(task: SequenceTask, rows: ShownRows, decision: Decision) -> Inspection:
    """Move the model of a task to the CPU, run the model on `rows` as one batch, and return all stages."""
    network = task.model.cpu().float().eval()
    arrays, lengths = pad(rows.sequences, np.arange(len(rows)))
    fields = {field["name"]: torch.from_numpy(arrays[field["name"]]) for field in task.hparams["dataset"]["fields"]}
    output, calls = record(network, lambda: network(fields, torch.from_numpy(lengths), lengths))
    logits = as_array(output)
    probabilities, predicted = decision.probabilities(logits), decision.choose(logits)
    stages = [
        *data_stages(rows, {name: arrays[name] for name in fields}, lengths),
        *network_stages(network, calls, ShownBatch(rows.names, lengths, rows.token_texts)),
        _logits(logits, predicted, rows, task),
        _labels(probabilities, predicted, rows, task, decision),
    ]
    return Inspection(stages, lengths, logits, probabilities, predicted)


def _logits(logits: np.ndarray, predicted: np.ndarray, rows: ShownRows, task: SequenceTask) -> Stage:
    text = (
        "A linear layer turns the vector of a row into one score for each class, the logit. Only the differences "
        "between the logits of a row matter."
    )
    note = ""
    if isinstance(task.model, Ensemble):
        count = len(task.model.members)
        note = f"The stages above are those of the first of {count} networks. The logits give the mean probabilities."
    shown = np.sort(np.argsort(-logits.max(axis=0), kind="stable")[:MAX_LOGITS]).tolist()
    headings = [shortened(task.classes[index], 20) for index in shown]
    marked = [shown.index(index) if index in shown else -1 for index in predicted.tolist()]
    heat_map = row_map(logits[:, shown], rows.names, headings, marked)
    if len(shown) < len(task.classes):
        more = f"the {len(shown)} of {len(task.classes):,} classes with the largest values"
        heat_map = replace(heat_map, more=more)
    blocks: list[Block] = [Text("A frame marks the predicted class.", soft=True), HeatMaps([heat_map])]
    return Stage("Logits", text, blocks, logits, ("rows", "classes"), note=note)


def _labels(
    probabilities: np.ndarray, predicted: np.ndarray, rows: ShownRows, task: SequenceTask, decision: Decision
) -> Stage:
    names = [shortened(name, MAX_NAME_CHARACTERS) for name in task.classes]
    labelled = any(label is not None for label in rows.labels)
    table = []
    for row, best, label, values in zip(rows.names, predicted.tolist(), rows.labels, probabilities, strict=True):
        others = [index for index in np.argsort(-values, kind="stable").tolist() if index != best][: MAX_CLASSES - 1]
        next_classes = ", ".join(f"{names[index]} {values[index]:.4f}" for index in others)
        verdict = "right" if label == task.classes[best] else "wrong"
        answer = [] if label is None else [f"{shortened(label, MAX_NAME_CHARACTERS)}: {verdict}"]
        probability = float(values[best])
        cells = [row, names[best], probability_text(round(probability, 4)), probability, next_classes]
        table.append([*cells, *answer])
    columns = {"row": "text", "predicted": "text", "probability": "number", " ": "bar", "next classes": "text"}
    columns |= {"label": "text"} if labelled else {}
    text = f"The softmax makes the logits of a row positive, so that they add up to 1. {_decision_text(decision)}"
    return Stage("Probabilities and labels", text, [Table(columns, table)], probabilities, ("rows", "classes"))


def _decision_text(decision: Decision) -> str:
    scaled = ""
    if decision.temperature != 1:
        scaled = f" Logits are divided by the temperature {decision.temperature:.3g} before."
    if decision.rule == "argmax":
        return f"The most probable class is predicted.{scaled}"
    if decision.threshold is not None:
        return (
            f"{decision.positive} is predicted from a probability of {decision.threshold:.3g} on, as "
            f"decision.{decision.rule} has set it.{scaled}"
        )
    return f"The class is chosen by decision.{decision.rule}.{scaled}"
