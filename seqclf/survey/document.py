"""A dataset survey as sections for the terminal: problems, thresholds and the order-blind baseline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from seqclf.documents.blocks import Alerts, Section, Table, Text
from seqclf.documents.formatting import score, shortened, warning_lines
from seqclf.evaluation.metrics import ClassificationMetrics, ShownMetric, classification_metrics, metric_title
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
    models = {} if survey.baseline is None else survey.baseline.models
    metrics = {name: by_split[split] for name, by_split in models.items() if split in by_split}
    if not metrics or survey.baseline is None:
        return None
    # The rows of each class are those of the models, which are a sample if the split is large.
    majority = _majority_metrics(survey, next(iter(metrics.values())).support_by_class)
    scores, shown = {MAJORITY: majority, **metrics}, [ShownMetric(name) for name in ("accuracy", "recall", "f1")]
    if survey.positive is not None:
        shown += [ShownMetric(name, True) for name in ("recall", "average_precision", "auroc")]
    rows = [
        [
            metric_title(metric.name, survey.positive if metric.of_positive else None),
            *(score(metric.value(entry)) for entry in scores.values()),
        ]
        for metric in shown
    ]
    text = f"Scores on {split} of models that ignore the order. A sequence model has to beat {survey.baseline.model}."
    alone = sorted((survey.single_field_recall or {}).items(), key=lambda item: -item[1])
    single = [[shortened(name), score(recall)] for name, recall in alone[:MAX_FIELDS]]
    fields = Table({"field alone": "text", "macro recall": "number"}, single)
    return Section(
        "Baseline: without the order of the tokens",
        [Text(text), Table({"": "text", **dict.fromkeys(scores, "number")}, rows), fields if single else None],
    )


def _majority_metrics(survey: DatasetSurvey, rows: Mapping[str, int]) -> ClassificationMetrics:
    """Return the metrics of always predicting the most frequent training class. `rows`: dict label → number of rows."""
    classes = list(survey.classes)
    majority = max(classes, key=lambda label: survey.classes[label]["train"])
    labels = np.repeat(np.arange(len(classes)), list(rows.values()))
    probabilities = np.zeros((len(labels), len(classes)), np.float32)
    probabilities[:, classes.index(majority)] = 1
    return classification_metrics(labels, probabilities, classes, survey.positive)
