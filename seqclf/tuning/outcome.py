"""What a search found: a table, a picture, and the best settings as a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from rich.table import Table

from seqclf.system.atomic_files import atomic_replace, explain_disk_errors, write_output

BEST = Path("experiment") / "best.yaml"
MOST_ROWS = 15


def ended(study: Any) -> list[Any]:
    """The trials that ended well, the best first."""
    sign = -1 if study.direction.name == "MAXIMIZE" else 1
    return sorted((trial for trial in study.trials if trial.state.name == "COMPLETE"), key=lambda one: sign * one.value)


def told(trial: Any) -> str:
    """A trial in one line."""
    settings = " ".join(f"{key}={_short(value)}" for key, value in trial.params.items())
    result = trial.user_attrs.get("error", "failed") if trial.value is None else f"{trial.value:.4f}"
    return f"trial {trial.number}: {result}  {settings}"


def show(study: Any) -> Table:
    keys = list(dict.fromkeys(key for trial in study.trials for key in trial.params))
    table = Table(title=study.user_attrs["metric"], title_justify="left")
    for heading in ("trial", "value", *keys):
        table.add_column(heading, justify="right")
    for trial in ended(study)[:MOST_ROWS]:
        table.add_row(str(trial.number), f"{trial.value:.4f}", *(_short(trial.params.get(key)) for key in keys))
    return table


def write_best(study: Any, path: Path) -> None:
    """The best settings as an experiment for Hydra: `--config-dir FOLDER experiment=best`."""
    best = ended(study)[0]
    nested: dict[str, Any] = {}
    for key, value in best.params.items():
        *above, last = key.split(".")
        place: dict[str, Any] = nested
        for name in above:
            place = place.setdefault(name, {})
        place[last] = value
    head = f"# @package _global_\n# Trial {best.number}: {study.user_attrs['metric']} {best.value:.6g}\n"
    write_output(path, head + yaml.safe_dump(nested, sort_keys=False, allow_unicode=True))


def draw(study: Any, path: Path) -> None:
    """The value of each trial in the order they were made, and beside each key's values."""
    import numpy as np
    from matplotlib.figure import Figure

    trials = sorted(ended(study), key=lambda one: one.number)
    values = np.array([trial.value for trial in trials])
    best = (np.maximum if study.direction.name == "MAXIMIZE" else np.minimum).accumulate(values)
    keys = list(trials[0].params)
    rows = 1 + -(-len(keys) // 3)
    figure = Figure(figsize=(9, 2.6 * rows), layout="constrained")
    grid = figure.add_gridspec(rows, 3)
    whole = figure.add_subplot(grid[0, :])
    numbers = [trial.number for trial in trials]
    whole.plot(numbers, values, "o", markersize=4, color="#9aa5b1")
    whole.step(numbers, best, where="post", color="#2f6db5")
    whole.set_xlabel("trial")
    whole.set_ylabel(study.user_attrs["metric"])
    for place, key in enumerate(keys):
        axis = figure.add_subplot(grid[1 + place // 3, place % 3])
        own = [trial.params[key] for trial in trials]
        numeric = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in own)
        axis.plot(own if numeric else [str(value) for value in own], values, "o", markersize=4, color="#2f6db5")
        if numeric and min(own) > 0 and max(own) / min(own) > 20:
            axis.set_xscale("log")
        axis.set_xlabel(key, fontsize=9)
    for axis in figure.axes:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=130, format="png")


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
