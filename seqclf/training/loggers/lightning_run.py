"""MLflow and TensorBoard, by Lightning's loggers. After its first error, a logger is left out of the run."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, MLFlowLogger, TensorBoardLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.build import Config
from seqclf.config.command_keys import flat_keys
from seqclf.system.atomic_files import write_output
from seqclf.training.loggers.run_logger import LoggedRun, RunLogger, answers, shown_names, warn_without

RUN_ID = "mlflow_run_id"  # file in the run folder
# By default, MLflow waits two minutes for a reply and repeats a failing request for minutes.
PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}


class _Curves(Logger):
    """Shows scores by the names of `shown_names`. A dead server never ends a training."""

    has_failed = False

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        logger: Any = super()
        named = {self.key(name): value for name, value in shown_names(metrics).items()}
        self.attempt(lambda: logger.log_metrics(named, step))

    def key(self, name: str) -> str:
        return name

    def finalize(self, status: str = "success") -> None:
        """Stay open: Lightning calls `finalize` before the result is logged."""

    def end(self, failed: bool) -> None:
        logger: Any = super()
        # Also after an error, or the run would go on in MLflow for ever.
        self.attempt(lambda: logger.finalize("failed" if failed else "success"), again=True)

    def attempt(self, log: Callable[[], object], *, again: bool = False) -> None:
        try:
            if again or not self.has_failed:
                log()
        except Exception as error:
            if not self.has_failed:
                warn_without(type(self).__name__, error)
            self.has_failed = True


class TensorBoard(_Curves, TensorBoardLogger):
    """Curves in the folder `tensorboard` of a run."""


class MLflow(_Curves, MLFlowLogger):
    def key(self, name: str) -> str:
        return mlflow_key(name)


class TensorBoardRun(RunLogger):
    """Logs the curves of a run and its final scores to TensorBoard."""

    service = "TensorBoard"
    curves: _Curves

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> TensorBoardRun:
        opened = cls()
        opened.curves = TensorBoard(run, name="tensorboard", version="")
        return opened

    def _log_result(self, finished: LoggedRun) -> None:
        self.curves.log_metrics(finished.scores_beside_curves(), finished.result.trained_steps)

    def _close(self, failed: bool) -> None:
        self.curves.end(failed)


class MlflowRun(TensorBoardRun):
    """Logs the config, curves, final scores and files of a run to MLflow, a server or a local store."""

    service = "MLflow"
    curves: MLflow
    log_bundle: bool

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> MlflowRun:
        import mlflow

        for name, value in PATIENCE.items():
            os.environ.setdefault(name, value)
        for name in ("mlflow", "alembic", "lightning.pytorch.loggers.mlflow"):  # a line for each table of a new store
            logging.getLogger(name).setLevel(logging.ERROR)
        address = settings["tracking_uri"] or os.environ.get("MLFLOW_TRACKING_URI") or mlflow.get_tracking_uri()
        if address.startswith("http") and not answers(address, settings["timeout"]):
            raise ConnectionError(f"{address} does not answer")
        earlier, parent = cls.ids(run, config.get("checkpoint"), _id_in)
        tags = {"run_folder": str(run), "group": settings["group"], "mlflow.parentRunId": parent}
        tags = {name: value for name, value in {**(settings["tags"] or {}), **tags}.items() if value is not None}
        opened = cls()
        opened.log_bundle = settings["log_bundle"]
        opened.curves = MLflow(settings["experiment_name"], settings["run_name"], address, tags, run_id=earlier)
        if earlier is None:  # MLflow refuses a second value of a parameter
            opened.curves.log_hyperparams({mlflow_key(key): str(value) for key, value in flat_keys(config).items()})
        write_output(run / RUN_ID, f"{opened.curves.run_id}\n")
        return opened

    def _log_result(self, finished: LoggedRun) -> None:
        super()._log_result(finished)
        self.curves.attempt(lambda: self._log_files(finished))

    def _log_files(self, finished: LoggedRun) -> None:
        client, run_id = self.curves.experiment, self.curves.run_id
        client.set_tag(run_id, "dataset.name", finished.name)
        client.set_tag(run_id, "dataset.digest", finished.dataset.digest)
        report = [] if finished.report is None else [finished.report, finished.report.with_name("metrics.json")]
        for path in (*report, finished.folder / "metrics.csv", finished.folder / "config.yaml"):
            if path.is_file():
                client.log_artifact(run_id, str(path))
        if finished.bundle is not None and self.log_bundle:
            client.log_artifacts(run_id, str(finished.bundle), "bundle")


def _id_in(run: Path) -> str | None:
    try:
        return (run / RUN_ID).read_text(encoding="utf-8").strip() or None
    except (OSError, UnicodeDecodeError):
        return None


def mlflow_key(name: str) -> str:
    """Convert a name to a key of MLflow: what MLflow rejects in it becomes a character code.

    >>> mlflow_key("validation/recall_of_a/b"), mlflow_key("test/recall_of_yes!")
    ('validation/recall_of_a_2f_b', 'test/recall_of_yes_21_')
    """
    score, of, label = name.partition("_of_")
    name = score + of + label.replace("/", "_2f_")  # a label such as ../a would be a path
    return re.sub(r"[^a-zA-Z0-9_. /-]", lambda match: f"_{ord(match[0]):x}_", name)[:250]
