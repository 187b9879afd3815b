"""The survey of a dataset: classes, lengths, padding, fields, leaks, target leakage and an order-blind baseline."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seqclf.data.data_title import data_title
from seqclf.data.options import DataOptions
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.split_counts import SplitCounts
from seqclf.survey.baseline_scores import BaselineScores, score_baseline, score_single_fields
from seqclf.survey.class_counts import ClassCounts, count_classes
from seqclf.survey.dataset_warnings import dataset_warnings
from seqclf.survey.example_rows import ExampleRow, example_rows
from seqclf.survey.field_statistics import FieldStatistics, measure_field
from seqclf.survey.length_statistics import LengthStatistics, measure_lengths
from seqclf.survey.padding_statistics import PaddingSurvey, survey_padding
from seqclf.survey.scale_advice import scale_advice
from seqclf.survey.target_leakage import ColumnLeakage, find_target_leakage
from seqclf.survey.token_rates import TokenRates, measure_token_rates
from seqclf.survey.truncation_statistics import TruncationSurvey, survey_truncation
from seqclf.survey.value_distributions import ValueDistribution, measure_values
from seqclf.system import progress
from seqclf.system.json_result import JsonObject

MOST_WARNINGS, LONGEST_WARNING = 10, 200  # of the summary; the data file has all


@dataclass(frozen=True)
class DatasetSurvey:
    """Everything that `describe` shows of a dataset.

    `rows`: counts by split. `ignored`: columns that no field reads. `leaks`: counts of what splits share. `columns`:
    target leakage of the ignored columns. `tokens` and `values`: by field, rates of its values, or the distributions of
    its channels. `single_field_recall`: the result of `score_single_fields`. `baseline` and
    `single_field_recall` are None, and `columns` is empty, in a survey without a baseline. `warnings`: one line for
    each problem.
    """

    name: str
    classes: list[ClassCounts]
    positive: str | None
    rows: dict[str, SplitCounts]
    lengths: LengthStatistics
    truncation: TruncationSurvey
    batches: PaddingSurvey
    fields: dict[str, FieldStatistics]
    ignored: list[str]
    leaks: LeakReport
    columns: list[ColumnLeakage] = field(default_factory=list)
    baseline: BaselineScores | None = None
    single_field_recall: dict[str, float] | None = None
    warnings: list[str] = field(default_factory=list)
    examples: list[ExampleRow] = field(default_factory=list)
    tokens: dict[str, TokenRates] = field(default_factory=dict)
    values: dict[str, dict[str, ValueDistribution]] = field(default_factory=dict)

    def summary(self) -> JsonObject:
        """Return the main counts and the warnings as plain values, in one short line whatever the data."""
        lengths = self.lengths.all_rows
        return {
            "name": self.name,
            "classes": len(self.classes),
            "positive": self.positive,
            "rows": {split: counts.used for split, counts in self.rows.items()},
            "refused": sum(counts.refused for counts in self.rows.values()),
            "tokens": sum(counts.tokens for counts in self.rows.values()),
            "lengths": {name: round(getattr(lengths, name), 1) for name in ("min", "p50", "p95", "max")},
            "warnings": [line[:LONGEST_WARNING] for line in self.warnings[:MOST_WARNINGS]],
            "warning_count": len(self.warnings),
        }

    def to_dict(self) -> JsonObject:
        """Return plain values that JSON can hold. The recalls of single fields are under `alone`."""
        alone = {} if self.single_field_recall is None else {"alone": self.single_field_recall}
        return {
            "name": self.name,
            "classes": [counts.to_dict() for counts in self.classes],
            "positive": self.positive,
            "rows": {split: counts.to_dict() for split, counts in self.rows.items()},
            "lengths": self.lengths.to_dict(),
            "truncation": self.truncation.to_dict(),
            "batches": self.batches.to_dict(),
            "fields": {name: statistics.to_dict() for name, statistics in self.fields.items()},
            "ignored": self.ignored,
            "leaks": self.leaks.to_dict(),
            "columns": [leakage.to_dict() for leakage in self.columns],
            "baseline": None if self.baseline is None else self.baseline.to_dict(),
            **alone,
            "warnings": self.warnings,
            "examples": [row.to_dict() for row in self.examples],
            "tokens": {name: rates.to_dict() for name, rates in self.tokens.items()},
            "values": {
                name: {channel: values.to_dict() for channel, values in channels.items()}
                for name, channels in self.values.items()
            },
        }


def survey_content(survey: DatasetSurvey, dataset: Dataset) -> DatasetSurvey:
    """Add what the data looks like: example rows, frequent tokens and value distributions."""
    tokens, values = {}, {}
    for name, encoder in progress.track(
        dataset.encoders.items(), "counting values by class", total=len(dataset.encoders), unit="fields"
    ):
        if (rates := measure_token_rates(dataset, name, encoder)) is not None:
            tokens[name] = rates
        if (distributions := measure_values(dataset, name, encoder)) is not None:
            values[name] = distributions
    return replace(survey, examples=example_rows(dataset), tokens=tokens, values=values)


def survey_dataset(
    dataset: Dataset, options: DataOptions, batching: Mapping[str, Any], *, baseline: bool
) -> DatasetSurvey:
    """Survey a dataset with the `batching` of a config.

    `baseline=False` leaves out everything that has to fit a model: the baseline and the search for target leakage.
    """
    labels = {name: split.labels for name, split in dataset.splits.items()}
    survey = DatasetSurvey(
        name=data_title(options.name, options.train),
        classes=count_classes(labels, dataset.classes),
        positive=dataset.positive,
        rows=dataset.report,
        lengths=measure_lengths(dataset),
        truncation=survey_truncation(dataset),
        batches=survey_padding(dataset, batching),
        fields={name: measure_field(dataset, name, encoder) for name, encoder in dataset.encoders.items()},
        ignored=list(dataset.schema.ignored),
        leaks=dataset.leaks,
    )
    # Each of these fits models or reads the source again, which takes longer than the rest of the survey.
    if baseline:
        survey = replace(
            survey,
            columns=find_target_leakage(dataset, options),
            baseline=score_baseline(dataset).scores,
            single_field_recall=score_single_fields(dataset),
        )
    # Last, because warnings are about everything above.
    advice = scale_advice(survey.fields, dataset.schema.fields, options.fields)
    return replace(survey, warnings=[*dataset_warnings(survey), *advice])
