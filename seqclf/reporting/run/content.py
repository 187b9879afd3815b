"""What the report of a run is made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqclf.data.encoding.encoders import decode
from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.results import Outcome
from seqclf.reporting.run.mistakes import Mistake, worst_mistakes
from seqclf.reporting.run.page import Report
from seqclf.system.versions import package_versions


def run_mistakes(dataset: Dataset, outcome: Outcome) -> list[Mistake]:
    """The worst ones on the last split."""
    split, last = dataset.splits[outcome.split], outcome.last

    def spelled(row: int) -> tuple[str, str]:
        start, stop = split.sequences.offsets[row : row + 2]
        steps = {name: values[start:stop] for name, values in split.sequences.fields.items()}
        return str(split.ids[row]), decode(dataset.encoders, steps)

    wrong = (last.labels, outcome.predicted, outcome.probabilities, last.lengths)
    return worst_mistakes(*wrong, dataset.classes, spelled)


def run_report(
    config: Mapping[str, Any],
    dataset: Dataset,
    outcome: Outcome,
    written: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    warnings: Sequence[str],
    mistakes: Sequence[Mistake],
) -> Report:
    """`written`: what metrics.json holds; `history`: a row per epoch; `warnings`: what stood out in the data."""
    return Report(
        title=config["data"]["name"],
        metrics=outcome.metrics,
        classes=dataset.classes,
        positive=dataset.positive,
        decision=outcome.decision,
        labels=outcome.last.labels,
        probabilities=outcome.probabilities,
        mistakes=mistakes,
        baseline=written.get("baseline"),
        calibration=written["calibration"],
        history=history,
        best=next((row["epoch"] for row in history if row["step"] == written["step"]), None),
        warnings=warnings,
        config=config,
        versions=package_versions(),
    )
