"""The survey of a dataset: classes, lengths, padding, fields, leaks, target leakage and an order-blind baseline.

The order-blind baseline is a model that sees the tokens of a sequence but not their order.
"""

from __future__ import annotations

import json
import re
import shlex
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.batching.options import BatchingOptions
from seqclf.config.override_text import argument
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.kinds.category import CategoryEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.options import DataOptions
from seqclf.data.schema.casts import quote_identifier, quote_literal
from seqclf.data.schema.cell_types import MISSING_WORDS
from seqclf.data.schema.schema import Field, Schema
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.data.storage.dataset import Dataset, data_title
from seqclf.data.storage.store import Split, SplitCounts, sample_split
from seqclf.evaluation.baseline_scores import BaselineScores, score_baseline, score_single_fields
from seqclf.survey.class_counts import ClassCounts, count_classes
from seqclf.survey.fields import FieldStatistics, measure_field
from seqclf.survey.guarantees import GuaranteeSurvey
from seqclf.survey.lengths import (
    LengthStatistics,
    PaddingSurvey,
    TruncationSurvey,
    measure_lengths,
    survey_padding,
    survey_truncation,
)
from seqclf.survey.target_leakage import ColumnLeakage, find_target_leakage
from seqclf.survey.values import (
    ExampleRow,
    TokenRates,
    ValueDistribution,
    example_rows,
    measure_token_rates,
    measure_values,
)
from seqclf.system import progress
from seqclf.system.json_result import JsonObject, JsonResult

# Warnings about a dataset that a user should read before training.

RARE_ROWS = 10
IMBALANCE_RATIO = 10.0  # training rows of the largest class over the training rows of the smallest class
SUSPICIOUS_RECALL = 0.99
UNKNOWN_SHARE = 0.05
MOSTLY_UNKNOWN = 0.5


def dataset_warnings(survey: DatasetSurvey) -> list[str]:
    """Return one line for each problem of a dataset.

    Problems are leaks between splits, rare classes, suspicious fields and target leakage.
    """
    lines = [*survey.leaks.warnings(), *_class_warnings(survey.classes)]
    lines += _label_warnings(counts.label for counts in survey.classes)
    for name, statistics in survey.fields.items():
        lines += _field_warnings(name, statistics)
    for leakage in survey.columns:
        if leakage.revealing:
            lines.append(_leakage_warning(leakage))
    for name, recall in (survey.single_field_recall or {}).items():
        if recall >= SUSPICIOUS_RECALL:
            lines.append(
                f"field {name} alone, without its order, reaches a recall of {recall:.3f}; will it be known when you "
                "predict?"
            )
    return lines


def _class_warnings(classes: list[ClassCounts]) -> Iterator[str]:
    train_rows = {counts.label: counts.rows["train"] for counts in classes}
    largest, smallest = max(train_rows.values()), min(train_rows.values())
    if smallest and largest / smallest >= IMBALANCE_RATIO:
        rarest = min(train_rows, key=lambda label: train_rows[label])
        yield (
            f"classes are imbalanced: {largest / smallest:.0f} rows of the largest for each of '{rarest}'; watch "
            "recall, and try loss=balanced"
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
    """Yield a warning for each set of labels that look alike.

    Also yield a warning for each label that is a word for a missing value, such as "null". Labels that look alike are
    quoted to show their spaces.
    """
    alike: dict[str, list[str]] = {}
    for label in labels:
        alike.setdefault(unicodedata.normalize("NFC", label).strip(), []).append(label)
        if label.strip().lower() in MISSING_WORDS:
            yield f"class '{label}' is named like a missing value; remove such rows, if they have no label"
    for same in alike.values():
        if len(same) > 1:
            shown = ", ".join(map(ascii, same))
            yield f"the classes {shown} differ in spaces or in the form of letters alone; spell them alike"


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


def _leakage_warning(leakage: ColumnLeakage) -> str:
    evidence = f"AUROC {leakage.auroc:.3f} alone"
    if leakage.paired_with is not None:
        evidence = f"AUROC {leakage.auroc_together:.3f} next to '{leakage.paired_with}'"
    return f"column '{leakage.column}' gives the label away ({evidence}); it is not used, keep it out"


# Advice on field kinds and field options, with the command-line override that sets them.

MAX_LINE_CHARACTERS = 400  # characters of a warning; the terminal and pages cut longer warnings
SPECIAL = ("\\", "${")  # characters that Hydra would interpret in a column name
TYPED_KEY = re.compile(r"(?!(?:null|true|false|nan|inf)$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)  # needs no quotes
MAX_CODES = 20  # maximum number of distinct integers that are always treated as codes
MIN_CODE_VALUES = 200  # minimum number of values of few distinct integers
MAX_CODE_VALUES = 200_000  # maximum number of values that are searched for codes
ROUNDING_OF_CODES = 1e-4  # maximum difference between a decoded float32 and its integer, as a fraction of the range
COVERED_RANGE = 0.5  # minimum ratio of the distinct integers of a quantity to the size of their range


def scale_advice(
    statistics: Mapping[str, FieldStatistics], fields: Iterable[Field], configured: Mapping[Any, Any] | None
) -> list[str]:
    """Return advice on number fields in which a shared scale makes many sequences flat.

    The list has one line of advice, or is empty if there is no such field. `statistics`: dict field → statistics of the
    field. `fields`: fields of the dataset's schema. `configured`: value of `data.fields` in the config, or `None` if
    the fields were inferred.
    """
    flattened = {
        name: field.flattened
        for name, field in statistics.items()
        if field.flattened is not None and field.flattened.is_notable
    }
    if not flattened:
        return []
    worst = max(flattened, key=lambda name: flattened[name].share)
    subject = f"field {worst}" if len(flattened) == 1 else f"{len(flattened)} fields (most: {worst})"
    problem = (
        f"{subject}: one scale for all flattens {flattened[worst].share:.0%} of the sequences, whose shape the noise "
        "of training (model.number_noise) drowns;"
    )
    fields = list(fields)
    remedies = {name: found.remedy for name, found in flattened.items()}
    changed = [field for field in fields if field.name in remedies]
    if configured:  # Hydra merges this mapping into the user's mapping of the field, or replaces a kind
        added = [replace(field, columns=(field.name,), options=remedies[field.name]) for field in changed]
        overrides = [f"++data.fields.{field.name}={_spec(field)}" for field in added]
    else:
        added = [replace(field, options={**field.options, **remedies[field.name]}) for field in changed]
        overrides = [_override(fields, added)]
    settings = []
    for remedy, text in (({"scale": "sequence"}, "scale: sequence"), ({"log": True}, "log: true")):
        names = [name for name in remedies if remedies[name] == remedy]
        settings += [f"{text} for {_first(names)}"] if names else []
    return [_line_with(problem, overrides, fields, " and ".join(settings))]


def field_advice(encoders: Mapping[str, FieldEncoder], configured: Mapping[Any, Any] | None) -> list[str]:
    """Return advice on fields that may have been read as something else than they are, see the functions below."""
    return quantity_advice(encoders, configured)


def ignored_advice(schema: Schema, options: DataOptions) -> list[str]:
    """Return one line of advice on columns that inference left out, or none if the config names the fields."""
    names = [name for name in schema.ignored if name not in (options.group, options.split.column)]
    if options.fields or not names:
        return []
    use, field, cell = "name all fields in data.fields", schema.fields[0], quote_identifier(names[0])
    if not schema.group_by:
        column = quote_identifier(field.columns[0])
        cut = f"string_split({column}, {quote_literal(field.separator)})" if field.separator else f"{column}::VARCHAR[]"
        repeated = f"list_transform({cut}, lambda token: {cell}) AS {cell}"
        made = f"concat_ws(' ', {cell}, {column}) AS {column}" if field.kind == "text" else repeated
        use = argument("data.query", f"SELECT * REPLACE ({made}) FROM {'(QUERY)' if options.query else 'input'}")
    return [f"columns that no field reads: {_first(names)}; for values that are known at prediction, set {use}"]


def quantity_advice(encoders: Mapping[str, FieldEncoder], configured: Mapping[Any, Any] | None) -> list[str]:
    """Return advice on integer columns that were inferred as categories but may be quantities.

    The list has one line of advice, or is empty if there is no such column. `configured`: value of `data.fields` in the
    config, or `None` if the fields were inferred.
    """
    if configured:
        return []
    ranges = {
        name: _dense_range(encoder.vocabulary.values)
        for name, encoder in encoders.items()
        if isinstance(encoder, CategoryEncoder) and encoder.integers
    }
    dense = {name: values for name, values in ranges.items() if values is not None}
    if not dense:
        return []
    fields = [encoder.field for encoder in encoders.values()]
    changed = [
        replace(field, kind="number", options={"missing": "last"} if field.options.get("missing") == "value" else {})
        for field in fields
        if field.name in dense
    ]
    shown = _first([f"{name} ({lowest} to {highest})" for name, (lowest, highest) in dense.items()])
    problem = f"whole numbers are read as codes: {shown}; if they are quantities,"
    return [_line_with(problem, [_override(fields, changed)], fields, f"kind: number for {_first(dense)}")]


def code_advice(dataset: Dataset, configured: Mapping[Any, Any] | None) -> list[str]:
    """Return advice on number fields that hold few distinct integers and may be codes.

    The list has one line of advice, or is empty if there is no such field. Fields with options other than those of
    missing values are meant as numbers. Flags, which have two distinct values, mean the same as a category.
    `configured`: value of `data.fields` in the config, or `None` if the fields were inferred.
    """
    few: dict[str, np.ndarray] = {}
    for name, encoder in dataset.encoders.items():
        if not isinstance(encoder, NumberEncoder) or len(encoder.channel_names()) > 1:
            continue
        if set(encoder.field.options) - {"missing", "mask"}:
            continue
        sample = sample_split(dataset.splits["train"], MAX_CODE_VALUES, 0)
        values = encoder.original_values(sample.sequences.fields)
        values = values[np.isfinite(values)]
        codes = np.unique(np.round(values))
        if len(values) < MIN_CODE_VALUES or not 2 < len(codes) <= MAX_CODES:
            continue
        if np.abs(values - np.round(values)).max() < ROUNDING_OF_CODES * np.ptp(codes):
            few[name] = codes
    if not few:
        return []
    shown = _first([f"{name} ({len(codes)} from {codes[0]:.0f} to {codes[-1]:.0f})" for name, codes in few.items()])
    options = {
        name: {} if dataset.encoders[name].field.options.get("missing", "refuse") == "refuse" else {"missing": "value"}
        for name in few
    }
    problem = f"few whole numbers are read as numbers: {shown}; keep counts and grades so, but if they are codes,"
    return [_line_with(problem, *_overrides(dataset.encoders, "category", options, configured), "kind: category")]


def _overrides(
    encoders: Mapping[str, FieldEncoder],
    kind: str,
    options: Mapping[str, Mapping[str, Any]],
    configured: Mapping[Any, Any] | None,
) -> tuple[list[str], list[Field]]:
    """Return the overrides that give fields the kind `kind` and more options, and the fields that they spell.

    `options`: dict name → added options of each changed field. If the kind of a field stays, it keeps its options.
    """
    fields = [encoder.field for encoder in encoders.values()]
    changed = [
        replace(field, kind=kind, options={**(field.options if field.kind == kind else {}), **options[field.name]})
        for field in fields
        if field.name in options
    ]
    if not configured:
        return [_override(fields, changed)], fields
    overrides = []
    for entry in changed:
        if isinstance(configured.get(entry.name), Mapping) and encoders[entry.name].field.kind != kind:
            overrides.append(f"++data.fields.{entry.name}=null")  # drops the options of the other kind
        overrides.append(f"++data.fields.{entry.name}={_spec(entry, always_mapping=True)}")
    return overrides, changed


def _dense_range(values: pa.Array) -> tuple[int, int] | None:
    """Return the lowest and the highest value if integers may be quantities, or `None` if they are codes.

    >>> _dense_range(pa.array([*range(18, 60), None])), _dense_range(pa.array(range(0, 3000, 100)))
    ((18, 59), None)
    """
    distinct = len(values) - values.null_count
    if distinct <= MAX_CODES:
        return None
    lowest, highest = (value.as_py() for value in pc.min_max(values).values())
    return (lowest, highest) if distinct >= COVERED_RANGE * (highest - lowest + 1) else None


def _line_with(problem: str, overrides: list[str], fields: list[Field], setting: str) -> str:
    """Return the text `problem` followed by overrides, quoted for a shell.

    If the overrides are too long, the text `setting` replaces them.
    """
    line = f"{problem} set {' '.join(map(shlex.quote, overrides))}"
    if len(line) > MAX_LINE_CHARACTERS or not all(map(_is_typed, fields)):
        return f"{problem} set {setting} in data.fields"
    return line


def _first(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "")


def _is_typed(field: Field) -> bool:
    """Return True if the name and the column of a field need no quotes in a Hydra override."""
    return TYPED_KEY.fullmatch(field.name) is not None and not any(text in field.column for text in SPECIAL)


def _override(fields: list[Field], changed: list[Field]) -> str:
    """Return an override of `data.fields` that lists all `fields`.

    A field in `changed` replaces the field of the same name. The override lists all fields, because an override of
    `data.fields` turns off the inference of every field.
    """
    by_name = {field.name: field for field in [*fields, *changed]}
    return f"data.fields={{{', '.join(f'{name}: {_spec(field)}' for name, field in by_name.items())}}}"


def _spec(field: Field, *, always_mapping: bool = False) -> str:
    """Return the kind, the columns and the options of a field in Hydra's override grammar.

    `always_mapping`: True to write a mapping even if a field has only a kind.
    """
    spec = {"kind": field.kind}
    if field.columns != (field.name,):
        columns = ", ".join(map(_quoted, field.columns))
        spec |= {"column": columns} if len(field.columns) == 1 else {"columns": f"[{columns}]"}
    spec |= {
        key: _quoted(value) if isinstance(value, str) else json.dumps(value) for key, value in field.options.items()
    }
    if list(spec) == ["kind"] and not always_mapping:
        return field.kind
    return f"{{{', '.join(f'{key}: {value}' for key, value in spec.items())}}}"


def _quoted(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


MAX_WARNINGS, MAX_WARNING_CHARACTERS = 10, 200  # limits of `summary`; the JSON file of the survey has all warnings


@dataclass(frozen=True)
class DatasetSurvey(JsonResult):
    """Everything that the command `describe` shows about a dataset.

    `rows`: dict split → numbers of rows and tokens. `groups`: dict split → number of distinct groups, or `None` without
    `data.group`. `ignored`: columns of the data that no field reads. `leaks`: numbers of rows and groups that occur in
    several splits. `columns`: scores of the ignored columns as predictors of the label (target leakage). `tokens`: dict
    field → frequencies of the field's values. `values`: dict field → dict channel → distribution of the channel's
    values. `single_field_recall`: dict field → macro recall of a baseline model that reads only this field. In a survey
    without a baseline, `baseline` and `single_field_recall` are `None`, and `columns` is empty. `guarantees`: evidence
    for recall guarantees. Only the command `describe` sets this attribute. `warnings`: one line for each problem of the
    dataset.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"groups", "single_field_recall", "guarantees"})
    JSON_NAMES: ClassVar[Mapping[str, str]] = {"single_field_recall": "alone"}

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
    groups: dict[str, int] | None = None
    guarantees: GuaranteeSurvey | None = None
    tokens: dict[str, TokenRates] = field(default_factory=dict)
    values: dict[str, dict[str, ValueDistribution]] = field(default_factory=dict)

    def summary(self) -> JsonObject:
        """Return the main counts and the first warnings as plain values. The summary is short even for large data."""
        lengths = self.lengths.all_rows
        return {
            "name": self.name,
            "classes": len(self.classes),
            "positive": self.positive,
            "rows": {split: counts.used for split, counts in self.rows.items()},
            **({} if self.groups is None else {"groups": self.groups}),
            "refused": sum(counts.refused for counts in self.rows.values()),
            "tokens": sum(counts.tokens for counts in self.rows.values()),
            "lengths": {name: round(getattr(lengths, name), 1) for name in ("min", "p50", "p95", "max")},
            "warnings": [line[:MAX_WARNING_CHARACTERS] for line in self.warnings[:MAX_WARNINGS]],
            "warning_count": len(self.warnings),
        }


def survey_content(survey: DatasetSurvey, dataset: Dataset) -> DatasetSurvey:
    """Return a copy of the survey with example rows, token frequencies and value distributions."""
    tokens, values = {}, {}
    for name, encoder in progress.track(
        dataset.encoders.items(), "counting values by class", total=len(dataset.encoders), unit="fields"
    ):
        if (rates := measure_token_rates(dataset, name, encoder)) is not None:
            tokens[name] = rates
        if (distributions := measure_values(dataset, name, encoder)) is not None:
            values[name] = distributions
    return replace(survey, examples=example_rows(dataset), tokens=tokens, values=values)


def count_groups(splits: Mapping[str, Split]) -> dict[str, int] | None:
    """Return dict split → number of distinct groups, or `None` without `data.group`."""
    counts = {
        name: len(np.unique(split.groups))
        for name, split in splits.items()
        if split.groups is not None and split.group_names is not None
    }
    return counts or None


def survey_dataset(
    dataset: Dataset, options: DataOptions, batching: BatchingOptions, *, baseline: bool
) -> DatasetSurvey:
    """Survey a dataset, without example rows, token frequencies and value distributions.

    `options`: data options of a config. `batching`: batching options of a config. `baseline`: False to skip everything
    that fits a model: the baseline and the search for target leakage.
    """
    labels = {name: split.labels for name, split in dataset.splits.items()}
    survey = DatasetSurvey(
        name=data_title(options.name, options.train),
        classes=count_classes(labels, dataset.classes),
        positive=dataset.positive,
        rows=dataset.report,
        groups=count_groups(dataset.splits),
        lengths=measure_lengths(dataset),
        truncation=survey_truncation(dataset),
        batches=survey_padding(dataset, batching),
        fields={name: measure_field(dataset, name, encoder) for name, encoder in dataset.encoders.items()},
        ignored=list(dataset.schema.ignored),
        leaks=dataset.leaks,
    )
    # Each of these three functions fits models or reads the source again, so they take longer than the rest.
    if baseline:
        survey = replace(
            survey,
            columns=find_target_leakage(dataset, options),
            baseline=score_baseline(dataset).scores,
            single_field_recall=score_single_fields(dataset),
        )
    # Warnings come last, because they need all results above.
    advice = scale_advice(survey.fields, dataset.schema.fields, options.fields)
    return replace(survey, warnings=[*dataset_warnings(survey), *advice])
