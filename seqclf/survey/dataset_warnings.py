"""Warnings about a dataset, to be looked at before training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seqclf.survey.class_counts import ClassCounts
from seqclf.survey.field_statistics import FieldStatistics
from seqclf.survey.target_leakage import ColumnLeakage

if TYPE_CHECKING:
    from seqclf.survey.survey import DatasetSurvey

RARE_ROWS = 10
IMBALANCE_RATIO = 10.0  # training rows of the largest class over those of the smallest
SUSPICIOUS_RECALL = 0.99
UNKNOWN_SHARE = 0.05
MOSTLY_UNKNOWN = 0.5


def dataset_warnings(survey: DatasetSurvey) -> list[str]:
    """Return one line for each problem: leaks between splits, rare classes, odd fields, target leakage."""
    lines = [*survey.leaks.warnings(), *_class_warnings(survey.classes)]
    for name, field in survey.fields.items():
        lines += _field_warnings(name, field)
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
        yield f"{len(rare_labels)} {classes_have} fewer than {RARE_ROWS} training rows: {shown}; no model learns them"


def _field_warnings(name: str, field: FieldStatistics) -> Iterator[str]:
    yield from field.extremes or []
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
        # Rare values are unknown in train too, so only a share well above that of train means different data.
        if split != "train" and share > UNKNOWN_SHARE and share > 2 * field.unknown["train"]:  # type: ignore[index]
            yield f"field {name}: {share:.1%} of the tokens of {split} are values unseen in training"


def _leakage_warning(leakage: ColumnLeakage) -> str:
    evidence = f"AUROC {leakage.auroc:.3f} alone"
    if leakage.paired_with is not None:
        evidence = f"AUROC {leakage.auroc_together:.3f} next to '{leakage.paired_with}'"
    return f"column '{leakage.column}' gives the label away ({evidence}); it is not used, keep it out"
