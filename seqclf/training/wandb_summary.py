"""Plots, tables and artifacts of a finished run in Weights & Biases."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.results import Evaluation, SplitMetrics

CURVE_POINTS = 200
MOST_CLASSES = 200  # in a table or a confusion matrix


class RunSummary(NamedTuple):
    """A finished run. `name`: of its data; `samples`: the worst mistakes, NamedTuples of one kind."""

    name: str
    dataset: Dataset
    evaluation: Evaluation
    samples: Sequence[NamedTuple]
    bundle: Path | None


def flat_scores(metrics: Mapping[str, SplitMetrics]) -> dict[str, float]:
    """Metrics that are single numbers by `<split>/<name>`, those of the positive label by `<split>/positive/<name>`."""
    flat: dict[str, float] = {}
    for split, block in metrics.items():
        values = block.to_dict()
        values |= {f"positive/{name}": value for name, value in values.get("positive", {}).items()}
        flat |= {f"{split}/{name}": value for name, value in values.items() if isinstance(value, float)}
    return flat


def log_wandb(run: Any, summary: RunSummary, log_bundle: bool, online: bool) -> None:
    """Log a summary. `run`: of `wandb.init`; `online`: whether its server answers."""
    evaluation = summary.evaluation
    split, metrics = evaluation.split, evaluation.metrics[evaluation.split]
    run.summary.update({f"best/{name}": value for name, value in flat_scores(evaluation.metrics).items()})
    # Validation has curves by epoch under its name, so its final figures go elsewhere.
    panel = split if split == "test" else f"final/{split}"
    panels: dict[str, Any] = {
        **flat_scores({panel: metrics}),
        **_plots(panel, summary),
        f"{panel}/by_class": _table(_rows_by_class(metrics, summary.dataset.classes)),
        f"{panel}/by_length": _table(_rows_by_length(metrics)),
    }
    if summary.samples:
        panels[f"{panel}/predictions"] = _table([sample._asdict() for sample in summary.samples])
    run.log(panels)
    for alarm in metrics.alarms:
        run.alert(title=alarm.kind.replace("_", " "), text=f"{alarm.text}. Try {alarm.remedy}.")
    _log_artifacts(run, summary, log_bundle, online)


def _plots(panel: str, summary: RunSummary) -> dict[str, Any]:
    """The confusion matrix, and the precision-recall curve of the positive label."""
    import wandb

    evaluation, classes = summary.evaluation, summary.dataset.classes
    labels = evaluation.last.labels
    plots = {}
    if len(classes) <= MOST_CLASSES:
        plots[f"{panel}/confusion_matrix"] = wandb.plot.confusion_matrix(
            y_true=labels.tolist(), preds=evaluation.predicted.tolist(), class_names=classes
        )
    positive = evaluation.metrics[evaluation.split].positive
    if positive is not None and positive.average_precision is not None:
        index = classes.index(positive.label)
        rows = precision_recall_rows(labels == index, evaluation.probabilities[:, index])
        table = wandb.Table(columns=["recall", "precision", "threshold"], data=rows)
        title = f"precision and recall of {positive.label} on {evaluation.split}"
        plots[f"{panel}/precision_recall"] = wandb.plot.line(table, "recall", "precision", title=title)
    return plots


def _rows_by_class(metrics: SplitMetrics, classes: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "class": label,
            "recall": metrics.recall_by_class[label],
            "precision": metrics.precision_by_class[label],
            "f1": metrics.f1_by_class[label],
            "support": metrics.support_by_class[label],
        }
        for label in classes[:MOST_CLASSES]
    ]


def _rows_by_length(metrics: SplitMetrics) -> list[dict[str, Any]]:
    rows = []
    for part in metrics.by_length:
        row = part.to_dict()
        positive = row.pop("positive", {})
        rows.append({**row, **{f"positive {name}": value for name, value in positive.items()}})
    return rows


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    return wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])


def _log_artifacts(run: Any, summary: RunSummary, log_bundle: bool, online: bool) -> None:
    import wandb

    rows = {name: len(split.sequences) for name, split in summary.dataset.splits.items()}
    description = {"name": summary.name, "digest": summary.dataset.digest, "rows": rows}
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", summary.name)
    data = wandb.Artifact(f"dataset-{name}", type="dataset", metadata=description)
    with data.new_file("dataset.json", encoding="utf-8") as file:
        json.dump(description, file, ensure_ascii=False)
    if online:
        run.use_artifact(data)  # waits for the server
    else:
        run.log_artifact(data)
    if summary.bundle is not None and log_bundle:
        metadata = {**flat_scores(summary.evaluation.metrics), "dataset": summary.dataset.digest}
        model = wandb.Artifact(f"bundle-{run.id}", type="model", metadata=metadata)
        model.add_dir(str(summary.bundle))
        run.log_artifact(model)


def precision_recall_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` rows of recall, precision and threshold along the curve."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(truth, score)
    changes = np.flatnonzero(np.diff(recall[:-1]))  # elsewhere, more alerts find nothing more
    corners = np.unique([0, *changes, len(thresholds) - 1])
    points = corners[np.unique(np.linspace(0, len(corners) - 1, CURVE_POINTS).astype(int))]
    return np.stack([recall[points], precision[points], thresholds[points]], axis=1).tolist()
