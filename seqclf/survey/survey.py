"""The survey of a dataset: classes, lengths, fields, leaks, target leakage and an order-blind baseline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import NumberSpec, kind_of
from seqclf.data.schema.cell_types import MISSING_WORDS
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.dataset import Dataset, data_title, labels_alike
from seqclf.data.storage.store import Split, SplitCounts, sample_split
from seqclf.evaluation.baseline import MAX_FITTED_TOKENS
from seqclf.evaluation.baseline_scores import metrics_of, score_baseline, score_single_fields
from seqclf.evaluation.metrics import Metrics
from seqclf.settings.data_settings import DataOptions
from seqclf.survey.outlook import ThresholdOutlook
from seqclf.survey.target_leakage import ColumnLeakage, find_static_leakage, find_target_leakage
from seqclf.system.json_result import JsonObject, JsonResult


@dataclass(frozen=True)
class FieldStatistics(JsonResult):
    """Statistics of one field. A statistic is `None` if it does not apply to the kind of the field.

    `constant`: True if every training token, or sequence if static, has the same value. `unknown`: dict split →
    fraction of tokens outside the vocabulary. `missing`: dict channel → fraction of training tokens without a value.
    `constant_channels`: constant channels of a number field, if others vary.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"unknown", "missing", "constant_channels"})

    kind: str
    constant: bool
    unknown: dict[str, float] | None = None
    missing: dict[str, float] | None = None
    constant_channels: list[str] | None = None


def measure_field(dataset: Dataset, name: str, encoder: FieldEncoder) -> FieldStatistics:
    """Measure the statistics of one field, on a sample of the rows of a large split."""
    spec = encoder.spec()
    samples = {split: sample_split(rows, MAX_FITTED_TOKENS, 0).sequences for split, rows in dataset.splits.items()}
    tokens = {split: (rows.static if encoder.field.static else rows.fields)[name] for split, rows in samples.items()}
    train = tokens["train"]
    # Ids below that of unknown values stand for tokens without a value.
    unknown_id = kind_of(spec).unknown_id
    if unknown_id is None:
        return _number_statistics(encoder, spec, train)  # type: ignore[arg-type]
    return FieldStatistics(
        kind=encoder.field.kind,
        constant=bool(len(train) and (train == train[0]).all()),
        unknown={
            split: float((ids == unknown_id).sum() / max(1, (ids >= unknown_id).sum())) for split, ids in tokens.items()
        },
    )


def _number_statistics(encoder: FieldEncoder, spec: NumberSpec, train: np.ndarray) -> FieldStatistics:
    """Measure (S, D) encoded training values: the channels, followed by their masks if values can be missing."""
    channels, missing = encoder.channel_names(), dict[str, float]()
    width = len(channels)
    if "masked" in spec:
        shares = 1 - np.asarray(train[:, width : 2 * width]).mean(axis=0)
        missing = dict(zip(channels, shares.tolist(), strict=True))
    is_equal = (np.asarray(train) == train[:1]).all(axis=0)
    is_constant = is_equal[:width]
    if "constant" in spec:
        # In sequences of equal values, all scaled values are 0. Two such sequences may still differ in the last
        # channels, log-deviation and log-mean.
        is_constant = is_constant & is_equal[-2 * width :].reshape(2, -1).all(axis=0)
    # A constant channel with missing values is not listed, because the presence of a value carries information.
    constant = [name for name, same in zip(channels, is_constant, strict=True) if same and not missing.get(name)]
    return FieldStatistics(
        kind=encoder.field.kind,
        constant=bool(is_constant.all()),
        missing=missing or None,
        constant_channels=None if is_constant.all() else constant,
    )


# Warnings about a dataset that a user should read before training.

# Up to this product of classes and fields (at least `MIN_FIELDS`), the whole baseline of 2,000 short rows takes 10 s.
MAX_WORK, MIN_FIELDS = 40, 4
RARE_ROWS = 10
IMBALANCE_RATIO = 10.0  # training rows of the largest class over the training rows of the smallest class
SUSPICIOUS_RECALL = 0.99
UNKNOWN_SHARE = 0.05
MAX_ALIKE = 3  # sets of labels that are alike; letters have one for each
MOSTLY_UNKNOWN = 0.5


def dataset_warnings(survey: DatasetSurvey) -> list[str]:
    """Return one line for each problem: leaks between splits, rare classes, suspicious fields and target leakage."""
    train_rows = {label: rows["train"] for label, rows in survey.classes.items()}
    lines = [*survey.leaks.warnings(), *_class_warnings(train_rows), *_label_warnings(survey.classes)]
    if excluded := sum(rows.excluded for rows in survey.rows.values()):
        lines.append(f"{excluded:,} rows are left out by their ids (data.exclude)")
    for name, statistics in survey.fields.items():
        lines += _field_warnings(name, statistics)
    lines += [
        f"column '{leakage.column}' gives the label away (AUROC {leakage.auroc:.3f} alone); it is not used, keep it out"
        for leakage in survey.columns
        if leakage.revealing
    ]
    lines += [
        f"static field {leakage.column} gives the label away (AUROC {leakage.auroc:.3f} alone); will it be known when "
        "you predict?"
        for leakage in survey.static
        if leakage.revealing
    ]
    for name, recall in (survey.single_field_recall or {}).items():
        if recall >= SUSPICIOUS_RECALL:
            lines.append(
                f"field {name} alone, without its order, reaches a recall of {recall:.3f}; will it be known when you "
                "predict?"
            )
    return lines


def _class_warnings(train_rows: Mapping[str, int]) -> Iterator[str]:
    largest, smallest = max(train_rows.values()), min(train_rows.values())
    if smallest and largest / smallest >= IMBALANCE_RATIO:
        rarest = min(train_rows, key=lambda label: train_rows[label])
        yield (
            f"classes are imbalanced: {largest / smallest:.0f} rows of the largest for each of '{rarest}'; watch "
            "recall, and set a target, such as decision.min_recall"
        )
    rare_labels = [label for label, rows in train_rows.items() if rows < RARE_ROWS]
    if rare_labels:
        shown = ", ".join(rare_labels[:10])
        classes_have = "class has" if len(rare_labels) == 1 else "classes have"
        more = ", …" if len(rare_labels) > 10 else ""
        yield (
            f"{len(rare_labels)} {classes_have} fewer than {RARE_ROWS} training rows, which is little to learn from: "
            f"{shown}{more}"
        )


def _label_warnings(labels: Iterable[str]) -> Iterator[str]:
    """Yield a warning for labels that look alike, quoted to show their spaces, and for those such as "null"."""
    for label in labels:
        if label.strip().lower() in MISSING_WORDS:
            yield f"class '{label}' is named like a missing value; remove such rows, if they have no label"
    for same in [same for same in labels_alike(labels) if len(same) > 1][:MAX_ALIKE]:
        shown = ", ".join(map(ascii, same))
        yield f"the classes {shown} differ in spaces, case or the form of letters alone; spell them alike"


def _field_warnings(name: str, field: FieldStatistics) -> Iterator[str]:
    unknown = max((field.unknown or {"": 0.0}).values())
    if field.kind == "text" and unknown > MOSTLY_UNKNOWN:
        yield (
            f"field {name}: {unknown:.0%} of its words are unknown, as few occur twice; for codes without spaces, such "
            f"as DNA, set 'data.fields={{{name}: {{kind: text, tokenizer: character}}}}'"
        )
    elif field.constant:
        yield f"field {name} is the same in every token; leave it out"
    if field.constant_channels:
        yield f"field {name}: constant channels: {', '.join(field.constant_channels)}; leave them out"
    for split, share in (field.unknown or {}).items():
        # Rare values are unknown in the training split too. Only a much higher fraction than in the training split
        # shows that the data differ.
        if split != "train" and share > UNKNOWN_SHARE and share > 2 * field.unknown["train"]:  # type: ignore[index]
            yield f"field {name}: {share:.1%} of the tokens of {split} are values unseen in training"


MAX_WARNINGS, MAX_WARNING_CHARACTERS = 10, 200  # limits of `summary`; the JSON file of the survey has all warnings


@dataclass(frozen=True)
class LengthSummary(JsonResult):
    """Range, mean, median and 95 % quantile of the sequence lengths of a split, in tokens before truncation."""

    min: int
    mean: float
    p50: float
    p95: float
    max: int


@dataclass(frozen=True)
class DatasetSurvey(JsonResult):
    """Everything that the command `describe` finds out about a dataset.

    `classes`: dict label → split → rows. `rows`: dict split → numbers of rows and tokens. `lengths`: dict split →
    lengths of the sequences. `groups`: dict split → distinct groups, or `None` without `data.group`. `ignored`: columns
    that no field reads. `leaks`: rows and groups that occur in several splits. `columns`, `static`: scores of ignored
    columns and of static fields as predictors of the label (target leakage). `single_field_recall`: dict field → macro
    recall of a baseline of this field alone; `None` like `baseline` (dict order-blind model → split → metrics) in a
    survey without one. `thresholds`: rows that will set thresholds, set by `describe`. `warnings`: one line for each
    problem.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"groups", "single_field_recall", "thresholds"})

    name: str
    classes: dict[str, dict[str, int]]
    positive: str | None
    rows: dict[str, SplitCounts]
    lengths: dict[str, LengthSummary]
    fields: dict[str, FieldStatistics]
    ignored: list[str]
    leaks: LeakReport
    columns: list[ColumnLeakage] = field(default_factory=list)
    static: list[ColumnLeakage] = field(default_factory=list)
    baseline: dict[str, dict[str, Metrics]] | None = None
    single_field_recall: dict[str, float] | None = None
    warnings: list[str] = field(default_factory=list)
    groups: dict[str, int] | None = None
    thresholds: list[ThresholdOutlook] | None = None

    def summary(self) -> JsonObject:
        """Return the main counts and the first warnings as plain values, in short even for large data."""
        events = [counts.refused_events for counts in self.rows.values() if counts.refused_events is not None]
        return {
            "name": self.name,
            "classes": len(self.classes),
            "positive": self.positive,
            "rows": {split: counts.used for split, counts in self.rows.items()},
            **({} if self.groups is None else {"groups": self.groups}),
            "refused": sum(counts.refused for counts in self.rows.values()),
            **({"refused_events": sum(events)} if events else {}),
            "tokens": sum(counts.tokens for counts in self.rows.values()),
            "lengths": self.lengths["train"].to_dict(),
            "warnings": [line[:MAX_WARNING_CHARACTERS] for line in self.warnings[:MAX_WARNINGS]],
            "warning_count": len(self.warnings),
        }


def count_classes(labels: Mapping[str, np.ndarray], classes: Sequence[str]) -> dict[str, dict[str, int]]:
    """Return dict label → split → number of rows. `labels`: dict split → (N,) class codes.

    >>> count_classes({"train": np.array([0, 0, 1]), "test": np.array([1])}, ["no", "yes"])
    {'no': {'train': 2, 'test': 0}, 'yes': {'train': 1, 'test': 1}}
    """
    counts = {split: np.bincount(codes, minlength=len(classes)).tolist() for split, codes in labels.items()}
    return {label: {split: rows[code] for split, rows in counts.items()} for code, label in enumerate(classes)}


def summarize_lengths(lengths: np.ndarray) -> LengthSummary:
    """Summarize `lengths` (N,), where N ≥ 1.

    >>> summarize_lengths(np.array([1, 2, 3, 10]))
    LengthSummary(min=1, mean=4.0, p50=2.5, p95=8.95, max=10)
    """
    p50, p95 = np.percentile(lengths, (50, 95)).round(2).tolist()
    return LengthSummary(int(lengths.min()), float(lengths.mean()), p50, p95, int(lengths.max()))


def count_groups(splits: Mapping[str, Split]) -> dict[str, int] | None:
    """Return dict split → number of distinct groups, or `None` without `data.group`."""
    counts = {
        name: len(np.unique(split.groups))
        for name, split in splits.items()
        if split.groups is not None and split.group_names is not None
    }
    return counts or None


def survey_dataset(dataset: Dataset, options: DataOptions, *, baseline: bool) -> DatasetSurvey:
    """Survey a dataset. `baseline`: False to fit no model: no baseline, and no search for target leakage."""
    labels = {name: split.labels for name, split in dataset.splits.items()}
    survey = DatasetSurvey(
        name=data_title(options.name, options.train),
        classes=count_classes(labels, dataset.classes),
        positive=dataset.positive,
        rows=dataset.report,
        groups=count_groups(dataset.splits),
        lengths={name: summarize_lengths(split.lengths_before_truncation) for name, split in dataset.splits.items()},
        fields={name: measure_field(dataset, name, encoder) for name, encoder in dataset.encoders.items()},
        ignored=list(dataset.schema.ignored),
        leaks=dataset.leaks,
        static=find_static_leakage(dataset),
    )
    # Each of these three functions fits models or reads the source again, so they take longer than the rest.
    if baseline:
        quick = len(dataset.classes) * max(MIN_FIELDS, len(dataset.encoders)) > MAX_WORK
        survey = replace(
            survey,
            columns=find_target_leakage(dataset, options),
            baseline={
                scores.model: metrics_of(scores, dataset.positive) for scores in score_baseline(dataset, quick=quick)
            },
            single_field_recall=score_single_fields(dataset, quick=quick),
        )
    return replace(survey, warnings=dataset_warnings(survey))  # last, because the warnings need all results above
