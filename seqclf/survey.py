"""A dataset looked over before it is trusted: classes, lengths, batches, fields, leaks, and what an order-blind model
makes of it. Needs no PyTorch."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.data.baseline import MOST_STEPS, fit_baseline
from seqclf.data.columns import revealing_columns
from seqclf.data.dataset import Dataset
from seqclf.data.encoders import Encoder
from seqclf.data.leaks import leak_lines
from seqclf.data.options import DataOptions
from seqclf.data.store import Ragged, Split, sampled
from seqclf.learning.scores import scores

SCORES_FORMAT = 1
QUANTILES = (1, 5, 25, 50, 75, 95, 99)
LENGTH_BINS = 40
LONG_TAIL = 20.0  # times the median
RARE_ROWS = 10
IMBALANCED = 10.0  # rows of the largest class for each of the smallest
TOO_EASY = 0.99
MANY_UNKNOWN = 0.05
MOST_PLANNED = 2_000_000  # lengths


def survey(dataset: Dataset, options: DataOptions, batching: Mapping[str, Any], *, baseline: bool) -> dict[str, Any]:
    """Everything that `describe` tells, as plain values; `baseline=False` leaves out what has to fit a model.

    `warnings` holds a line for each thing that should be looked at before training.
    """
    found: dict[str, Any] = {
        "name": options.name,
        "classes": _classes(dataset),
        "positive": dataset.positive,
        "rows": {name: dict(counts) for name, counts in dataset.report.items()},
        "lengths": _lengths(dataset),
        "truncation": _truncation(dataset),
        "batches": _batches(dataset, batching),
        "fields": {name: _field(dataset, name, encoder) for name, encoder in dataset.encoders.items()},
        "ignored": list(dataset.schema.ignored),
        "leaks": dataset.leaks,
        "columns": [],
        "baseline": None,
    }
    if baseline:
        found["columns"] = _columns(dataset, options)
        found["baseline"] = score_baseline(dataset)
        found["alone"] = _alone(dataset)
    found["warnings"] = warnings_of(found)
    return found


def score_baseline(dataset: Dataset) -> dict[str, Any]:
    """Scores of the order-blind models on each split other than train; `model` names the one to compare with.

    Kept in the dataset's folder, as they change only with it.
    """
    kept = dataset.folder / f"baseline-{SCORES_FORMAT}-{dataset.positive}.json"
    try:
        return json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = _score_baseline(dataset)
    with contextlib.suppress(OSError):  # a label may be no file name, and a cache may be read-only
        unfinished = kept.with_suffix(f".{os.getpid()}.part")
        unfinished.write_text(json.dumps(found), encoding="utf-8")
        unfinished.replace(kept)
    return found


def _score_baseline(dataset: Dataset) -> dict[str, Any]:
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    splits = {name: sampled(split, MOST_STEPS, 0) for name, split in dataset.splits.items()}
    fitted = fit_baseline(splits, specs, len(dataset.classes))
    models = {
        model: {
            name: scores(splits[name].labels, own, dataset.classes, dataset.positive) for name, own in by_split.items()
        }
        for model, by_split in fitted.probabilities.items()
    }
    return {"model": fitted.name, "models": models}


def _classes(dataset: Dataset) -> list[dict[str, Any]]:
    """Rows of each class in each split."""
    size = len(dataset.classes)
    counts = {name: np.bincount(split.labels, minlength=size) for name, split in dataset.splits.items()}
    total = np.sum(list(counts.values()), axis=0)
    return [
        {
            "label": label,
            **{name: int(own[code]) for name, own in counts.items()},
            "share": float(total[code] / total.sum()),
        }
        for code, label in enumerate(dataset.classes)
    ]


def _lengths(dataset: Dataset) -> dict[str, Any]:
    """Summaries of all rows and of each class, and a histogram of train by class."""
    lengths = np.concatenate([split.sequences.lengths for split in dataset.splits.values()])
    labels = np.concatenate([split.labels for split in dataset.splits.values()])
    edges = _edges(lengths)
    by_class = {label: lengths[labels == code] for code, label in enumerate(dataset.classes)}
    return {
        "all": _summary(lengths),
        "by_class": {label: _summary(own) for label, own in by_class.items() if len(own)},
        "by_split": {name: _summary(split.sequences.lengths) for name, split in dataset.splits.items()},
        "histogram": {
            "edges": edges.tolist(),
            "by_class": {label: np.histogram(own, edges)[0].tolist() for label, own in by_class.items()},
        },
    }


def _edges(lengths: np.ndarray) -> np.ndarray:
    """Bins of whole lengths, all as wide; of lengths that differ a lot, each wider than the one before by a factor."""
    low, high = int(lengths.min()), int(lengths.max())
    if high > LONG_TAIL * np.median(lengths):
        return np.unique(np.geomspace(low, high + 1, LENGTH_BINS + 1).round()) - 0.5
    width = -(-(high - low + 1) // LENGTH_BINS)
    return np.arange(low, high + width + 1, width) - 0.5


def _summary(lengths: np.ndarray) -> dict[str, float]:
    quantiles = {f"p{q}": float(np.percentile(lengths, q)) for q in QUANTILES}
    return {
        "rows": len(lengths),
        "min": int(lengths.min()),
        "mean": float(lengths.mean()),
        **quantiles,
        "max": int(lengths.max()),
    }


def _truncation(dataset: Dataset) -> dict[str, Any]:
    lengths = np.concatenate([split.sequences.lengths for split in dataset.splits.values()])
    limits = sorted({int(np.percentile(lengths, q)) for q in (90, 95, 99)})
    rows = [
        {
            "max_length": limit,
            "cut_rows": float((lengths > limit).mean()),
            "lost_steps": float(np.maximum(0, lengths - limit).sum() / lengths.sum()),
        }
        for limit in limits
    ]
    return {
        "max_length": dataset.schema.max_length,
        "truncate": dataset.schema.truncate,
        "cut_rows": {name: counts["truncated"] for name, counts in dataset.report.items()},
        "if": rows,
    }


def _batches(dataset: Dataset, batching: Mapping[str, Any]) -> dict[str, Any]:
    """What the plan of the first epoch makes of the training lengths, and what padding all to the longest would."""
    lengths = dataset.splits["train"].sequences.lengths[:MOST_PLANNED]
    chosen = {key: batching[key] for key in ("max_tokens", "max_sequences", "pool_batches")}
    batches = plan_batches(lengths, **chosen, seed=0, epoch=0)
    return {
        "batches": len(batches),
        "rows_per_batch": float(np.mean([len(rows) for rows in batches])),
        "padding_efficiency": padding_efficiency(lengths, batches),
        "padding_efficiency_static": float(lengths.mean() / lengths.max()),
    }


def _field(dataset: Dataset, name: str, encoder: Encoder) -> dict[str, Any]:
    """Kind, what is unknown or missing, and whether it ever changes."""
    field, spec = encoder.field, encoder.spec()  # type: ignore[attr-defined]
    found: dict[str, Any] = {"kind": field.kind, "columns": list(field.columns), "describe": field.describe()}
    values = {split: sampled(own, MOST_STEPS, 0).sequences.fields[name] for split, own in dataset.splits.items()}
    train = values["train"]
    if spec["kind"] == "category":
        found["size"] = spec["size"]
        found["unknown"] = {split: float((own == 0).mean()) for split, own in values.items()}
        found["constant"] = bool(len(train) and (train == train[0]).all())
        return found
    width = field.width or 1
    if field.kind == "number" and field.option("missing") != "refuse" and field.option("mask"):
        shares = 1 - np.asarray(train[:, width : 2 * width]).mean(axis=0)
        found["missing"] = {column: float(share) for column, share in zip(_channels(field), shares, strict=True)}
    own = np.asarray(train[:, :width])
    still = (own == own[:1]).all(axis=0)
    found["constant"] = bool(still.all())
    if field.kind == "number" and not still.all():
        absent = found.get("missing", {})  # one that is only sometimes there says something by being there
        names = _channels(field)
        found["constant_channels"] = [
            name for name, flat in zip(names, still, strict=True) if flat and not absent.get(name)
        ]
    return found


def _channels(field: Any) -> list[str]:
    width = field.width or 1
    return list(field.columns) if len(field.columns) == width else [f"{field.name}[{place}]" for place in range(width)]


def _columns(dataset: Dataset, options: DataOptions) -> list[dict[str, Any]]:
    """Columns that no field reads, of the file with the labels."""
    table = options.source("labels")
    source = table or options.source("train")
    if source is None or (dataset.schema.group_by and table is None):
        return []
    used = {column for _, column in dataset.schema.columns}
    return revealing_columns(
        source, options.label, {*used, *dataset.schema.group_by, *([options.id] if options.id else [])}
    )


def _alone(dataset: Dataset) -> dict[str, float]:
    """Macro recall of the order-blind model that sees one field, where there are several."""
    specs = [encoder.spec() for encoder in dataset.encoders.values()]
    if len(specs) < 2:
        return {}
    splits = {name: sampled(split, MOST_STEPS // 8, 0) for name, split in dataset.splits.items()}
    found = {}
    last = list(splits)[-1]
    for spec in specs:
        own = {name: _only(split, spec["name"]) for name, split in splits.items()}
        fitted = fit_baseline(own, [spec], len(dataset.classes))
        result = scores(own[last].labels, fitted.probabilities[fitted.name][last], dataset.classes, dataset.positive)
        found[spec["name"]] = result["recall"]
    return found


def _only(split: Split, name: str) -> Split:
    sequences = Ragged(split.sequences.offsets, {name: split.sequences.fields[name]})
    return Split(sequences, split.labels, split.ids, split.rows)


def warnings_of(found: Mapping[str, Any]) -> list[str]:
    """A line for each thing in a survey that should be looked at before training."""
    lines = leak_lines(found["leaks"])
    rows = {entry["label"]: entry["train"] for entry in found["classes"]}
    most, least = max(rows.values()), min(rows.values())
    if least and most / least >= IMBALANCED:
        rare = min(rows, key=lambda label: rows[label])
        lines.append(
            f"classes are imbalanced: {most / least:.0f} rows of the largest for each of '{rare}'; watch recall, and "
            "try loss.class_weights=balanced"
        )
    few = [label for label, count in rows.items() if count < RARE_ROWS]
    if few:
        shown = ", ".join(few[:10])
        lines.append(f"{len(few)} classes have fewer than {RARE_ROWS} training rows: {shown}; no model learns them")
    for name, field in found["fields"].items():
        if field["constant"]:
            lines.append(f"field {name} is the same in every step; leave it out")
        if field.get("constant_channels"):
            lines.append(f"field {name}: constant channels: {', '.join(field['constant_channels'])}; leave them out")
        for split, share in field.get("unknown", {}).items():
            if split != "train" and share > MANY_UNKNOWN and share > 2 * field["unknown"]["train"]:
                lines.append(f"field {name}: {share:.1%} of the steps of {split} are values unseen in training")
    for entry in found["columns"]:
        if entry["revealing"]:
            how = f"AUROC {entry['auroc']:.3f} alone"
            if "beside" in entry:
                how = f"AUROC {entry['auroc_together']:.3f} next to '{entry['beside']}'"
            lines.append(f"column '{entry['column']}' gives the label away ({how}); it is not used, keep it out")
    for name, recall in (found.get("alone") or {}).items():
        if recall >= TOO_EASY:
            lines.append(
                f"field {name} alone, without its order, reaches a recall of {recall:.3f}; will it be known when you "
                "predict?"
            )
    return lines
