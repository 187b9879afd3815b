"""The interface of a logger: Lightning's logger during training, and a finished run in the end."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lightning.pytorch.loggers import Logger

from seqclf.config.targets import Config, locate
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import MACRO_METRICS, metric_key, metric_title
from seqclf.evaluation.results import Evaluation
from seqclf.evaluation.run_result import RunResult

# Names of scores. Lightning's names, which callbacks monitor, stay as they are: `validation/recall` of all classes and
# `validation/recall/LABEL`. Loggers show the split and `metric_key`.


def shown_name(name: str) -> str:
    """Return the name that a logger shows for one of Lightning's.

    >>> shown_name("validation/recall"), shown_name("validation/recall/yes"), shown_name("system/step_ms")
    ('validation/macro_recall', 'validation/recall_of_yes', 'system/step_ms')
    """
    split, _, metric = name.partition("/")
    kind, slash, label = metric.partition("/")
    if split not in SPLITS or kind not in MACRO_METRICS:
        return name
    return f"{split}/{metric_key(kind, label if slash else None)}"


def shown_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return metrics under the names that a logger shows."""
    return {shown_name(name): value for name, value in metrics.items()}


@dataclass(frozen=True, kw_only=True)
class FinishedRun:
    """A trained and evaluated model, and the files of its run folder.

    `name`: of the data. `epochs`: completed ones. `samples`: the worst mistakes, NamedTuples of one kind. `report` and
    `bundle` are None where they were not written.
    """

    name: str
    folder: Path
    epochs: int
    dataset: Dataset
    evaluation: Evaluation
    result: RunResult
    samples: Sequence[NamedTuple]
    report: Path | None
    bundle: Path | None

    def scores_beside_curves(self) -> dict[str, float]:
        """Return the scores by `split/name`, for loggers whose curves by epoch have these names too.

        The exported model's scores of splits that have curves are named `final/split/name`.
        """
        return {
            f"{split}/{name}" if split in ("test", "baseline") else f"final/{split}/{name}": value
            for split, scores in self.result.scores().items()
            for name, value in scores.items()
        }

    def comparison(self) -> list[dict[str, Any]]:
        """Return the rows of the comparison with the baseline: metric, model, baseline, difference, low, high.

        Metrics have the names that people read: macro recall and the recall of a label are different metrics.
        """
        entries = [] if self.result.baseline is None else self.result.baseline.comparison
        return [{**entry.to_dict(), "metric": metric_title(entry.metric)} for entry in entries]


class RunLogger(ABC):
    """A logger of one run, `curves` of which is Lightning's logger for the values of steps and epochs.

    A logger never costs a trained model: a failure in `log_result` or `close` becomes a warning.
    """

    service: ClassVar[str]  # name for messages
    curves: Logger

    @classmethod
    @abstractmethod
    def open(cls, settings: Config, run: Path, config: Config) -> RunLogger:
        """Start to log the run in the folder `run`. `config` is recorded with it."""

    def log_result(self, finished: FinishedRun) -> None:
        """Log the scores, plots and files of a finished run."""
        with self.tolerance():
            self._log_result(finished)

    def close(self, failed: bool) -> None:
        """End the logging. `failed`: an error or a signal ended the run."""
        with self.tolerance():
            self._close(failed)

    @contextmanager
    def tolerance(self) -> Iterator[None]:
        """Turn an exception in the block into a warning."""
        try:
            yield
        except Exception as error:
            warn_without(self.service, error)

    @abstractmethod
    def _log_result(self, finished: FinishedRun) -> None: ...

    def _close(self, failed: bool) -> None:
        self.curves.finalize("failed" if failed else "success")


def warn_without(service: str, error: Exception) -> None:
    """Warn that a run goes on without a service."""
    warnings.warn(f"{service}: {first_line(error)}; the run goes on without it", stacklevel=3)


def answers(url: str, seconds: float) -> bool:
    """Return True if a server answers a request in time.

    A thread asks, because a timeout of the request does not cover the name lookup, which may hang as well.
    """
    import requests  # honours proxies and certificates, as W&B and MLflow do

    answered = threading.Event()

    def ask() -> None:
        with suppress(requests.RequestException):
            if requests.get(url, timeout=seconds, stream=True).status_code < 500:
                answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


# Choice of the logger by its name in the config.

PACKAGE = "seqclf.training.loggers"
# By name. A module is imported when its logger is chosen. csv and none have none: every run writes metrics.csv.
LOGGERS = {
    "wandb": f"{PACKAGE}.wandb_logger.WandbRun",
    "mlflow": f"{PACKAGE}.mlflow_logger.MlflowRun",
    "tensorboard": f"{PACKAGE}.tensorboard_logger.TensorBoardRun",
}


def open_logger(settings: Config, run: Path, config: Config) -> RunLogger | None:
    """Return the logger of `settings` (conf/logger), or None if there is none or it cannot start.

    `run`: the run folder. `config`: recorded with the run. Raises InputError if its package is not installed.
    """
    name = settings["name"]
    if name not in LOGGERS:
        return None
    kind: type[RunLogger] = locate(LOGGERS[name])
    try:
        return kind.open(settings, run, config)
    except ImportError:
        raise InputError(f"logger={name}", "not installed", f'pip install "seqclf[{name}]"') from None
    except Exception as error:
        warn_without(kind.service, error)
        return None
