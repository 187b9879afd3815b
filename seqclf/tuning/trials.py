"""Trials: each a training command of its own, with settings of Optuna's choice."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from seqclf.errors import InputError
from seqclf.tuning.space import as_overrides, suggest

DATABASE = "search.db"
MOST_FAILURES = 5


def open_study(folder: Path, settings: Mapping[str, Any], overrides: Sequence[str]) -> Any:
    """The study in `folder`, begun or gone on with; its trials are in an SQLite file.

    `overrides`: of the training, the same for all trials. Trials of other data or another decision were scored on other
    rows and cannot be compared; they may even have seen the rows that a promise keeps apart.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise InputError('seqclf.search needs Optuna: pip install "seqclf[sweep]"') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    study = optuna.create_study(
        study_name="search",
        storage=f"sqlite:///{folder / DATABASE}",
        sampler=optuna.samplers.TPESampler(seed=settings["seed"]),
        direction=settings["direction"],
        load_if_exists=True,
    )
    known = study.user_attrs.get("metric")
    if known not in (None, settings["metric"]):
        raise InputError(
            f"search.metric={settings['metric']}: the search in {folder} is for {known}; name another folder"
        )
    begun = study.user_attrs.get("overrides")
    if begun is not None and begun != sorted(overrides):
        raise InputError(
            f"hydra.run.dir={folder}: holds trials of other settings ({' '.join(begun) or 'the defaults'}); give the "
            "same, or name another folder"
        )
    study.set_user_attr("overrides", sorted(overrides))
    return study


def run_trials(
    study: Any,
    space: Mapping[str, Any],
    settings: Mapping[str, Any],
    overrides: Sequence[str],
    folder: Path,
    tell: Callable[[Any], None],
) -> None:
    """Run trials until `settings["trials"]` of the study have ended well; `tell` of each as it ends.

    A trial that cannot be trained is recorded as failed. A first one that fails, or `MOST_FAILURES` in a row, end the
    search with what the last one said.
    """
    import optuna

    state = optuna.trial.TrialState
    for lost in study.get_trials(deepcopy=False, states=[state.RUNNING]):  # of a search that was broken off
        study.tell(lost.number, state=state.FAIL)
    failures = 0
    while len(study.get_trials(deepcopy=False, states=[state.COMPLETE])) < settings["trials"]:
        trial = study.ask()
        chosen = suggest(trial, space)
        value, error = _train([*overrides, *as_overrides(chosen)], folder / f"trial-{trial.number}", settings["metric"])
        if value is not None:
            failures = 0
            study.tell(trial, value)
            study.set_user_attr("metric", settings["metric"])
        else:
            failures += 1
            trial.set_user_attr("error", error)
            study.tell(trial, state=state.FAIL)
            if trial.number == 0 or failures == MOST_FAILURES:
                raise InputError(f"trial {trial.number} ({' '.join(as_overrides(chosen))}): {error}")
        tell(study.trials[-1])


def _train(overrides: Sequence[str], run: Path, metric: str) -> tuple[float | None, str]:
    """The metric of a training command, or what it said instead."""
    command = [
        sys.executable,
        "-m",
        "seqclf.train",
        *overrides,
        f"hydra.run.dir={run}",
        "export=false",
        "baseline=false",
        "decision.provisional=true",  # the rows of a promise's threshold must not choose the settings
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1].removeprefix("error: ")
    return metric_of(json.loads((run / "metrics.json").read_text(encoding="utf-8")), metric), ""


def metric_of(metrics: Mapping[str, Any], name: str) -> float:
    """A number in metrics.json by its dotted name: `validation.positive.average_precision`."""
    value: Any = metrics
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"search.metric={name}: metrics.json has no such number; e.g. validation.recall")
    return float(value)
