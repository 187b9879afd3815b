"""Scores, plots, tables, report and artifacts of a finished run in Weights & Biases."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import PositiveMetrics, metric_title
from seqclf.evaluation.results import SplitMetrics, SplitOutputs
from seqclf.training.loggers.run_logger import FinishedRun

CURVE_POINTS = 200
MAX_CLASSES = 200  # in a table or a confusion matrix
CURVED = ("train", "validation")  # splits whose scores have a curve by epoch


def log_result(run: Any, finished: FinishedRun) -> None:
    """Log the scores, plots, tables and report of a finished run. `run`: of `wandb.init`."""
    import wandb

    evaluation, result, classes = finished.evaluation, finished.result, finished.dataset.classes
    split, metrics, scores = result.split, result.metrics, finished.result.scores()
    panels: dict[str, Any] = {"epoch": finished.epochs - 1}
    for name in dict.fromkeys(["validation", split]):
        panels |= _confusion_matrix(name, evaluation.outputs[name], result.decision, classes)
    panels |= _curves(split, evaluation.last, evaluation.probabilities, metrics.positive, classes)
    panels[f"{split}/by_class"] = _table(_rows_by_class(metrics, classes))
    panels[f"{split}/by_length"] = _table(_rows_by_length(metrics))
    if finished.samples:
        panels[f"{split}/worst_errors"] = _table([sample._asdict() for sample in finished.samples])
    panels |= {f"{name}/{key}": value for name in scores if name not in CURVED for key, value in scores[name].items()}
    if comparison := finished.comparison():
        panels["baseline/comparison"] = _table(comparison)
    if finished.report is not None:
        # As it is: W&B's style sheet would come from its server.
        panels["report"] = wandb.Html(str(finished.report), inject=False)
    run.log(panels)
    # After the last value of each curve, which would otherwise be the summary: that of the last epoch, not of the
    # exported model.
    run.summary.update({f"{name}/{key}": value for name in scores for key, value in scores[name].items()})
    if result.baseline is not None:
        run.summary["baseline/model"] = result.baseline.model
    for row in comparison:
        metric = re.sub(r"\W+", "_", row["metric"]).strip("_")
        run.summary[f"baseline/difference_in_{metric}"] = row["difference"]
    for alarm in metrics.alarms:
        run.alert(title=alarm.kind.replace("_", " "), text=f"{alarm.text}. Try {alarm.remedy}.")


def log_artifacts(run: Any, finished: FinishedRun, log_bundle: bool, online: bool) -> None:
    """Log report and metrics as files, data and bundle as artifacts. `online`: the server answers."""
    import wandb

    for name in ("report.html", "metrics.json"):
        if (finished.folder / name).is_file():
            run.save(str(finished.folder / name), base_path=str(finished.folder), policy="now")
    rows = {name: len(split.sequences) for name, split in finished.dataset.splits.items()}
    description = {"name": finished.name, "digest": finished.dataset.digest, "rows": rows}
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", finished.name)
    data = wandb.Artifact(f"dataset-{name}", type="dataset", metadata=description)
    with data.new_file("dataset.json", encoding="utf-8") as file:
        json.dump(description, file, ensure_ascii=False)
    if online:
        run.use_artifact(data)  # waits for the server
    else:
        run.log_artifact(data)
    if finished.bundle is not None and log_bundle:
        metadata = {**finished.result.scores(), "dataset": finished.dataset.digest}
        model = wandb.Artifact(f"bundle-{run.id}", type="model", metadata=metadata)
        model.add_dir(str(finished.bundle))
        run.log_artifact(model)


def _confusion_matrix(split: str, outputs: SplitOutputs, decision: Decision, classes: list[str]) -> dict[str, Any]:
    import wandb

    if len(classes) > MAX_CLASSES:
        return {}
    predicted = decision.choose(outputs.logits).tolist()
    plot = wandb.plot.confusion_matrix(y_true=outputs.labels.tolist(), preds=predicted, class_names=classes)
    return {f"{split}/confusion_matrix": plot}


def _curves(
    split: str, outputs: SplitOutputs, probabilities: np.ndarray, positive: PositiveMetrics | None, classes: list[str]
) -> dict[str, Any]:
    """Precision-recall and ROC curve of the positive label. `probabilities`: (N, C)."""
    import wandb

    if positive is None or positive.average_precision is None:
        return {}
    label, index = positive.label, classes.index(positive.label)
    truth, score, recall = outputs.labels == index, probabilities[:, index], metric_title("recall", label)
    precision_recall = wandb.Table([recall, "precision", "threshold"], precision_recall_rows(truth, score))
    roc = wandb.Table(["false alert rate", recall, "threshold"], roc_rows(truth, score))
    return {
        f"{split}/precision_recall": wandb.plot.line(
            precision_recall, recall, "precision", title=f"precision and recall of {label} ({split})"
        ),
        f"{split}/roc": wandb.plot.line(roc, "false alert rate", recall, title=f"ROC of {label} ({split})"),
    }


def _rows_by_class(metrics: SplitMetrics, classes: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "class": label,
            "recall": metrics.recall_by_class[label],
            "precision": metrics.precision_by_class[label],
            "F1": metrics.f1_by_class[label],
            "rows": metrics.support_by_class[label],
        }
        for label in classes[:MAX_CLASSES]
    ]


def _rows_by_length(metrics: SplitMetrics) -> list[dict[str, Any]]:
    rows = []
    label = None if metrics.positive is None else metrics.positive.label
    for part in metrics.by_length:
        row = part.to_dict()
        of_positive = {_title_of(name, label): value for name, value in row.pop("positive", {}).items()}
        ends = {"tokens from": row.pop("low"), "tokens to": row.pop("high")}
        rows.append({**ends, **{metric_title(name): value for name, value in row.items()}, **of_positive})
    return rows


def _title_of(name: str, label: str | None) -> str:
    """Title of a metric of the positive label, which it always names: a column has no other heading."""
    title = metric_title(name, label)
    return title if title.endswith(f" of {label}") else f"{title} of {label}"


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    plain = (str, int, float, bool, type(None))
    data = [[value if isinstance(value, plain) else str(value) for value in row.values()] for row in rows]
    return wandb.Table(columns=list(rows[0]), data=data)


def precision_recall_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` rows of recall, precision and threshold along the curve."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(truth, score)
    changes = np.flatnonzero(np.diff(recall[:-1]))  # elsewhere, more alerts find nothing more
    return _thinned(np.unique([0, *changes, len(thresholds) - 1]), recall, precision, thresholds)


def roc_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` rows of false alert rate, recall and threshold along the curve.

    >>> roc_rows(np.array([False, True]), np.array([0.2, 0.7]))
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.7], [1.0, 1.0, 0.2]]
    """
    from sklearn.metrics import roc_curve

    false_rate, recall, thresholds = roc_curve(truth, score)
    return _thinned(np.arange(len(thresholds)), false_rate, recall, np.minimum(thresholds, 1.0))


def _thinned(points: np.ndarray, *columns: np.ndarray) -> list[list[float]]:
    """Return the rows `points` of columns, evenly thinned to `CURVE_POINTS`."""
    kept = points[np.unique(np.linspace(0, len(points) - 1, CURVE_POINTS).astype(int))]
    return np.stack([column[kept] for column in columns], axis=1).tolist()
