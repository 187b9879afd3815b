"""The outcome of a search: a table, a picture, and the best settings as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from rich.table import Table

from seqclf.system.atomic_files import atomic_replace, explain_disk_errors, write_output
from seqclf.system.json_result import JsonResult
from seqclf.tuning.space import TrialSettings
from seqclf.tuning.trials import Trial

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from seqclf.tuning.options import SearchOptions

BEST = Path("experiment") / "best.yaml"
MAX_ROWS = 15
PANELS = 3  # settings in a row of the picture
LOG_SCALE = 20  # largest over smallest value of a setting from which on its axis is logarithmic
BLUE, GREY = "#2f6db5", "#9aa5b1"


@dataclass(frozen=True)
class SearchResult(JsonResult):
    """The JSON line of `search`. `search`: its folder. `value` and `best`: metric and settings of the best trial."""

    search: str
    trials: int
    metric: str
    value: float
    best: TrialSettings


def trial_line(trial: Trial) -> str:
    """Return a trial as one line of text.

    >>> trial_line(Trial(3, {"model.layers": 2, "optimizer.lr": 0.00123456}, 0.91239, None))
    'trial 3: 0.9124  model.layers=2 optimizer.lr=0.001235'
    """
    settings = " ".join(f"{key}={_short(value)}" for key, value in trial.settings.items())
    result = trial.error or "failed" if trial.value is None else f"{trial.value:.4f}"
    return f"trial {trial.number}: {result}  {settings}"


def trials_table(trials: Sequence[Trial], metric: str) -> Table:
    """Return a table of the first `MAX_ROWS` trials, a column for each setting."""
    keys = list(dict.fromkeys(key for trial in trials for key in trial.settings))
    table = Table(title=metric, title_justify="left")
    for heading in ("trial", "value", *keys):
        table.add_column(heading, justify="right")
    for trial in trials[:MAX_ROWS]:
        table.add_row(str(trial.number), f"{trial.score:.4f}", *(_short(trial.settings.get(key)) for key in keys))
    return table


def write_best(best: Trial, metric: str, path: Path) -> None:
    """Write the settings of a trial as a Hydra experiment: `--config-dir FOLDER experiment=best`."""
    nested: dict[str, Any] = {}
    for key, value in best.settings.items():
        *groups, name = key.split(".")
        group = nested
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    head = f"# @package _global_\n# Trial {best.number}: {metric} {best.score:.6g}\n"
    write_output(path, head + yaml.safe_dump(nested, sort_keys=False, allow_unicode=True))


def draw_trials(trials: Sequence[Trial], options: SearchOptions, path: Path) -> None:
    """Draw the value of each trial in the order they ran, and below it against each setting."""
    import numpy as np
    from matplotlib.figure import Figure

    trials = sorted(trials, key=lambda trial: trial.number)
    values = np.array([trial.score for trial in trials])
    best_so_far = (np.maximum if options.direction == "maximize" else np.minimum).accumulate(values)
    keys = list(trials[0].settings)
    panel_rows = -(-len(keys) // PANELS)
    figure = Figure(figsize=(9, 2.6 * (1 + panel_rows)), layout="constrained")
    grid = figure.add_gridspec(1 + panel_rows, PANELS)
    progress = figure.add_subplot(grid[0, :])
    numbers = [trial.number for trial in trials]
    progress.plot(numbers, values, "o", markersize=4, color=GREY)
    progress.step(numbers, best_so_far, where="post", color=BLUE)
    progress.set_xlabel("trial")
    progress.set_ylabel(options.metric)
    for panel, key in enumerate(keys):
        axes = figure.add_subplot(grid[1 + panel // PANELS, panel % PANELS])
        _draw_setting(axes, key, [trial.settings[key] for trial in trials], values)
    for axes in figure.axes:
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(labelsize=8)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=130, format="png")


def _draw_setting(axes: Axes, key: str, settings: Sequence[Any], values: Any) -> None:
    """Draw the value of each trial against one of its settings. Choices that are not numbers are shown as text."""
    numeric = all(isinstance(setting, (int, float)) and not isinstance(setting, bool) for setting in settings)
    axes.plot(settings if numeric else [str(setting) for setting in settings], values, "o", markersize=4, color=BLUE)
    if numeric and min(settings) > 0 and max(settings) / min(settings) > LOG_SCALE:
        axes.set_xscale("log")
    axes.set_xlabel(key, fontsize=9)


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
