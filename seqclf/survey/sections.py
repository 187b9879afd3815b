"""A dataset survey as sections for the terminal: problems, thresholds and the order-blind baseline."""

from __future__ import annotations

from collections.abc import Sequence

from seqclf.documents.blocks import Alerts, Section, Table, Text
from seqclf.documents.formatting import score, shortened, warning_lines
from seqclf.evaluation.baseline_scores import best_model
from seqclf.evaluation.metrics import ShownMetric, majority_metrics, metric_title
from seqclf.survey.outlook import ThresholdOutlook
from seqclf.survey.survey import DatasetSurvey

MAX_FIELDS = 5  # shown fields that are scored alone; the JSON file has all
MAX_LABELS = 5  # shown labels of thresholds
MAJORITY = "majority class"


def survey_sections(survey: DatasetSurvey) -> list[Section]:
    """Return the sections that the command `describe` prints, about 30 lines."""
    sections = [_problems(survey), _thresholds(survey.thresholds or ()), _baseline(survey)]
    return [section for section in sections if section is not None]


def _problems(survey: DatasetSurvey) -> Section:
    lines = list(warning_lines(survey.warnings))
    return Section("Problems", [Alerts(lines) if lines else Text("Nothing stood out.")])


def _thresholds(outlooks: Sequence[ThresholdOutlook]) -> Section | None:
    fewest = sorted(outlooks, key=lambda outlook: outlook.rows)[:MAX_LABELS]
    lines = [Text(f"The threshold of {shortened(outlook.label, 40)} would be {outlook}.") for outlook in fewest]
    return Section("Thresholds", lines) if lines else None


def _baseline(survey: DatasetSurvey) -> Section | None:
    split = list(survey.rows)[-1]
    metrics = {name: by_split[split] for name, by_split in (survey.baseline or {}).items() if split in by_split}
    if not metrics or survey.baseline is None:
        return None
    # The rows of each class are those of the models, which are a sample if the split is large.
    support = next(iter(metrics.values())).support_by_class
    largest = max(survey.classes, key=lambda label: survey.classes[label]["train"])
    scores = {MAJORITY: majority_metrics(support, largest, survey.positive), **metrics}
    shown = [ShownMetric(name) for name in ("accuracy", "recall", "f1")]
    if survey.positive is not None:
        shown += [ShownMetric(name, True) for name in ("recall", "average_precision", "auroc")]
    rows = [
        [
            metric_title(metric.name, survey.positive if metric.of_positive else None),
            *(score(metric.value(entry)) for entry in scores.values()),
        ]
        for metric in shown
    ]
    best = best_model(survey.baseline, "average_precision")
    text = f"Scores on {split} of models that ignore the order. A sequence model has to beat {best}."
    alone = sorted((survey.single_field_recall or {}).items(), key=lambda item: -item[1])
    single = [[shortened(name), score(recall)] for name, recall in alone[:MAX_FIELDS]]
    fields = Table({"field alone": "text", "macro recall": "number"}, single)
    return Section(
        "Baseline: without the order of the tokens",
        [Text(text), Table({"": "text", **dict.fromkeys(scores, "number")}, rows), fields if single else None],
    )
