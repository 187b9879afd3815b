"""The interface of a logger: Lightning's logger during training, and a finished run in the end."""

from __future__ import annotations

import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from lightning.pytorch.loggers import Logger

from seqclf.config.instantiate import Config
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import first_line
from seqclf.evaluation.metrics import metric_title
from seqclf.evaluation.results import Evaluation, RunMetrics
from seqclf.training.loggers.score_names import main_scores, shown_scores


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
    metrics: RunMetrics
    samples: Sequence[NamedTuple]
    report: Path | None
    bundle: Path | None

    def scores(self) -> dict[str, dict[str, float]]:
        """Return the scores of the exported model by split, and those of the order-blind baseline as `baseline`."""
        scores = {
            # Of the rows that it was trained on, more would only fill the tables.
            split: main_scores(metrics) if split == "train" else shown_scores(metrics)
            for split, metrics in self.evaluation.metrics.items()
        }
        if self.metrics.baseline is not None:
            scores["baseline"] = shown_scores(self.metrics.baseline)
        return scores

    def scores_beside_curves(self) -> dict[str, float]:
        """Return the scores by `split/name`, for loggers whose curves by epoch have these names too.

        The exported model's scores of splits that have curves are named `final/split/name`.
        """
        return {
            f"{split}/{name}" if split in ("test", "baseline") else f"final/{split}/{name}": value
            for split, scores in self.scores().items()
            for name, value in scores.items()
        }

    def comparison(self) -> list[dict[str, Any]]:
        """Return the rows of the comparison with the baseline: metric, model, baseline, difference, low, high.

        Metrics have the names that people read: macro recall and the recall of a label are different metrics.
        """
        entries = self.metrics.to_dict().get("baseline", {}).get("comparison") or []
        return [{**entry, "metric": metric_title(entry["metric"])} for entry in entries]


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

    def log_result(self, result: FinishedRun) -> None:
        """Log the scores, plots and files of a finished run."""
        with self.tolerance():
            self._log_result(result)

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
    def _log_result(self, result: FinishedRun) -> None: ...

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
