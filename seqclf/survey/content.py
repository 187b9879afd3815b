"""Content that the terminal and the page share: the figures of a survey, not yet formatted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from seqclf.documents.formatting import NO_VALUE, label_text, number, plain_number
from seqclf.evaluation.metrics import ClassificationMetrics, metric_title
from seqclf.survey.class_counts import ClassCounts
from seqclf.survey.fields import ChannelSpread
from seqclf.survey.guarantees import GuaranteeSurvey
from seqclf.survey.lengths import LimitTrial
from seqclf.survey.survey import DatasetSurvey

MAJORITY = "majority class"
SPREAD_HEADINGS = ("range", "within", "p95/p5", "between")  # of the cells of `spread_cells`
UNITS = {"row": "rows", "group": "groups", "sequence": "different sequences"}
POSITIVE_METRICS = ("recall", "average_precision", "auroc")


def by_size(survey: DatasetSurvey) -> list[ClassCounts]:
    """Return the classes, the largest first."""
    return sorted(survey.classes, key=lambda counts: -counts.share)


def imbalance(survey: DatasetSurvey) -> float | None:
    """Return the training rows of the largest class over those of the smallest. None if a class has none."""
    train_rows = [counts.rows["train"] for counts in survey.classes]
    return max(train_rows) / min(train_rows) if min(train_rows) else None


def last_split(survey: DatasetSurvey) -> str:
    """Return the name of the split that the baseline is judged by."""
    return list(survey.rows)[-1]


def guarantee_sentence(guarantees: GuaranteeSurvey) -> str:
    """Say how many held-out rows of a label a guaranteed recall needs."""
    needed = [f"{count} for {recall}" for recall, count in guarantees.needed.items() if count]
    return (
        f"to guarantee the recall of a class (decision.min_recall, {100 * guarantees.confidence:g}% sure), validation "
        f"must hold out enough of its {UNITS[guarantees.unit]}: {', '.join(needed)}"
    )


def guarantee_rows(survey: DatasetSurvey) -> list[list[str]]:
    """Return label, held-out units and whether they are enough for each recall: of two labels those of the positive."""
    if survey.guarantees is None:
        return []
    needed = survey.guarantees.needed
    return [
        [
            label_text(entry.label, 40),
            number(entry.held_out),
            *(
                "enough" if backed else _lacking(needed[recall], entry.held_out)
                for recall, backed in entry.backed.items()
            ),
        ]
        for entry in survey.guarantees.labels
        if survey.positive in (None, entry.label)
    ]


def guarantee_headings(guarantees: GuaranteeSurvey) -> list[str]:
    return ["class", f"held-out {UNITS[guarantees.unit]}", *(f"for {recall}" for recall in guarantees.needed)]


def _lacking(needed: int | None, held_out: int) -> str:
    return "too few" if needed is None else f"{needed - held_out} too few"


def truncation_text(survey: DatasetSurvey) -> str:
    """Describe `max_length` and the rows it cut."""
    truncation = survey.truncation
    if truncation.max_length is None:
        return "no limit on the length (max_length=null)"
    cut_rows = ", ".join(f"{count:,} of {name}" for name, count in truncation.cut_rows.items() if count)
    return f"max_length={truncation.max_length}, truncate={truncation.truncate}; rows cut: {cut_rows or 'none'}"


def cutting_limits(survey: DatasetSurvey) -> list[LimitTrial]:
    """Return the tried limits that would cut any row."""
    return [trial for trial in survey.truncation.trials if trial.cut_rows]


def baseline_rows(survey: DatasetSurvey) -> dict[str, dict[str, float | None]]:
    """Return scores on the last split by model, those of the majority class first. Empty without a baseline.

    Scores: `accuracy`, macro `recall` and `f1`. With a positive class also `positive_recall`, `average_precision` and
    `auroc`.
    """
    split = last_split(survey)
    models = {} if survey.baseline is None else survey.baseline.models
    metrics = {name: by_split[split] for name, by_split in models.items() if split in by_split}
    if not metrics:
        return {}
    return {MAJORITY: majority_scores(survey)} | {name: _scores(block) for name, block in metrics.items()}


def _scores(metrics: ClassificationMetrics) -> dict[str, float | None]:
    scores: dict[str, float | None] = {"accuracy": metrics.accuracy, "recall": metrics.recall, "f1": metrics.f1}
    if metrics.positive is not None:
        for name in POSITIVE_METRICS:
            # Macro recall has the plain name already.
            scores["positive_recall" if name == "recall" else name] = getattr(metrics.positive, name)
    return scores


def score_title(name: str, positive: str | None) -> str:
    """Return the name of a score of `baseline_rows` for people.

    >>> score_title("recall", "fraud"), score_title("positive_recall", "fraud")
    ('macro recall', 'recall of fraud')
    """
    return metric_title("recall", positive) if name == "positive_recall" else metric_title(name)


def majority_scores(survey: DatasetSurvey) -> dict[str, float | None]:
    """Return the scores on the last split of always predicting the largest class of train.

    As in `seqclf.evaluation.metrics`, macro recall is over the classes that have rows, macro F1 over those that occur.
    """
    split = last_split(survey)
    majority = max(survey.classes, key=lambda counts: counts.rows["train"]).label
    rows = {counts.label: counts.rows[split] for counts in survey.classes}
    total, correct = sum(rows.values()), rows[majority]
    occurring = sum(count > 0 or label == majority for label, count in rows.items())
    scores: dict[str, float | None] = {
        "accuracy": correct / max(1, total),
        "recall": (correct > 0) / max(1, sum(count > 0 for count in rows.values())),
        "f1": 2 * correct / max(1, correct + total) / occurring,
    }
    if survey.positive is not None:
        positives = rows[survey.positive]
        both_classes = 0 < positives < total  # neither area is defined with one class alone
        scores["positive_recall"] = float(majority == survey.positive) if positives else None
        scores["average_precision"] = positives / total if both_classes else None
        scores["auroc"] = 0.5 if both_classes else None
    return scores


def single_field_rows(survey: DatasetSurvey) -> list[tuple[str, float]]:
    """Return the macro recall that each field reaches alone, the best first."""
    return sorted((survey.single_field_recall or {}).items(), key=lambda item: -item[1])


def spread_cells(channels: Sequence[ChannelSpread]) -> list[str]:
    """Return range, deviation within sequences, how much it differs, and deviation between sequences, as text.

    Of several channels, the smallest and the largest.

    >>> spread_cells([ChannelSpread(0.0, 1.0, 0.5, 0.2, 0.1, 0.4), ChannelSpread(-1.0, 0.5, 0.5, 0.25, 0.1, 0.3)])
    ['-1 to 1', '0.2 to 0.25', '3 to 4', '0.5']
    """
    three_digits = partial(plain_number, digits=3)
    lowest = [spread.lowest for spread in channels if spread.lowest is not None]
    highest = [spread.highest for spread in channels if spread.highest is not None]
    return [
        f"{plain_number(min(lowest))} to {plain_number(max(highest))}" if lowest and highest else NO_VALUE,
        _extent([spread.within for spread in channels], three_digits),
        _extent([spread.within_ratio for spread in channels], number),
        _extent([spread.between for spread in channels], three_digits),
    ]


def _extent(values: Sequence[float | None], text: Callable[[float], str]) -> str:
    present = [value for value in values if value is not None]
    if not present:
        return NO_VALUE
    low, high = text(min(present)), text(max(present))
    return low if low == high else f"{low} to {high}"
