"""The sections of a report about the training: its epochs, and its cost, package versions and configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from seqclf.documents.blocks import Block, Code, Folded, Picture, Section, Table, Text
from seqclf.documents.formatting import NO_VALUE, number, percent, score
from seqclf.evaluation.metrics import metric_title
from seqclf.report.charts import learning_curves
from seqclf.report.reported import Reported

CHOSEN = "chosen"  # the epoch whose weights are exported


def epochs_section(reported: Reported) -> Section | None:
    """Return learning curves of loss, macro recall and the monitored metric, and a table of the epochs.

    Return `None` for the report on an evaluation, which has no epochs.
    """
    if not reported.facts.history:
        return None
    monitor = reported.facts.settings["monitor"]
    # Remove duplicates, because loss or recall may be the monitored metric.
    curves = list(dict.fromkeys(["loss", "recall", monitor or "recall"]))
    figure = Picture(
        learning_curves(reported.facts.history, curves, reported.facts.best_epoch),
        f"{', '.join(map(metric_title, curves))} of training and validation by epoch, numbers in the table below",
    )
    metrics = list(dict.fromkeys(["loss", "accuracy", *curves]))
    table = _epoch_table(reported, metrics)
    reason = "last" if monitor is None else f"best by {metric_title(monitor)} on validation"
    text = (
        f"Validation in colour, training in grey. The dashed line is the {CHOSEN} epoch, the {reason}. Epochs "
        "count from 1 here, and from 0 in metrics.csv and in the names of checkpoints. The training loss is that of "
        "batches with noise, dropout and smoothed labels, so it may lie above the validation loss."
    )
    return Section("Epochs", [Text(text, soft=True), figure, table])


def _row(reported: Reported, row: Mapping[str, Any], metrics: Sequence[str]) -> list[object]:
    """The table counts epochs from 1."""
    scores = (score(row.get(f"validation/{name}")) for name in metrics)
    return [row["epoch"] + 1, *scores, CHOSEN if row["epoch"] == reported.facts.best_epoch else ""]


def _epoch_table(reported: Reported, metrics: Sequence[str]) -> Table:
    shown = [
        row for row in reported.facts.history if "validation/loss" in row
    ]  # other epochs are between two validations
    rows = [_row(reported, row, metrics) for row in shown]
    best = next((index for index, row in enumerate(shown) if row["epoch"] == reported.facts.best_epoch), None)
    title = f"Every validation ({len(shown):,})"
    caption = "Scores of each validation"
    columns = {"epoch": "number", **dict.fromkeys(map(metric_title, metrics), "number"), "choice": "text"}
    return Table(columns, rows, strong=best, folded=title, caption=caption)


def provenance_section(reported: Reported) -> Section:
    """Return the package versions and, for a training run, its throughput, memory and configuration."""
    blocks: list[Block] = []
    if history := reported.facts.history:
        last = history[-1]
        blocks.append(
            Text(
                f"{len(history)} epochs. The last: {number(last['tokens_per_s'])} tokens a second without "
                f"padding, padding efficiency {percent(last['padding_efficiency'])}, {number(last['memory_mb'])} "
                "MB of memory."
            )
        )
    if reported.versions:
        versions = ", ".join(f"{name} {version}" for name, version in reported.versions.items())
        blocks.append(Text(versions, soft=True))
    if reported.facts.settings:
        config = yaml.safe_dump(dict(reported.facts.settings), sort_keys=False, allow_unicode=True)
        blocks.append(Folded("Configuration", [Code(config)]))
    return Section("Provenance", blocks or [Text(NO_VALUE)])
