"""Trials of a search: each is a training command in a separate process, with settings that Optuna proposes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.errors import InputError
from seqclf.system import progress
from seqclf.tuning.space import TrialSettings, as_overrides, suggest

if TYPE_CHECKING:
    from seqclf.tuning.options import SearchOptions

DATABASE = "search.db"
MAX_FAILURES = 5  # failed trials in a row that end a search


@dataclass(frozen=True)
class Trial:
    """A trial that has ended. `settings`: value by dotted key. `value`: of the metric, None if the trial failed."""

    number: int
    settings: TrialSettings
    value: float | None
    error: str | None

    @property
    def score(self) -> float:
        """The value of a trial that did not fail."""
        assert self.value is not None, f"trial {self.number} failed"
        return self.value


def open_study(folder: Path, options: SearchOptions, overrides: Sequence[str]) -> Any:
    """Return the Optuna study in `folder`, a new one or that of an earlier search. An SQLite file holds its trials.

    `overrides`: of the training, the same for all trials. Trials of other data or another decision were scored on other
    rows and cannot be compared. They may even have seen the rows that are held out for a guarantee.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise InputError(None, 'seqclf.search needs Optuna: pip install "seqclf[sweep]"') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="search",
        storage=f"sqlite:///{folder / DATABASE}",
        sampler=optuna.samplers.TPESampler(seed=options.seed),
        direction=options.direction,
        load_if_exists=True,
    )
    earlier_metric = study.user_attrs.get("metric")
    if earlier_metric not in (None, options.metric):
        raise InputError(
            f"search.metric={options.metric}", f"the search in {folder} is for {earlier_metric}", "name another folder"
        )
    earlier_overrides = study.user_attrs.get("overrides")
    if earlier_overrides is not None and earlier_overrides != sorted(overrides):
        earlier = " ".join(earlier_overrides) or "the defaults"
        raise InputError(
            f"hydra.run.dir={folder}",
            f"holds trials of other settings ({earlier})",
            "give the same, or name another folder",
        )
    study.set_user_attr("overrides", sorted(overrides))
    return study


def completed_trials(study: Any) -> list[Trial]:
    """Return the trials that did not fail, the best first."""
    trials = [_trial(trial) for trial in study.trials if trial.state.name == "COMPLETE"]
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    return sorted(trials, key=lambda trial: sign * trial.score)


def _trial(frozen: Any) -> Trial:
    """Return an Optuna trial as plain values."""
    return Trial(frozen.number, dict(frozen.params), frozen.value, frozen.user_attrs.get("error"))


def run_trials(
    study: Any, options: SearchOptions, overrides: Sequence[str], folder: Path, report: Callable[[Trial], None]
) -> None:
    """Run trials until `options.trials` of the study did not fail. `report` gets each as it ends.

    A trial that cannot be trained is recorded as failed. A first one that fails, or `MAX_FAILURES` in a row, end the
    search with the error of the last one.
    """
    import optuna

    states = optuna.trial.TrialState
    space = options.space or options.usual
    # A search that was killed left its trial running, which Optuna would wait for.
    for abandoned in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        study.tell(abandoned.number, state=states.FAIL)
    ended = len(study.get_trials(deepcopy=False, states=[states.COMPLETE]))
    with progress.stage("searching", total=max(1, options.trials - ended), unit="trials", summary=False) as searching:
        failures = 0
        while len(study.get_trials(deepcopy=False, states=[states.COMPLETE])) < options.trials:
            trial = study.ask()
            settings = as_overrides(suggest(trial, space))
            value, error = _train([*overrides, *settings], folder / f"trial-{trial.number}", options.metric)
            if value is not None:
                failures = 0
                searching.advance()
                study.tell(trial, value)
                study.set_user_attr("metric", options.metric)
            else:
                failures += 1
                trial.set_user_attr("error", error)
                study.tell(trial, state=states.FAIL)
                if trial.number == 0 or failures == MAX_FAILURES:
                    raise InputError(f"trial {trial.number} ({' '.join(settings)})", error)
            report(_trial(study.trials[-1]))


def _train(overrides: Sequence[str], run: Path, metric: str) -> tuple[float | None, str]:
    """Run a training command. Return its metric and no error, or None and the last line of its error."""
    # Not in this process: a trial may run out of memory, and its settings of PyTorch must not reach the next one.
    command = [
        sys.executable,
        "-m",
        "seqclf.train",
        *overrides,
        f"hydra.run.dir={run}",
        "export=false",
        "baseline=false",
        "decision.provisional=true",  # the rows held out for a guarantee must not choose the settings
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1].removeprefix("error: ")
    return read_metric(json.loads((run / "metrics.json").read_text(encoding="utf-8")), metric), ""


def read_metric(metrics: Mapping[str, Any], name: str) -> float:
    """Return a number of metrics.json by its dotted name. Raises InputError where there is none.

    >>> read_metric({"validation": {"positive": {"average_precision": 0.75}}}, "validation.positive.average_precision")
    0.75
    """
    value: Any = metrics
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"search.metric={name}", "metrics.json has no such number", "e.g. validation.recall")
    return float(value)
