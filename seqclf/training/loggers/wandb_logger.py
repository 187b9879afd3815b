"""Logger for Weights & Biases. If the server does not respond or rejects the run, the run is logged offline.

A failing server delays the run only by seconds.
"""

from __future__ import annotations

import json
import netrc
import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.targets import Config
from seqclf.errors import first_line
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import PositiveMetrics, metric_title
from seqclf.evaluation.results import SplitMetrics, SplitOutputs
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger, answers, shown_names

CURVE_POINTS = 200
MAX_CLASSES = 200  # maximum number of classes in a table or a confusion matrix
CURVED = ("train", "validation")  # splits whose scores have a curve by epoch


def log_result(run: Any, finished: FinishedRun) -> None:
    """Log the scores, plots, tables and report of a finished run. `run`: the object that `wandb.init` returned."""
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
        # The report is logged without W&B's style sheet, which would have to be loaded from the W&B server.
        panels["report"] = wandb.Html(str(finished.report), inject=False)
    run.log(panels)
    # Set the summary after the last value of each curve is logged. By default, W&B's summary is the score of the last
    # epoch and not the score of the exported model.
    run.summary.update({f"{name}/{key}": value for name in scores for key, value in scores[name].items()})
    if result.baseline is not None:
        run.summary["baseline/model"] = result.baseline.model
    for row in comparison:
        metric = re.sub(r"\W+", "_", row["metric"]).strip("_")
        run.summary[f"baseline/difference_in_{metric}"] = row["difference"]
    for alarm in metrics.alarms:
        run.alert(title=alarm.kind.replace("_", " "), text=f"{alarm.text}. Try {alarm.remedy}.")


def log_artifacts(run: Any, finished: FinishedRun, log_bundle: bool, online: bool) -> None:
    """Log the report and metrics as files, and the dataset and the bundle as artifacts.

    `online`: True if the server answers. The artifact of the dataset holds a description of the dataset, but no rows.
    """
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
        run.use_artifact(data)  # `use_artifact` needs an answer from the server
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
    """Return the precision-recall and ROC plots of the positive label.

    `probabilities`: (N, C) probabilities of the classes.
    """
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
    """Return a column heading that consists of a metric and the positive label."""
    title = metric_title(name, label)
    return title if title.endswith(f" of {label}") else f"{title} of {label}"


def _table(rows: Sequence[Mapping[str, Any]]) -> Any:
    import wandb

    plain = (str, int, float, bool, type(None))
    data = [[value if isinstance(value, plain) else str(value) for value in row.values()] for row in rows]
    return wandb.Table(columns=list(rows[0]), data=data)


def precision_recall_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` points (recall, precision, threshold) of the precision-recall curve."""
    from sklearn.metrics import precision_recall_curve

    precision, recall, thresholds = precision_recall_curve(truth, score)
    changes = np.flatnonzero(np.diff(recall[:-1]))  # points where recall changes
    return _thinned(np.unique([0, *changes, len(thresholds) - 1]), recall, precision, thresholds)


def roc_rows(truth: np.ndarray, score: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` points (false alert rate, recall, threshold) of the ROC curve.

    >>> roc_rows(np.array([False, True]), np.array([0.2, 0.7]))
    [[0.0, 0.0, 1.0], [0.0, 1.0, 0.7], [1.0, 1.0, 0.2]]
    """
    from sklearn.metrics import roc_curve

    false_rate, recall, thresholds = roc_curve(truth, score)
    return _thinned(np.arange(len(thresholds)), false_rate, recall, np.minimum(thresholds, 1.0))


def _thinned(points: np.ndarray, *columns: np.ndarray) -> list[list[float]]:
    """Return at most `CURVE_POINTS` evenly spaced rows of a table with the given `columns`.

    `points`: indices of the rows to choose from.
    """
    kept = points[np.unique(np.linspace(0, len(points) - 1, CURVE_POINTS).astype(int))]
    return np.stack([column[kept] for column in columns], axis=1).tolist()


BY_EPOCH = ("train/*", "validation/*", "system/*")
BY_STEP = ("train/step_loss", "train/gradient_norm", "lr")


class _Curves(WandbLogger):
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(shown_names(metrics), step)


class WandbRun(RunLogger):
    """A run in W&B, online or offline.

    In W&B, the curve and the final value of a score have the same name. The history of a score in W&B is its curve by
    epoch, and the summary of a score is the value of the exported model.
    """

    service = "Weights & Biases"

    def __init__(self, run: Any, settings: Config):
        self.run = run  # the object that `wandb.init` returned
        self.settings = settings
        self.curves = _Curves(experiment=run)
        run.define_metric("epoch", hidden=True)
        for names, axis in ((BY_EPOCH, "epoch"), (BY_STEP, "trainer/global_step")):
            for name in names:
                run.define_metric(name, step_metric=axis)

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> WandbRun:
        os.environ.setdefault("WANDB_SILENT", "true")
        mode = settings["mode"] if settings["mode"] != "auto" else os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and not _has_key():
            mode = "offline"  # without an API key, W&B in online mode would prompt for a key
        deadline = time.monotonic() + settings["timeout"]
        if mode == "online" and not answers(_server(), settings["timeout"] / 2):
            mode = _go_offline(f"{_server()} does not answer", run)
        try:
            return cls(_init(settings, run, config, mode, max(1.0, deadline - time.monotonic())), settings)
        except Exception as error:
            if mode != "online":
                raise
            mode = _go_offline(first_line(error), run)
            return cls(_init(settings, run, config, mode, settings["timeout"]), settings)

    def _log_result(self, finished: FinishedRun) -> None:
        log_result(self.run, finished)
        online = not self.run.offline and answers(_server(), self.settings["timeout"] / 2)
        log_artifacts(self.run, finished, self.settings["log_bundle"], online)

    def _close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))  # ends the W&B run, so that the next run of a multirun starts a new one


def _init(settings: Config, run: Path, config: Config, mode: str, seconds: float) -> Any:
    import wandb

    return wandb.init(
        project=settings["project"] or None,
        entity=settings["entity"] or None,
        name=settings["run_name"] or None,
        group=settings["group"] or None,
        tags=settings["tags"],
        job_type=settings["job_type"],
        notes=settings["notes"],
        # A resumed run continues the curves of the earlier W&B run.
        id=_earlier_id(config.get("checkpoint")),
        resume="allow",
        dir=str(run),
        mode=mode,  # type: ignore[arg-type]
        config=config,
        settings=wandb.Settings(
            console="off", silent=True, init_timeout=seconds, finish_timeout=settings["finish_timeout"]
        ),
        # All runs of a multirun use the same process.
        reinit="finish_previous",
    )


def _go_offline(reason: str, run: Path) -> str:
    remedy = f"`wandb sync {run / 'wandb'}/offline-run-*` uploads it"
    print(f"{WandbRun.service}: {reason}; the run is recorded offline, {remedy}", file=sys.stderr)
    return "offline"


def _server() -> str:
    """Return the address of the W&B server, which comes from the environment or from W&B's settings files."""
    from wandb.sdk import wandb_setup

    return str(wandb_setup.singleton().settings.base_url)


def _earlier_id(checkpoint: str | None) -> str | None:
    """Return the id of the W&B run that belongs to a checkpoint file (RUN/checkpoints/last.ckpt), or None if unknown.

    If the checkpoint is resumed, logging continues in this W&B run.
    """
    if checkpoint is None:
        return None
    files = Path(checkpoint).absolute().parent.parent.glob("wandb/*run-*/run-*.wandb")
    latest = max(files, key=lambda path: path.stat().st_mtime, default=None)
    return None if latest is None else latest.stem.removeprefix("run-")


def _has_key() -> bool:
    """Return True if an API key for W&B is set in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
