"""Logger for MLflow. If the server fails during a run, logging stops with one warning and the run continues."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.targets import Config
from seqclf.system.atomic_files import write_output
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger, answers, shown_names, warn_without

SERVICE = "MLflow"
FILES = ("metrics.csv", "config.yaml")
RUN_ID = "mlflow_run_id"  # file in the run folder
MAX_KEY = 250  # maximum number of characters
# By default, MLflow waits two minutes for a reply and repeats a failing request for minutes, which would block
# training.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


class _Curves(MLFlowLogger):
    """MLflow logger of Lightning that stops logging after the first error."""

    has_failed = False

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        if self.has_failed:
            return
        try:
            super().log_metrics({mlflow_key(name): value for name, value in shown_names(metrics).items()}, step)
        except Exception as error:
            self.has_failed = True
            warn_without(SERVICE, error)

    @rank_zero_only
    def finalize(self, status: str = "success") -> None:
        """Leave the MLflow run open, because Lightning calls `finalize` before the result is logged."""


class MlflowRun(RunLogger):
    """A run in MLflow, on a server or in a local store."""

    service = SERVICE

    def __init__(self, curves: _Curves, log_bundle: bool):
        self.curves: _Curves = curves
        self.log_bundle = log_bundle

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> MlflowRun:
        import mlflow

        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic"):  # these packages log one message for each table of a new database
            logging.getLogger(name).setLevel(logging.WARNING)
        # Lightning warns "experiment not found" when it creates a new experiment.
        logging.getLogger("lightning.pytorch.loggers.mlflow").setLevel(logging.ERROR)
        address = settings["tracking_uri"] or os.environ.get("MLFLOW_TRACKING_URI") or mlflow.get_tracking_uri()
        if address.startswith("http") and not answers(address, settings["timeout"]):
            raise ConnectionError(f"{address} does not answer")
        tags = {**(settings["tags"] or {}), "run_folder": str(run)}
        if settings["group"] is not None:
            tags["group"] = settings["group"]
        earlier, parent = cls.ids(run, config.get("checkpoint"), _id_in)
        if parent is not None:
            tags["mlflow.parentRunId"] = parent
        curves = _Curves(settings["experiment_name"], settings["run_name"], address, tags, run_id=earlier)
        if earlier is None:  # MLflow refuses a second value of a parameter
            values = {_encoded(key, r"[^a-zA-Z0-9_. -]")[:MAX_KEY]: value for key, value in dotted(config)}
            curves.log_hyperparams(values)
        write_output(run / RUN_ID, f"{curves.run_id}\n")
        return cls(curves, settings["log_bundle"])

    def _log_result(self, finished: FinishedRun) -> None:
        if self.curves.has_failed:
            return
        self.curves.log_metrics(finished.scores_beside_curves(), finished.result.trained_steps)
        client, run_id = self.curves.experiment, self.curves.run_id
        client.set_tag(run_id, "dataset.name", finished.name)
        client.set_tag(run_id, "dataset.digest", finished.dataset.digest)
        report = [] if finished.report is None else [finished.report, finished.report.with_name("metrics.json")]
        for path in (*report, *(finished.folder / name for name in FILES)):
            if path.is_file():
                client.log_artifact(run_id, str(path))
        if finished.bundle is not None and self.log_bundle:
            client.log_artifacts(run_id, str(finished.bundle), "bundle")

    def _close(self, failed: bool) -> None:
        if not self.curves.has_failed:
            self.curves.experiment.set_terminated(self.curves.run_id, "FAILED" if failed else "FINISHED")


def _id_in(run: Path) -> str | None:
    """Return the id of the MLflow run of a run folder, None if it has none."""
    try:
        return (run / RUN_ID).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def mlflow_key(name: str) -> str:
    """Convert the name of a score to a valid MLflow key.

    Each slash in a label, and each character that MLflow or Lightning rejects, is replaced by its character code.

    >>> mlflow_key("validation/recall_of_a/b"), mlflow_key("test/recall_of_yes!")
    ('validation/recall_of_a_2f_b', 'test/recall_of_yes_21_')
    """
    score, of, label = name.partition("_of_")
    return (_encoded(score, r"[^a-zA-Z0-9_. /-]") + of + _encoded(label, r"[^a-zA-Z0-9_. -]"))[:MAX_KEY]


def _encoded(text: str, refused: str) -> str:
    return re.sub(refused, lambda match: f"_{ord(match[0]):x}_", text)


def dotted(config: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the pairs (dotted key, value) of a nested config.

    A dotted key is written as on the command line, such as `model.hidden_size`.

    >>> list(dotted({"model": {"hidden_size": 64}, "seed": 0}))
    [('model.hidden_size', 64), ('seed', 0)]
    """
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from dotted(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value
