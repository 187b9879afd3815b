"""Rows followed through a trained task: all stages from raw rows to labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from seqclf.batching.collate import pad
from seqclf.evaluation.decision import Decision
from seqclf.models.conv_recurrent import ConvRecurrent
from seqclf.models.ensemble import Ensemble
from seqclf.models.recurrent import Recurrent
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.data_stages import data_stages
from seqclf.walkthrough.network_stages import network_stages
from seqclf.walkthrough.recording import BatchView, Recording, as_array, record
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import ClassScores, MemberScores, Stage


class Inspection(NamedTuple):
    """Stages of B rows, and their result: `logits` and `probabilities` (B, C), `predicted` (B,) classes."""

    stages: list[Stage]
    lengths: np.ndarray
    logits: np.ndarray
    probabilities: np.ndarray
    predicted: np.ndarray


def inspect_rows(task: SequenceTask, rows: ShownRows, decision: Decision) -> Inspection:
    """Run a task on `rows` as one batch, and return every stage of it. The task is moved to the CPU."""
    network = task.model.cpu().float().eval()
    arrays, lengths = pad(rows.sequences, np.arange(len(rows)))
    names = [field["name"] for field in task.hparams["dataset"]["fields"]]
    fields = {name: torch.from_numpy(arrays[name]) for name in names}
    output, recorded = record(network, lambda: network(fields, torch.from_numpy(lengths), lengths))
    logits = as_array(output)
    probabilities, predicted = decision.probabilities(logits), decision.choose(logits)
    batch = BatchView(lengths, rows.tokens)
    modules = list(network.modules())
    # Convolutions read the padded rows, and the recurrence above them shorter ones.
    may_pack = any(isinstance(module, Recurrent) for module in modules)
    may_pack &= not any(isinstance(module, ConvRecurrent) for module in modules)
    stages = [
        *data_stages(rows, {name: arrays[name] for name in names}, lengths, may_pack),
        *network_stages(network, recorded, batch),
        *_members(network, recorded, task.classes),
        *_results(logits, probabilities, predicted, task.classes, rows.labels, decision),
    ]
    return Inspection(stages, lengths, logits, probabilities, predicted)


def _members(network: nn.Module, recorded: Recording, classes: Sequence[str]) -> Iterator[Stage]:
    if not isinstance(network, Ensemble):
        return

    logits = [recorded.output(f"members.{index}") for index in range(len(network.members))]
    members = as_array(torch.stack(logits).float().softmax(dim=-1))
    text = (
        f"The stages above are those of the first of {len(members)} networks of one design, which began with different "
        "weights. Each gives probabilities, and the ensemble takes their mean."
    )
    content = MemberScores(members, members.mean(axis=0), classes)
    yield Stage("Members of the ensemble", text, content, members.shape, ("members", "rows", "classes"), "members")


def _results(
    logits: np.ndarray,
    probabilities: np.ndarray,
    predicted: np.ndarray,
    classes: Sequence[str],
    labels: Sequence[str | None],
    decision: Decision,
) -> Iterator[Stage]:
    axes = ("rows", "classes")
    text = (
        "A linear layer turns the vector of a row into one score for each class, the logit. Only the differences "
        "between the logits of a row matter."
    )
    yield Stage("Logits", text, ClassScores(logits, classes, predicted, labels, False), logits.shape, axes)
    text = f"The softmax makes the logits of a row positive, so that they add up to 1. {_decision_text(decision)}"
    scores = ClassScores(probabilities, classes, predicted, labels, True)
    yield Stage("Probabilities and labels", text, scores, probabilities.shape, axes)


def _decision_text(decision: Decision) -> str:
    scaled = (
        f" Logits are divided by the temperature {decision.temperature:.3g} before."
        if decision.temperature != 1
        else ""
    )
    if decision.rule == "argmax":
        return f"The most probable class is predicted.{scaled}"
    if decision.threshold is not None:
        return (
            f"{decision.positive} is predicted from a probability of {decision.threshold:.3g} on, as "
            f"decision.{decision.rule} has set it.{scaled}"
        )
    return f"The class is chosen by decision.{decision.rule}.{scaled}"
