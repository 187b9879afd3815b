"""Interface of experiment loggers: a Lightning logger for curves, and a method that logs the finished run."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from ssl import SSLError
from typing import ClassVar, TypeVar
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

from lightning.pytorch.loggers import Logger

from seqclf.config.build import Config, locate
from seqclf.data.splitting.policies import SPLITS
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError, first_line, without_credentials
from seqclf.evaluation.metrics import MACRO_METRICS, metric_key
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.system.run_folder import is_resumed

Result = TypeVar("Result")


def shown_name(name: str) -> str:
    """Return the name under which a logger shows a score, whose name in Lightning is what callbacks monitor.

    >>> shown_name("validation/recall"), shown_name("validation/recall/yes"), shown_name("system/step_ms")
    ('validation/macro_recall', 'validation/recall_of_yes', 'system/step_ms')
    """
    split, _, metric = name.partition("/")
    kind, slash, label = metric.partition("/")
    if split not in SPLITS or kind not in MACRO_METRICS:
        return name
    return f"{split}/{metric_key(kind, label if slash else None)}"


def shown_names(metrics: Mapping[str, float]) -> dict[str, float]:
    """Return a copy of `metrics` whose keys are the names that a logger shows."""
    return {shown_name(name): value for name, value in metrics.items()}


@dataclass(frozen=True, kw_only=True)
class LoggedRun:
    """Results and files of a run after training and evaluation.

    `report`: its path, with metrics.json beside it; both are those of the run, or forms of them without rows of the
    data (`upload_rows`). `bundle`: path of the folder. None if they were not written.
    """

    name: str
    folder: Path
    epochs: int
    dataset: Dataset
    result: RunResult
    rows: Mapping[str, ScoredRows]
    report: Path | None
    bundle: Path | None

    def scores_beside_curves(self) -> dict[str, float]:
        """Return the scores of the exported model, by `split/name`, or `final/split/name` beside a curve."""
        return {
            f"{split}/{name}" if split in ("test", "baseline") else f"final/{split}/{name}": value
            for split, scores in self.result.scores().items()
            for name, value in scores.items()
        }


class RunLogger(ABC):
    """Base class of experiment loggers, for one run. `curves`: Lightning logger of values by step or by epoch.

    If `log_result` or `close` fails, only a warning is shown, so that the trained model is not lost.
    """

    service: ClassVar[str]  # name of the service in messages
    curves: Logger

    @classmethod
    @abstractmethod
    def open(cls, settings: Config, run: Path, config: Config) -> RunLogger:
        """Start logging a run. `run`: path of the run folder. `config`: config of the run, which is logged too."""

    @staticmethod
    def ids(run: Path, checkpoint: str | None, id_in: Callable[[Path], str | None]) -> tuple[str | None, str | None]:
        """Return the id that the folder `run` goes on with if it is resumed, and the id of the run it branches from.

        `checkpoint`: file that is resumed. `id_in`: function that returns the id that a service gave to a folder.
        """
        earlier = None if checkpoint is None else id_in(Path(checkpoint).absolute().parent.parent)
        return (earlier, None) if is_resumed(run, checkpoint) else (None, earlier)

    def log_result(self, finished: LoggedRun) -> None:
        """Log the scores, plots and files of a finished run."""
        with self.tolerance():
            self._log_result(finished)

    def close(self, failed: bool) -> None:
        """End the logging. `failed`: True if an error or a signal ended the run."""
        with self.tolerance():
            self._close(failed)

    @contextmanager
    def tolerance(self) -> Iterator[None]:
        """Convert an exception in the block into a warning."""
        try:
            yield
        except Exception as error:
            warn_without(self.service, error)

    @abstractmethod
    def _log_result(self, finished: LoggedRun) -> None: ...

    def _close(self, failed: bool) -> None:
        self.curves.finalize("failed" if failed else "success")


def warn_without(service: str, error: Exception) -> None:
    """Warn that the run continues without the logging service `service`."""
    reason = without_credentials(first_line(error))
    warnings.warn(f"{service}: {reason}; the run goes on without it", stacklevel=3)


def within(seconds: float | None, task: Callable[[], Result]) -> Result:
    """Return the result of `task`, which runs in a thread, or raise TimeoutError after `seconds` (None: never)."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(task())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    try:
        return future.result(seconds)
    except TimeoutError as error:
        raise TimeoutError(str(error) or f"no answer within {seconds} s") from None


def answers(url: str, seconds: float) -> bool:
    """Return True if a server answers within `seconds`, which include the DNS lookup and a slow answer."""
    try:
        within(seconds, lambda: urlopen(url, timeout=seconds).close())
    except HTTPError as error:
        return error.code < 500
    except URLError as error:
        return isinstance(error.reason, SSLError)  # W&B and MLflow may know its certificate
    except (OSError, HTTPException, ValueError):
        return False
    return True


PACKAGE = "seqclf.training.loggers"
# Dict logger name → path of its class, imported if it is selected. Every run writes metrics.csv without one.
LOGGERS = {
    "wandb": f"{PACKAGE}.wandb_logger.WandbRun",
    "mlflow": f"{PACKAGE}.lightning_run.MlflowRun",
    "tensorboard": f"{PACKAGE}.lightning_run.TensorBoardRun",
}


def require_installed(name: str) -> None:
    """Raise InputError if the package of a logger is not installed."""
    if name in LOGGERS and find_spec(name) is None:
        raise InputError(f"logger={name}", "not installed", f'pip install "seqclf[{name}]"')


def open_logger(settings: Config, run: Path, config: Config) -> RunLogger | None:
    """Return the logger that `settings` (conf/logger) select, None if there is none, or if it cannot start.

    Raises InputError if the package of the logger is not installed.
    """
    name = settings["name"]
    if name not in LOGGERS:
        return None
    require_installed(name)
    kind: type[RunLogger] = locate(LOGGERS[name])
    try:
        return kind.open(settings, run, config)
    except Exception as error:
        warn_without(kind.service, error)
        return None
