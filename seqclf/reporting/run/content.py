"""Content of the report of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from seqclf.bundle.brief_explainer import BriefExplainer
from seqclf.bundle.runtime import Classifier
from seqclf.data.data_title import data_title
from seqclf.data.encoding.described_row import DescribedRow, describe_row
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.results import Evaluation, RunMetrics
from seqclf.reporting.run.mistakes import Mistake, worst_mistakes
from seqclf.reporting.run.page import Report
from seqclf.reporting.run.sources import split_sources
from seqclf.system.versions import package_versions


def run_mistakes(dataset: Dataset, evaluation: Evaluation, bundle: Path | None) -> list[Mistake]:
    """The worst mistakes on the last split, explained if there is a bundle."""
    explain = None if bundle is None else BriefExplainer(Classifier(bundle, device="cpu"))
    split, outputs = dataset.splits[evaluation.split], evaluation.last

    def described(row: int) -> DescribedRow:
        start, stop = split.sequences.offsets[row : row + 2]
        tokens = {name: values[start:stop] for name, values in split.sequences.fields.items()}
        texts = {} if split.texts is None else split.texts.of_row(row)
        described_row = describe_row(dataset.encoders, str(split.ids[row]), tokens, texts)
        if explain is None:
            return described_row
        contributions = explain(tokens, int(evaluation.predicted[row]), described_row.table.positions)
        return described_row._replace(contributions=contributions)

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
        title=data_title(config["data"]["name"], config["data"].get("train")),
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
        halting=metrics.halting,
    )
