"""Trials of a search: training commands, each in a process of its own, whose settings Optuna chooses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from seqclf.config.command_keys import CONF, nested_keys
from seqclf.errors import InputError
from seqclf.evaluation.calibration import Calibration
from seqclf.evaluation.split_result import SplitResult
from seqclf.settings.command_settings import SearchOptions
from seqclf.settings.typed_text import did_you_mean, hydra_value
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.state_validation import read_json

DATABASE = "search.db"
BEST = Path("experiment") / "best.yaml"
# User attributes of an Optuna trial: its settings, as Optuna's own parameters cannot be lists, and its error.
SETTINGS, ERROR = "settings", "error"
MAX_DRAWS = 100  # draws in a row of settings that failed before, after which the search ends
# Settings of all trials: no bundle and no baseline. With `provisional`, the rows that are held out for a guarantee have
# no influence on the best settings; all trials must hold out the same ones.
OF_TRIALS = {"export": False, "baseline": False, "decision.provisional": True}
SCORES: dict[str, Any] = {"validation": SplitResult, "test": SplitResult, "calibration": Calibration}


def require_metric(name: str) -> str:
    """Return the name of a metric. Raises InputError if its first two parts name no scores of metrics.json.

    >>> require_metric("validation.positive.average_precision")
    'validation.positive.average_precision'
    """
    split, _, metric = name.partition(".")
    known = [field.name for field in fields(SCORES[split]) if field.name != "own"] if split in SCORES else []
    if (first := metric.partition(".")[0]) not in known:
        remedy = did_you_mean(first, known) or f"write one of {', '.join(known) or 'validation.recall'}"
        raise InputError(f"search.metric={name}", "metrics.json has no such number", remedy)
    return name


def open_study(folder: Path, options: SearchOptions, space: Mapping[str, Any], overrides: Sequence[str]) -> Any:
    """Open the Optuna study (stored trials) in `folder`, or create one.

    `overrides`: the user's overrides, which are the same for all trials. Raises InputError if the stored trials have
    others, or another space or metric: their values cannot be compared, and they may have trained on held-out rows.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        raise InputError(None, 'seqclf.search needs Optuna: pip install "seqclf[sweep]"') from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder.mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{folder / DATABASE}"
    study = optuna.create_study(study_name="search", storage=storage, direction=options.direction, load_if_exists=True)
    # A search that goes on would draw the settings of its first trials again by the same seed.
    study.sampler = optuna.samplers.TPESampler(seed=options.seed + len(study.trials))
    settings = [*sorted(overrides), *as_overrides({"search.metric": options.metric, "search.space": space})]
    earlier = study.user_attrs.get("overrides", settings)
    if earlier != settings:
        problem = f"holds trials of other settings ({' '.join(earlier)})"
        raise InputError(f"hydra.run.dir={folder}", problem, "give the same, or name another folder")
    study.set_user_attr("overrides", settings)
    return study


def run_trials(
    study: Any, options: SearchOptions, space: Mapping[str, Any], overrides: Sequence[str], folder: Path
) -> Iterator[str]:
    """Run trials until the study has `options.trials` trials that did not fail. Yield a line about each trial.

    If a training fails, its settings are not drawn again, until `options.trials` trainings in a row have failed. Raises
    InputError if none has completed by then.
    """
    from optuna.trial import TrialState

    # If a search was killed, its last trial is still stored as running.
    for abandoned in study.get_trials(deepcopy=False, states=[TrialState.RUNNING]):
        study.tell(abandoned.number, state=TrialState.FAIL)
    failed = [trial.user_attrs for trial in study.get_trials(states=[TrialState.FAIL]) if ERROR in trial.user_attrs]
    completed, failures, draws = len(study.get_trials(deepcopy=False, states=[TrialState.COMPLETE])), 0, 0
    left = max(1, options.trials - completed)
    with progress.stage("searching", total=left, unit="trials", summary=False) as searching:
        while completed < options.trials and failures < options.trials and draws < MAX_DRAWS:
            trial = study.ask()
            settings = {key: suggest(trial, key, values) for key, values in space.items()}
            trial.set_user_attr(SETTINGS, settings)
            if any(settings == earlier[SETTINGS] for earlier in failed):
                draws += 1
                study.tell(trial, state=TrialState.FAIL)
                continue
            draws = 0
            try:
                value = _train([*overrides, *as_overrides(settings)], folder / f"trial-{trial.number}", options.metric)
            except InputError as error:
                failures, result = failures + 1, str(error)
                failed.append({SETTINGS: settings, ERROR: result})
                trial.set_user_attr(ERROR, result)
                study.tell(trial, state=TrialState.FAIL)
            else:
                completed, failures, result = completed + 1, 0, f"{value:.4f}"
                study.tell(trial, value)
                searching.advance()
            shown = {key: f"{one:.4g}" if isinstance(one, float) else one for key, one in settings.items()}
            yield f"trial {trial.number}: {result}  {' '.join(f'{key}={one}' for key, one in shown.items())}"
    if not completed:
        problem = f"all {len(failed)} trials failed, the last one: {failed[-1][ERROR]}"
        raise InputError(f"search.trials={options.trials}", problem)


def suggest(trial: Any, key: str, values: Any) -> Any:
    """Draw a value of a key from a list or a range."""
    if isinstance(values, list):
        # Optuna's parameters must be scalars, so a list or a dict is converted to JSON text.
        return json.loads(trial.suggest_categorical(key, [json.dumps(choice) for choice in values]))
    low, high, log, step = values["low"], values["high"], bool(values.get("log")), values.get("step")
    if all(isinstance(number, int) for number in (low, high, step or 1)):
        return trial.suggest_int(key, low, high, step=step or 1, log=log)
    return trial.suggest_float(key, low, high, step=step, log=log)


def as_overrides(settings: Mapping[str, Any]) -> list[str]:
    """Convert settings to overrides for Hydra's command line.

    >>> as_overrides({"model.pooling": "max", "patience": None})
    ['model.pooling=max', 'patience=null']
    """
    return [f"{key}={hydra_value(value)}" for key, value in settings.items()]


def _train(overrides: Sequence[str], run: Path, metric: str) -> float:
    """Run the training command of a trial. Return the metric. Raises InputError if there is none."""
    # Each trial runs in its own process, because training may run out of memory and changes PyTorch's global settings.
    python = [sys.executable, "-P", "-m", "seqclf.train"]
    command = [*python, *overrides, *as_overrides({"hydra.run.dir": str(run), **OF_TRIALS})]
    own = {name: value for name, value in os.environ.items() if name != "WANDB_RUN_ID"}  # of one run, not of each trial
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=own)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise InputError(None, lines[-1].removeprefix("error: "))
    return read_metric(read_json(run / "metrics.json"), metric)


def read_metric(metrics: Mapping[str, Any], name: str) -> float:
    """Return the number in metrics.json that has the dotted key `name`. Raises InputError if there is no such number.

    >>> read_metric({"validation": {"positive": {"average_precision": 0.75}}}, "validation.positive.average_precision")
    0.75
    """
    for value in _values(metrics, name):
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    raise InputError(f"search.metric={name}", "metrics.json has no such number", "e.g. validation.recall")


def _values(value: Any, name: str) -> Iterator[Any]:
    if not name:
        yield value
    elif isinstance(value, Mapping):
        for key in value:  # all that fit, as a key may hold dots, such as the label "v0.1" beside "v0"
            if f"{name}.".startswith(f"{key}."):
                yield from _values(value[key], name[len(key) + 1 :])


def write_best(settings: Mapping[str, Any], title: str, path: Path) -> None:
    """Write the settings of a trial to a YAML file, which a command reads by `--config-dir FOLDER experiment=best`."""
    chosen = {key: value for key, value in settings.items() if (CONF / key).is_dir()}
    content = nested_keys({key: value for key, value in settings.items() if key not in chosen})
    if chosen:
        content = {"defaults": [{f"override /{group}": name} for group, name in chosen.items()], **content}
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    write_output(path, f"# @package _global_\n# {title}\n{text}")
