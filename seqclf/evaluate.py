"""`python -m seqclf.evaluate`: compute the metrics of a bundle on a labelled file, without PyTorch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command
from seqclf.errors import InputError

if TYPE_CHECKING:
    from seqclf.bundle.runtime import Classifier
    from seqclf.command_options import EvaluateConfig
    from seqclf.data.encoding.token_table import DescribedRow
    from seqclf.data.options import DataOptions
    from seqclf.evaluation.judge import Judged
    from seqclf.evaluation.over_time import PeriodScores
    from seqclf.system.json_result import JsonObject

NO_BASELINE = "a bundle holds none; the run's report.html has the comparison"


@command("evaluate", "seqclf.command_options.EvaluateConfig")
def main(config: EvaluateConfig) -> JsonObject:
    """Predict the rows of `data.test`, and compare the predictions with the labels of the rows."""
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.bundle.runtime import Classifier
    from seqclf.bundle.scoring import labelled_sources, predict_labelled
    from seqclf.data.storage.dataset import check_positive
    from seqclf.data.storage.store import SplitCounts
    from seqclf.documents.blocks import Section
    from seqclf.documents.terminal import console, show_section
    from seqclf.evaluation.decisions.decision import override_threshold
    from seqclf.evaluation.judge import Facts, judge
    from seqclf.evaluation.over_time import check_times, scores_by_period
    from seqclf.evaluation.scores import NETWORK, Scores, write_scores
    from seqclf.report.score_table import show_verdict
    from seqclf.report.sections.breakdowns import period_table
    from seqclf.system.atomic_files import write_output

    output, report = (Path(path) if path else None for path in (config.output, config.report))
    # Check the output paths first, because the predictions of a long file would be lost if the paths were wrong.
    for path in (output, report, Path(config.scores) if config.scores else None):
        if path is not None:
            check_output_path(path)
    classifier = Classifier(config.bundle, device=config.device, threads=config.threads)
    for line in classifier.warnings:
        console.print(line, style="yellow", soft_wrap=True)
    options = _data_options(classifier, config)
    source, label_table = labelled_sources(classifier, options, "test")
    positive = options.positive or classifier.manifest["positive"]
    if positive is not None:
        check_positive(positive, classifier.classes)
    # `config.threshold` is the threshold of the positive label, so the label in the config takes precedence over the
    # bundle's label.
    classifier.decision = override_threshold(classifier.decision, config.threshold, positive, classifier.classes)
    time = _time_column(classifier, config)
    outputs, mistakes, refused, unknown, moved, times = predict_labelled(
        classifier, source, options.label, label_table, group=options.group, time=time, explain=report is not None
    )
    if refused:
        console.print(f"refused {len(refused)} of {len(refused) + len(outputs.labels)} rows; the first: {refused[0]}")
    if times is not None:
        check_times(times, f"by={config.by}", str(time))
    scores = Scores(
        role=NETWORK,
        name=NETWORK,
        model=config.bundle,
        classes=classifier.classes,
        label_type=classifier.schema.label_type,
        positive=positive,
        splits={"test": outputs},
    )
    counts = SplitCounts(used=len(outputs.labels), refused=len(refused), unknown_labels=unknown)
    judged = judge([scores], Facts(no_baseline=NO_BASELINE, data={"test": counts}), classifier.decision)
    if config.scores is not None:
        write_scores(Path(config.scores), scores)
    result, metrics = judged.result, judged.result.metrics
    show_verdict(result)
    lines = [f"moved since training: {each}" for each in moved]
    for line in lines:
        console.print(line, soft_wrap=True)
    periods: list[PeriodScores] = []
    if config.by is not None and times is not None:
        last = judged.outputs["test"]
        shown = classifier.decision.choose(last.logits), classifier.decision.probabilities(last.logits)
        periods = scores_by_period(times, config.by, last.labels, *shown, classifier.classes, result.positive)
        show_section(Section("Over time", [period_table(periods, result.positive)]))
    if report is not None:
        title = f"Evaluation on {Path(source.path).name}"
        _write_report(report, title, config, classifier, judged, mistakes, [*lines, *refused], periods)
    counted = {"refused": len(refused), "unknown_labels": unknown}
    summary: JsonObject = {**metrics.to_dict(), **counted, "provider": classifier.provider}
    if classifier.no_cuda is not None:
        summary["no_cuda"] = classifier.no_cuda
    if moved:
        summary["moved"] = [each.to_dict() for each in moved]
    if periods:
        summary["periods"] = [part.to_dict() for part in periods]
    if output is not None:
        write_output(output, json.dumps({"test": summary}, indent=1) + "\n")
    return summary


def _time_column(classifier: Classifier, config: EvaluateConfig) -> str | None:
    """Return the column of the times of the rows, None without `by`: `time`, or the first column that sorts events."""
    if config.by is None:
        return None
    names = [name for name in (config.time, *classifier.schema.order_by) if name is not None]
    if not names:
        raise InputError(f"by={config.by}", "needs the times of the rows", "name their column: time=COLUMN")
    return names[0]


def _data_options(classifier: Classifier, config: EvaluateConfig) -> DataOptions:
    """Return the options to read the labelled file; null ones are those of the training data."""
    from seqclf.data.options import DataOptions
    from seqclf.data.prepare import with_generated

    schema = classifier.schema
    # With a quote or an encoding that differs from training, the tokens would differ and the metrics would be wrong.
    trained_on = {**classifier.manifest["reader"], "label": schema.label, "id": schema.id}
    missing = {key: value for key, value in trained_on.items() if config.data.get(key) is None}
    return with_generated(DataOptions.build(**{**config.data, **missing, "group_by": schema.group_by}))


def _write_report(
    path: Path,
    title: str,
    config: EvaluateConfig,
    classifier: Classifier,
    judged: Judged,
    mistakes: dict[int, DescribedRow],
    warnings: list[str],
    periods: list[PeriodScores],
) -> None:
    """`mistakes`: dict row index → readable tokens, for the worst misclassified rows. `periods`: scores by time."""
    from datetime import datetime

    from seqclf.report.page import write_report
    from seqclf.report.report import Report, worst_mistakes

    report = Report(
        title=title,
        result=judged.result,
        evaluation=judged.evaluation,
        mistakes=worst_mistakes(judged.evaluation, judged.result.classes, lambda row: mistakes[row]),
        warnings=warnings,
        versions=classifier.manifest["versions"],
        created=datetime.now().astimezone(),
        sources={"test": str(config.data["test"])},
        bundle=str(config.bundle),
        periods=periods,
    )
    write_report(report, path)


if __name__ == "__main__":
    main()
