"""Logger for Weights & Biases. If the server does not respond or rejects the run, the run is logged offline.

A failing server delays the start of a run by `timeout` at most, and its end by `finish_timeout`.
"""

from __future__ import annotations

import netrc
import os
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.build import Config
from seqclf.documents.terminal import show_note
from seqclf.errors import first_line, without_credentials
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.scores import ScoredRows
from seqclf.system.run_folder import FOLD
from seqclf.training.loggers.run_logger import LoggedRun, RunLogger, answers, shown_names, within

CURVE_POINTS = 200
MAX_CLASSES = 200  # maximum number of classes in a confusion matrix
LOGGING_SHARE = 0.25  # share of `finish_timeout` to log the result in, which asks the server about each table
# By default, W&B writes to the terminal and sends measurements of its own use, even offline. If the server hangs, these
# measurements keep the process from ending for 20 s.
DEFAULTS = {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"}
UPLOADED = "config, curves, scores, report {} rows of the data, machine, packages"
CURVED = ("train", "validation")  # splits whose scores have a curve by epoch


def log_result(run: Any, finished: LoggedRun) -> None:
    """Log the scores, plots and report of a finished run. `run`: the object that `wandb.init` returned."""
    import wandb

    result, classes = finished.result, finished.dataset.classes
    split, metrics, scores = result.split, result.metrics, finished.result.scores()
    panels: dict[str, Any] = {"epoch": finished.epochs - 1}
    for name in dict.fromkeys(["validation", split]):
        panels |= _confusion_matrix(name, finished.rows[name], result.decision, classes)
    if metrics.positive is not None and metrics.positive.average_precision is not None:
        label, index = metrics.positive.label, classes.index(metrics.positive.label)
        rows = finished.rows[split]
        score = ranking_scores(rows.probabilities(result.decision))[:, index]
        panels |= _curves(split, rows.labels == index, score, label)
    panels |= {f"{name}/{key}": value for name in scores if name not in CURVED for key, value in scores[name].items()}
    if finished.report is not None:
        # The report is logged without W&B's style sheet, which would have to be loaded from the W&B server.
        panels["report"] = wandb.Html(str(finished.report), inject=False)
    run.log(panels)
    # Set the summary after the last value of each curve is logged. By default, W&B's summary is the score of the last
    # epoch and not the score of the exported model.
    run.summary.update({f"{name}/{key}": value for name in scores for key, value in scores[name].items()})
    if result.baseline is not None:
        run.summary["baseline/model"] = result.baseline.kind
        for entry in result.baseline.comparisons:
            run.summary[f"baseline/difference_in_{re.sub(r'[^a-zA-Z0-9]+', '_', entry.title)}"] = entry.difference
    for alarm in metrics.alarms:
        run.alert(title=alarm.kind.replace("_", " "), text=f"{alarm.text}. Try {alarm.remedy}.")


def log_artifacts(run: Any, finished: LoggedRun, log_bundle: bool) -> None:
    """Log the report and metrics as files, and the bundle as an artifact."""
    import wandb

    if finished.report is not None:
        for name in (finished.report.name, "metrics.json"):
            run.save(str(finished.report.with_name(name)), base_path=str(finished.report.parent), policy="now")
    if finished.bundle is not None and log_bundle:
        metadata = {**finished.result.scores(), "dataset": finished.dataset.digest}
        model = wandb.Artifact(f"bundle-{run.id}", type="model", metadata=metadata)
        model.add_dir(str(finished.bundle))
        run.log_artifact(model)


def _confusion_matrix(split: str, outputs: ScoredRows, decision: Decision, classes: list[str]) -> dict[str, Any]:
    import wandb

    if len(classes) > MAX_CLASSES:
        return {}
    predicted = outputs.predicted(decision).tolist()
    plot = wandb.plot.confusion_matrix(y_true=outputs.labels.tolist(), preds=predicted, class_names=classes)
    return {f"{split}/confusion_matrix": plot}


def _curves(split: str, truth: np.ndarray, score: np.ndarray, label: str) -> dict[str, Any]:
    """Return the plots of the label. `truth`: (N,) True for its rows. `score`: (N,) ranking scores -log(1 - p)."""
    from sklearn.metrics import precision_recall_curve, roc_curve

    recall = metric_title("recall", label)
    precisions, recalls, thresholds = precision_recall_curve(truth, score, drop_intermediate=True)
    by_recall = {recall: recalls[:-1], "precision": precisions[:-1], "threshold": -np.expm1(-thresholds)}
    false_rates, recalls, thresholds = roc_curve(truth, score)
    by_rate = {"false alert rate": false_rates, recall: recalls, "threshold": -np.expm1(-thresholds)}
    return {
        f"{split}/precision_recall": _line(by_recall, f"precision and recall of {label} ({split})"),
        f"{split}/roc": _line(by_rate, f"ROC of {label} ({split})"),
    }


def _line(columns: Mapping[str, np.ndarray], title: str) -> Any:
    import wandb

    rows = np.stack(list(columns.values()), axis=1)
    kept = np.unique(np.linspace(0, len(rows) - 1, CURVE_POINTS).astype(int))
    x, y, *_ = columns
    return wandb.plot.line(wandb.Table(list(columns), rows[kept].tolist()), x, y, title=title)


BY_EPOCH = ("train/*", "validation/*", "system/*")
BY_STEP = ("train/step_loss", "train/gradient_norm", "lr")


class _WandbCurves(WandbLogger):
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(shown_names(metrics), step)


class WandbRun(RunLogger):
    """A run in W&B, online or offline.

    Under the name of a score, the history is its curve by epoch, and the summary is the value of the exported model.
    """

    service = "Weights & Biases"

    def __init__(self, run: Any, settings: Config):
        self.run = run  # the object that `wandb.init` returned
        self.settings = settings
        self.curves = _WandbCurves(experiment=run)
        run.define_metric("epoch", hidden=True)
        for names, axis in ((BY_EPOCH, "epoch"), (BY_STEP, "trainer/global_step")):
            for name in names:
                run.define_metric(name, step_metric=axis)

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> WandbRun:
        for name, value in DEFAULTS.items():
            os.environ.setdefault(name, value)
        mode = settings["mode"] if settings["mode"] != "auto" else os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and not _has_key():
            mode = "offline"  # without an API key, W&B in online mode would prompt for a key
        deadline = time.monotonic() + settings["timeout"]
        if mode == "online" and not answers(_server(), settings["timeout"] / 2):
            mode = _go_offline(f"{_server()} does not answer", run)
        try:
            opened = cls(_init(settings, run, config, mode, max(1.0, deadline - time.monotonic())), settings)
            if mode == "online":
                uploaded = UPLOADED.format("with" if settings["upload_rows"] else "without")
                bundle = ", bundle" * settings["log_bundle"]
                _say(f"uploads {uploaded}{bundle}; logger.mode=offline keeps all of it here")
            return opened
        except Exception as error:
            if mode != "online":
                raise
            mode = _go_offline(first_line(error), run)
            return cls(_init(settings, run, config, mode, settings["timeout"]), settings)

    def _log_result(self, finished: LoggedRun) -> None:
        def log() -> None:
            log_result(self.run, finished)
            log_artifacts(self.run, finished, self.settings["log_bundle"])

        seconds = None if self.run.offline else LOGGING_SHARE * self.settings["finish_timeout"]
        within(seconds or None, log)

    def _close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))  # ends the W&B run, so that the next run of a multirun starts a new one


def _init(settings: Config, run: Path, config: Config, mode: str, seconds: float) -> Any:
    import wandb

    own, parent = WandbRun.ids(run, config.get("checkpoint"), _id_in)
    timeout = (1 - LOGGING_SHARE) * settings["finish_timeout"]
    return wandb.init(
        project=settings["project"] or None,
        entity=settings["entity"] or None,
        name=settings["run_name"] or None,
        group=settings["group"] or None,
        tags=settings["tags"],
        job_type=settings["job_type"],
        notes=settings["notes"],
        id=own or _new_id(run, parent),  # a resumed run continues its curves
        resume="allow",
        dir=str(run),
        mode=mode,  # type: ignore[arg-type]
        config={**config, **({} if parent is None else {"parent_run": parent})},
        settings=wandb.Settings(console="off", silent=True, init_timeout=seconds, finish_timeout=timeout),
        reinit="finish_previous",  # all runs of a multirun use the same process
    )


def _go_offline(reason: str, run: Path) -> str:
    _say(f"{reason}; the run is recorded offline, `wandb sync {run / 'wandb'}/offline-run-*` uploads it")
    return "offline"


def _say(text: str) -> None:
    show_note(f"{WandbRun.service}: {without_credentials(text)}")


def _server() -> str:
    """Return the address of the W&B server, which comes from the environment or from W&B's settings files."""
    from wandb.sdk import wandb_setup

    return str(wandb_setup.singleton().settings.base_url)


def _id_in(run: Path) -> str | None:
    files = run.glob("wandb/*run-*/run-*.wandb")
    latest = max(files, key=lambda path: path.stat().st_mtime, default=None)
    return None if latest is None else latest.stem.removeprefix("run-")


def _new_id(run: Path, parent: str | None) -> str:
    """Return the id of a new W&B run: that of the environment for a single run, because each folder has its own id."""
    asked = os.environ.get("WANDB_RUN_ID")
    is_job = HydraConfig.initialized() and HydraConfig.get().mode == RunMode.MULTIRUN
    is_single = not is_job and not run.name.startswith(FOLD)
    return asked if asked and asked != parent and is_single else secrets.token_hex(4)


def _has_key() -> bool:
    """Return True if an API key for W&B is set in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
