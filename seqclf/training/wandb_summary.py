"""Plots, tables and artifacts of a finished run for Weights & Biases."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqclf.data.storage.dataset import Dataset
from seqclf.evaluation.results import Outcome

CURVE_POINTS = 200
MOST_CLASSES = 200  # in a table or a confusion matrix


class RunSummary(NamedTuple):
    """Results of a run. `name`: of the data. `samples`: rows worth a look, NamedTuples of one kind."""

    name: str
    dataset: Dataset
    outcome: Outcome
    samples: Sequence[Any]
    bundle: Path | None


def flat_scores(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return each score that is one number by `<split>/<name>`, those of the positive label included."""
    found: dict[str, float] = {}
    for split, block in metrics.items():
        own = {**block, **{f"positive/{name}": value for name, value in block.get("positive", {}).items()}}
        found |= {f"{split}/{name}": value for name, value in own.items() if isinstance(value, float)}
    return found


def log_wandb(run: Any, verdict: RunSummary, log_bundle: bool, online: bool) -> None:
    """Log to `run`, as `wandb.init` returns it. `online`: True if its server answers."""
    import wandb

    outcome, dataset = verdict.outcome, verdict.dataset
    classes, positive, split = dataset.classes, dataset.positive, outcome.split
    found = outcome.metrics[split]
    run.summary.update({f"best/{name}": value for name, value in flat_scores(outcome.metrics).items()})
    # The curves by epoch use the name of validation already.
    panel = split if split == "test" else f"final/{split}"
    panels: dict[str, Any] = dict(flat_scores({panel: found}))
    if len(classes) <= MOST_CLASSES:
        panels[f"{panel}/confusion_matrix"] = wandb.plot.confusion_matrix(
            y_true=outcome.last.labels.tolist(), preds=outcome.predicted.tolist(), class_names=classes
        )
    if positive is not None and found["positive"]["average_precision"] is not None:
        index = classes.index(positive)
        table = wandb.Table(
            columns=["recall", "precision", "threshold"],
            data=precision_recall_rows(outcome.last.labels == index, outcome.probabilities[:, index]),
        )
        title = f"precision and recall of {positive} on {split}"
        panels[f"{panel}/precision_recall"] = wandb.plot.line(table, "recall", "precision", title=title)
    names = ("recall", "precision", "f1", "support")
    by_class = [{"class": label, **{name: found[f"{name}_by_class"][label] for name in names}} for label in classes]
    panels[f"{panel}/by_class"] = _table(by_class[:MOST_CLASSES])
    by_length = []
    for part in found["by_length"]:
        own = {f"positive {name}": value for name, value in part.get("positive", {}).items()}
        by_length.append({**{name: value for name, value in part.items() if name != "positive"}, **own})
    panels[f"{panel}/by_length"] = _table(by_length)
    if verdict.samples:
        panels[f"{panel}/predictions"] = _table([one._asdict() for one in verdict.samples])
    run.log(panels)
    for alarm in found["alarms"]:
        run.alert(title=alarm["kind"].replace("_", " "), text=f"{alarm['text']}. Try {alarm['remedy']}.")
    _log_artifacts(run, verdict, log_bundle, online)


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    return wandb.Table(columns=list(rows[0]), data=[list(row.values()) for row in rows])


def _log_artifacts(run: Any, verdict: RunSummary, log_bundle: bool, online: bool) -> None:
    import wandb

    rows = {split: len(own.sequences) for split, own in verdict.dataset.splits.items()}
    description = {"name": verdict.name, "digest": verdict.dataset.digest, "rows": rows}
    name = re.sub(r"[^A-Za-z0-9_.-]", "-", verdict.name)
    data = wandb.Artifact(f"dataset-{name}", type="dataset", metadata=description)
    with data.new_file("dataset.json", encoding="utf-8") as file:
        json.dump(description, file, ensure_ascii=False)
    if online:
        run.use_artifact(data)  # waits for the server
    else:
        run.log_artifact(data)
    if verdict.bundle is not None and log_bundle:
        metadata = {**flat_scores(verdict.outcome.metrics), "dataset": verdict.dataset.digest}
        model = wandb.Artifact(f"bundle-{run.id}", type="model", metadata=metadata)
        model.add_dir(str(verdict.bundle))
        run.log_artifact(model)


def precision_recall_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` rows of recall, precision and threshold along the curve."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(truth, score)
    # Points where recall changes. Between them only false alerts are added.
    turns = np.flatnonzero(np.diff(recall[:-1]))
    corners = np.unique([0, *turns, len(thresholds) - 1])
    indices = corners[np.unique(np.linspace(0, len(corners) - 1, CURVE_POINTS).astype(int))]
    return np.stack([recall[indices], precision[indices], thresholds[indices]], axis=1).tolist()
