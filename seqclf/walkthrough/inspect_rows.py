"""Run a trained model on some rows, and return all stages from raw rows to predicted labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from seqclf.batching.collate import pad
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.field_spec import UNKNOWN_IDS
from seqclf.evaluation.decision import Decision
from seqclf.models.conv_recurrent import ConvRecurrent
from seqclf.models.ensemble import Ensemble
from seqclf.models.recurrent import Recurrent
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.network_stages import network_stages
from seqclf.walkthrough.recording import BatchView, Recording, as_array, record
from seqclf.walkthrough.shown_rows import ShownRows
from seqclf.walkthrough.stages import (
    ROW_NAME,
    ClassScores,
    EncodedRows,
    FieldTokens,
    MemberScores,
    PaddedBatch,
    RawRows,
    Stage,
    active_rows,
)

SHOWN_CHANNELS = 3  # shown channels of a number field


def data_stages(
    rows: ShownRows, fields: Mapping[str, np.ndarray], lengths: np.ndarray, may_pack: bool = True
) -> Iterator[Stage]:
    """Yield the stages before the network: raw rows, encoded tokens and the padded batch.

    `fields`: dict field → padded array of the batch. `lengths`: (B,) number of tokens of each row. `may_pack`: False if
    the network cannot read packed sequences.
    """
    yield _raw(rows)
    encoded = [[_field_tokens(rows, row, encoder) for encoder in rows.encoders.values()] for row in range(len(rows))]
    yield _encoded(rows, encoded)
    yield _padded(encoded, fields, lengths, may_pack)


def _raw(rows: ShownRows) -> Stage:
    shown = []
    names = rows.given_names
    for row in range(len(rows)):
        # Prepared data does not keep all original cells. The other cells are decoded from the encoded tokens.
        cells = rows.raw[row]
        decoded = {
            name: encoder.token_separator.join(encoder.decode(rows.fields_of(row)))
            for name, encoder in rows.encoders.items()
            if name not in cells
        }
        shown.append({ROW_NAME: names[row], **{name: cells.get(name, decoded.get(name, "")) for name in rows.encoders}})
    text = "Each row is one sequence. Sequences have different lengths, and nothing is cut or filled up yet."
    if (rows.original_lengths > rows.sequences.lengths).any():
        text += " Tokens beyond data.max_length are left out from the next stage on."
    return Stage("Raw rows", text, RawRows(shown, rows.labels, rows.original_lengths))


def _encoded(rows: ShownRows, encoded: list[list[FieldTokens]]) -> Stage:
    kinds = {encoder.spec()["kind"] for encoder in rows.encoders.values()}
    sentences = ["A network computes with numbers, so every token becomes one."]
    if kinds & {"category", "bag"}:
        sentences.append(
            "The vocabulary was learned from the training rows and gives each value an id. A value that was not among "
            "them is unknown, and all unknown values share one id."
        )
    if "number" in kinds:
        sentences.append("Numbers are scaled by the mean and the standard deviation of the training rows.")
    return Stage("Encoded tokens", " ".join(sentences), EncodedRows(encoded))


def _field_tokens(rows: ShownRows, row: int, encoder: FieldEncoder) -> FieldTokens:
    name = encoder.field.name
    values = rows.fields_of(row)[name]
    given = rows.elements.get(name)
    tokens = encoder.decode(rows.fields_of(row)) if given is None else given[row]
    spec = encoder.spec()
    if spec["kind"] == "category":
        return FieldTokens(name, tokens, [str(id) for id in values.tolist()], values == UNKNOWN_IDS["category"])
    if spec["kind"] == "bag":
        encoded = [", ".join(str(id) for id in ids if id) or "none" for ids in values.tolist()]
        return FieldTokens(name, tokens, encoded, (values == UNKNOWN_IDS["bag"]).any(axis=1))
    return FieldTokens(name, tokens, [_channels_text(channels) for channels in values], np.zeros(len(values), bool))


def _channels_text(channels: np.ndarray) -> str:
    shown = ", ".join(f"{value:.2f}" for value in channels[:SHOWN_CHANNELS])
    return f"{shown}, …" if len(channels) > SHOWN_CHANNELS else shown


def _padded(
    encoded: list[list[FieldTokens]], fields: Mapping[str, np.ndarray], lengths: np.ndarray, may_pack: bool
) -> Stage:
    longest = int(lengths.max())
    cells = [[*row[0].encoded, *[""] * (longest - len(row[0].encoded))] for row in encoded]
    padding = 1 - lengths.sum() / (len(lengths) * longest)
    text = "A batch is one rectangle of numbers. "
    if padding:
        text += (
            f"The {len(lengths)} rows are filled up to the longest, {longest} tokens, so {padding:.1%} of the "
            "cells are padding. The lengths travel along: every later stage knows which cells are real, and no stage "
            "reads the others. "
        )
    else:
        text += "All rows are of one length here, so nothing has to be filled up. "
    text += "The bars show the active batch size: the rows that still have a token at each position."
    if may_pack:
        text += " A packed sequence computes these rows only."
    inputs = [(name, str(values.dtype), values.shape) for name, values in {**fields, "lengths": lengths}.items()]
    content = PaddedBatch(encoded[0][0].name, cells, lengths, active_rows(lengths), inputs, may_pack)
    return Stage("Padded batch", text, content, (len(lengths), longest), ("rows", "tokens"))


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
    names = [field["name"] for field in task.hparams["dataset"]["fields"]]
    fields = {name: torch.from_numpy(arrays[name]) for name in names}
    output, recorded = record(network, lambda: network(fields, torch.from_numpy(lengths), lengths))
    logits = as_array(output)
    probabilities, predicted = decision.probabilities(logits), decision.choose(logits)
    batch = BatchView(lengths, rows.tokens)
    modules = list(network.modules())
    # Convolutions read padded rows, and a recurrence on top of convolutions reads shorter sequences. Therefore only a
    # model with a recurrence and without convolutions can pack the rows of the batch.
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
