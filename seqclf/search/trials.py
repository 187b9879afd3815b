"""Run the trials of a hyperparameter search, and write the results.

A trial is a training command in its own process. Optuna chooses the settings of each trial.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.table import Table

from seqclf.config.composition import CONF
from seqclf.config.override_text import shell_word
from seqclf.errors import InputError
from seqclf.search.space import OF_TRIALS, SETTINGS, TrialSettings, as_overrides, suggest
from seqclf.system import progress
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    from seqclf.search.space import SearchOptions


DATABASE = "search.db"
BEST = Path("experiment") / "best.yaml"
MAX_ROWS = 15  # maximum number of trials in the printed table
MAX_FAILURES = 5  # number of failed trials in a row after which the search ends


@dataclass(frozen=True)
class Trial:
    """A finished trial. `settings`: dict dotted key → value. `value`: metric of the trial, None for a failed trial."""

    number: int
    settings: TrialSettings
    value: float | None
    error: str | None

    @property
    def score(self) -> float:
        """Metric of a trial that did not fail."""
        assert self.value is not None, f"trial {self.number} failed"
        return self.value


def open_study(folder: Path, options: SearchOptions, overrides: Sequence[str]) -> Any:
    """Open the Optuna study (stored trials) in `folder`. If the folder has no study, create a new study.

    A study is an SQLite file. `overrides`: the user's overrides, which are the same for all trials. Raises InputError
    if the stored trials have other overrides, metrics or directions, because their values cannot be compared. The
    stored trials could also have trained on rows that are held out for a guarantee.
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
        direction=options.goal,
        load_if_exists=True,
    )
    settings = [*sorted(overrides), f"search.metric={options.metric}", f"search.direction={options.goal}"]
    earlier = study.user_attrs.get("overrides", settings)
    if earlier != settings:
        raise InputError(
            f"hydra.run.dir={folder}",
            f"holds trials of other settings ({' '.join(earlier)})",
            "give the same, or name another folder",
        )
    study.set_user_attr("overrides", settings)
    return study


def completed_trials(study: Any) -> list[Trial]:
    """Return all trials of a study that did not fail, sorted from best to worst."""
    trials = [_trial(trial) for trial in study.trials if trial.state.name == "COMPLETE"]
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    return sorted(trials, key=lambda trial: sign * trial.score)


def _trial(frozen: Any) -> Trial:
    """Convert an Optuna trial to a `Trial`."""
    return Trial(
        frozen.number,
        frozen.user_attrs.get(SETTINGS) or dict(frozen.params),
        frozen.value,
        frozen.user_attrs.get("error"),
    )


def run_trials(
    study: Any, options: SearchOptions, overrides: Sequence[str], folder: Path, report: Callable[[Trial], None]
) -> None:
    """Run trials until the study has `options.trials` trials that did not fail.

    If the training command of a trial fails, the trial is stored as failed and the search goes on. Raises InputError if
    the first trial fails, or if `MAX_FAILURES` trials in a row fail. `report`: function that is called with each
    finished trial.
    """
    import optuna

    states = optuna.trial.TrialState
    space = options.space or options.usual
    # If a search was killed, its last trial is still stored as running. Mark this trial as failed.
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
            else:
                failures += 1
                trial.set_user_attr("error", error)
                study.tell(trial, state=states.FAIL)
                if trial.number == 0 or failures == MAX_FAILURES:
                    raise InputError(f"trial {trial.number} ({' '.join(settings)})", error)
            report(_trial(study.trials[-1]))


def _train(overrides: Sequence[str], run: Path, metric: str) -> tuple[float | None, str]:
    """Run the training command of a trial. Return the metric and "", or None and the last line of the error output."""
    # Each trial runs in its own process, because training may run out of memory and changes PyTorch's global settings.
    command = [
        sys.executable,
        "-P",
        "-m",
        "seqclf.train",
        *overrides,
        f"hydra.run.dir={run}",
        *as_overrides(OF_TRIALS),
    ]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return None, lines[-1].removeprefix("error: ")
    return read_metric(json.loads((run / "metrics.json").read_text(encoding="utf-8")), metric), ""


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


def trial_line(trial: Trial) -> str:
    """Return one line of text about a trial: its number, its metric and its settings.

    >>> trial_line(Trial(3, {"model.layers": 2, "optimizer.lr": 0.00123456}, 0.91239, None))
    'trial 3: 0.9124  model.layers=2 optimizer.lr=0.001235'
    """
    settings = " ".join(f"{key}={_short(value)}" for key, value in trial.settings.items())
    result = trial.error or "failed" if trial.value is None else f"{trial.value:.4f}"
    return f"trial {trial.number}: {result}  {settings}"


def trials_table(trials: Sequence[Trial], metric: str) -> Table:
    """Return a table with the first `MAX_ROWS` trials. The table has a column for each setting."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    table = Table(title=metric, title_justify="left")
    for heading in ("trial", "value", *keys):
        table.add_column(heading, justify="right")
    for trial in trials[:MAX_ROWS]:
        table.add_row(str(trial.number), f"{trial.score:.4f}", *(_short(trial.settings.get(key)) for key in keys))
    return table


def write_best(best: Trial, metric: str, path: Path) -> None:
    """Write the settings of a trial to a YAML file.

    A command reads the file with `--config-dir FOLDER experiment=best`.
    """
    nested: dict[str, Any] = {}
    chosen = {key: value for key, value in best.settings.items() if (CONF / key).is_dir()}
    if chosen:
        nested["defaults"] = [{f"override /{group}": name} for group, name in chosen.items()]
    for key, value in best.settings.items():
        if key in chosen:
            continue
        *groups, name = key.split(".")
        group = nested
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    head = f"# @package _global_\n# Trial {best.number}: {metric} {best.score:.6g}\n"
    write_output(path, head + yaml.safe_dump(nested, sort_keys=False, allow_unicode=True))


def best_command(best: Trial, overrides: Sequence[str]) -> str:
    """Return the command line that trains a model with the settings of a trial. `overrides`: the user's overrides.

    >>> print(best_command(Trial(0, {"optimizer.betas": [0.9, 0.99]}, 0.5, None), ["seed=1", "baseline=false"]))
    python -m seqclf.train seed=1 'optimizer.betas=[0.9, 0.99]'
    """
    kept = [text for text in overrides if text.lstrip("+").partition("=")[0] not in OF_TRIALS]
    return " ".join(map(shell_word, ["python", "-m", "seqclf.train", *kept, *as_overrides(best.settings)]))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
