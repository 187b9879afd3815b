"""Content of the report of a training run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seqclf.data.encoding.described_row import DescribedRow, describe_row
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.results import Evaluation, RunMetrics
from seqclf.reporting.run.mistakes import Mistake, worst_mistakes
from seqclf.reporting.run.page import Report
from seqclf.reporting.run.sources import split_sources
from seqclf.system.versions import package_versions

UNNAMED = "files"  # data.name of conf/data/files.yaml


def run_mistakes(dataset: Dataset, evaluation: Evaluation) -> list[Mistake]:
    """The worst mistakes on the last split."""
    split, outputs = dataset.splits[evaluation.split], evaluation.last

    def described(row: int) -> DescribedRow:
        start, stop = split.sequences.offsets[row : row + 2]
        tokens = {name: values[start:stop] for name, values in split.sequences.fields.items()}
        texts = {} if split.texts is None else split.texts.of_row(row)
        return describe_row(dataset.encoders, str(split.ids[row]), tokens, texts)

    return worst_mistakes(
        outputs.labels,
        evaluation.predicted,
        evaluation.probabilities,
        outputs.lengths,
        dataset.classes,
        described,
    )


def best_epoch(history: Sequence[Mapping[str, Any]], trained_steps: int) -> int | None:
    """The epoch, from 0, after `trained_steps` optimizer steps. None if no epoch ended there."""
    return next((row["epoch"] for row in history if row["step"] == trained_steps), None)


def data_title(data: Mapping[str, Any]) -> str:
    """The name of the data, or that of the training file where the name is the default one of `data=files`.

    `data`: the config of the data, as plain values.

    >>> data_title({"name": "files", "train": "data/cards.csv.gz"}), data_title({"name": "fraud", "train": "cards.csv"})
    ('cards', 'fraud')
    """
    train = data.get("train")
    if data["name"] != UNNAMED or not isinstance(train, str):
        return str(data["name"])
    # A query is no path, and a pattern has no name of its own.
    name = Path(train).name.split(".")[0] if len(train.splitlines()) == 1 else ""
    return name if re.fullmatch(r"[\w -]+", name) else UNNAMED


def run_report(
    config: Mapping[str, Any],
    dataset: Dataset,
    evaluation: Evaluation,
    metrics: RunMetrics,
    history: Sequence[Mapping[str, Any]],
    data_warnings: Sequence[str],
    mistakes: Sequence[Mistake],
) -> Report:
    """The report of a run. `history`: the rows of metrics.csv. `data_warnings`: those of the survey."""
    return Report(
        title=data_title(config["data"]),
        evaluation=evaluation,
        classes=dataset.classes,
        positive=dataset.positive,
        mistakes=mistakes,
        baseline=metrics.baseline,
        no_baseline=metrics.no_baseline,
        next_step=metrics.next_step,
        calibration=metrics.calibration,
        history=history,
        best_epoch=best_epoch(history, metrics.trained_steps),
        warnings=data_warnings,
        config=config,
        versions=package_versions(),
        created=datetime.now().astimezone(),
        sources=split_sources(config["data"]),
        counts=metrics.data,
        holdout_rows=metrics.holdout_rows,
    )
