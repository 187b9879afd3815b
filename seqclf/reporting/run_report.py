"""report.html of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from seqclf.data.dataset import Dataset
from seqclf.data.encoders import spell
from seqclf.learning.decisions import Decision
from seqclf.learning.judging import Scored
from seqclf.reporting.report_page import Report, write_report
from seqclf.reporting.worst import Mistake, worst_mistakes


def run_mistakes(dataset: Dataset, scored: Scored, decision: Decision) -> list[Mistake]:
    """The worst ones on the last split, of which `scored` is."""
    split = dataset.splits[list(dataset.splits)[-1]]
    probabilities = decision.probabilities(scored.logits)
    predicted = decision.choose(scored.logits)

    def spelled(row: int) -> tuple[str, str]:
        start, stop = split.sequences.offsets[row : row + 2]
        steps = {name: values[start:stop] for name, values in split.sequences.fields.items()}
        return str(split.ids[row]), spell(dataset.encoders, steps)

    return worst_mistakes(scored.labels, predicted, probabilities, scored.lengths, dataset.classes, spelled)


def report_run(
    config: Mapping[str, Any],
    dataset: Dataset,
    scored: Scored,
    decision: Decision,
    written: Mapping[str, Any],
    history: Sequence[Mapping[str, Any]],
    warnings: Sequence[str],
    versions: Mapping[str, str],
    mistakes: Sequence[Mistake],
    path: Path,
) -> None:
    """`scored`: of the last split; `written`: what metrics.json holds; `history`: a row per epoch."""
    metrics = {split: written[split] for split in dataset.splits}
    report = Report(
        title=config["data"]["name"],
        metrics=metrics,
        classes=dataset.classes,
        positive=dataset.positive,
        decision=decision,
        labels=scored.labels,
        probabilities=decision.probabilities(scored.logits),
        mistakes=mistakes,
        baseline=written.get("baseline"),
        calibration=written["calibration"],
        history=history,
        best=next((row["epoch"] for row in history if row["step"] == written["step"]), None),
        warnings=warnings,
        config=config,
        versions=versions,
    )
    write_report(report, path)
