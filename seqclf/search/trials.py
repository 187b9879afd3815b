"""Run the trials of a hyperparameter search, and write the results.

A trial is a training command in its own process. Optuna chooses the settings of each trial.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from seqclf.config.composition import CONF
from seqclf.errors import InputError
from seqclf.search.space import OF_TRIALS, SETTINGS, TrialSettings, as_overrides, suggest
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult
from seqclf.system.state_validation import read_json

if TYPE_CHECKING:
    from seqclf.search.space import SearchOptions


DATABASE = "search.db"
BEST = Path("experiment") / "best.yaml"
ERROR = "error"  # user attribute with the error line of an Optuna trial that failed
MAX_DRAWS = 100  # draws in a row of settings that failed before, after which the search ends


def open_study(folder: Path, options: SearchOptions, overrides: Sequence[str]) -> Any:
    """Open the Optuna study (stored trials) in `folder`. If the folder has no study, create a new study.

    A study is an SQLite file. `overrides`: the user's overrides, which are the same for all trials. Raises InputError
    if the stored trials have other overrides or another metric, because their values cannot be compared. The stored
    trials could also have trained on rows that are held out for a guarantee.
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
        direction=options.goal,
        load_if_exists=True,
    )
    # A search that goes on would draw the settings of its first trials again by the same seed.
    study.sampler = optuna.samplers.TPESampler(seed=options.seed + len(study.trials))
    settings = [*sorted(overrides), f"search.metric={options.metric}"]
    earlier = study.user_attrs.get("overrides", settings)
    if earlier != settings:
        raise InputError(
            f"hydra.run.dir={folder}",
            f"holds trials of other settings ({' '.join(earlier)})",
            "give the same, or name another folder",
        )
    study.set_user_attr("overrides", settings)
    return study


def run_trials(
    study: Any, options: SearchOptions, space: Mapping[str, Any], overrides: Sequence[str], folder: Path
) -> Iterator[str]:
    """Run trials until the study has `options.trials` trials that did not fail. Yield a line about each trial.

    If the training command of a trial fails, the trial is stored as failed and the search goes on with other settings,
    until `options.trials` trials in a row have failed. Raises InputError if no trial has completed by then.
    """
    import optuna

    states = optuna.trial.TrialState
    # If a search was killed, its last trial is still stored as running. Mark this trial as failed.
    for abandoned in study.get_trials(deepcopy=False, states=[states.RUNNING]):
        study.tell(abandoned.number, state=states.FAIL)
    failed = [trial.user_attrs for trial in study.get_trials(states=[states.FAIL]) if ERROR in trial.user_attrs]
    completed, failures, draws = len(study.get_trials(deepcopy=False, states=[states.COMPLETE])), 0, 0
    left = max(1, options.trials - completed)
    with progress.stage("searching", total=left, unit="trials", summary=False) as searching:
        while completed < options.trials and failures < options.trials and draws < MAX_DRAWS:
            trial = study.ask()
            settings = suggest(trial, space)
            if any(settings == earlier[SETTINGS] for earlier in failed):
                draws += 1
                study.tell(trial, state=states.FAIL)
                continue
            draws, run = 0, folder / f"trial-{trial.number}"
            value, error = _train([*overrides, *as_overrides(settings)], run, options.metric)
            if value is not None:
                completed, failures = completed + 1, 0
                searching.advance()
                study.tell(trial, value)
            else:
                failures += 1
                failed.append({SETTINGS: settings, ERROR: error})
                trial.set_user_attr(ERROR, error)
                study.tell(trial, state=states.FAIL)
            yield trial_line(trial.number, error if value is None else f"{value:.4f}", settings)
    if not completed:
        problem = f"all {len(failed)} trials failed, the last one: {failed[-1][ERROR]}"
        raise InputError(f"search.trials={options.trials}", problem)


def _train(overrides: Sequence[str], run: Path, metric: str) -> tuple[float | None, str]:
    """Run the training command of a trial. Return the metric and "", or None and an error line."""
    # Each trial runs in its own process, because training may run out of memory and changes PyTorch's global settings.
    python = [sys.executable, "-P", "-m", "seqclf.train"]
    command = [*python, *overrides, f"hydra.run.dir={run}", *as_overrides(OF_TRIALS)]
    own = {name: value for name, value in os.environ.items() if name != "WANDB_RUN_ID"}  # of one run, not of each trial
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1].removeprefix("error: ")
    try:
        return read_metric(read_json(run / "metrics.json"), metric), ""
    except InputError as error:  # a metric that these settings leave undefined
        return None, str(error)


def read_metric(metrics: Mapping[str, Any], name: str) -> float:
    """Return the number in metrics.json that has the dotted key `name`. Raises InputError if there is no such number.

    >>> read_metric({"validation": {"positive": {"average_precision": 0.75}}}, "validation.positive.average_precision")
    0.75
    """
    value = _below(metrics, name)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InputError(f"search.metric={name}", "metrics.json has no such number", "e.g. validation.recall")
    return float(value)


def _below(metrics: Any, name: str) -> Any:
    """Return the value at a dotted key in nested dicts, or None.

    The keys of the dicts may also contain dots, such as the label "v0.1".
    """
    if not isinstance(metrics, Mapping):
        return None
    found = (_below(part, name[len(key) + 1 :]) for key, part in metrics.items() if name.startswith(f"{key}."))
    return metrics[name] if name in metrics else next((value for value in found if value is not None), None)


@dataclass(frozen=True)
class SearchResult(JsonResult):
    """The JSON line of the command `search`.

    `search`: folder of the search. `trials`: number of trials. `metric`: name of the metric. `value`: value of the
    metric for the best trial. `best`: settings of the best trial.
    """

    search: str
    trials: int
    metric: str
    value: float
    best: TrialSettings


def trial_line(number: int, result: str, settings: TrialSettings) -> str:
    """Return one line of text about a trial. `result`: its metric or its error.

    >>> trial_line(3, "0.9124", {"model.layers": 2, "optimizer.lr": 0.00123456})
    'trial 3: 0.9124  model.layers=2 optimizer.lr=0.001235'
    """
    texts = (f"{key}={value:.4g}" if isinstance(value, float) else f"{key}={value}" for key, value in settings.items())
    return f"trial {number}: {result}  {' '.join(texts)}"


def write_best(settings: TrialSettings, title: str, path: Path) -> None:
    """Write the settings of a trial to a YAML file, which begins with the comment `title`.

    A command reads the file with `--config-dir FOLDER experiment=best`.
    """
    nested: dict[str, Any] = {}
    chosen = {key: value for key, value in settings.items() if (CONF / key).is_dir()}
    if chosen:
        nested["defaults"] = [{f"override /{group}": name} for group, name in chosen.items()]
    for key, value in settings.items():
        if key in chosen:
            continue
        *groups, name = key.split(".")
        group = nested
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    text = yaml.safe_dump(nested, sort_keys=False, allow_unicode=True)
    write_output(path, f"# @package _global_\n# {title}\n{text}")
