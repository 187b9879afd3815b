"""The benchmark as a picture: how many real steps a second each mode trains on, workload by workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

COLOURS = {"dynamic": "#2f6db5", "packed": "#8fb4dc", "static": "#b3401f", "compiled": "#e0a187"}
BAR = 0.2


def write_picture(found: dict[str, Any], path: Path) -> None:
    """Two panels: real steps per second, and the time of an update beside that of static."""
    from matplotlib.figure import Figure

    workloads = found["workloads"]
    modes = list(dict.fromkeys(mode for own in workloads.values() for mode in own["modes"]))
    figure = Figure(figsize=(5 + 1.3 * len(workloads), 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, mode in enumerate(modes):
        shift = (place - (len(modes) - 1) / 2) * BAR
        where = np.arange(len(workloads)) + shift
        for axis, key, scale in ((left, "tokens_per_s", 1e-3), (right, "time_ratio", 1.0)):
            values = [scale * own["modes"][mode].get(key, np.nan) for own in workloads.values()]
            axis.bar(where, values, BAR * 0.9, color=COLOURS[mode], label=mode)
    left.set_title("thousand real steps a second", fontsize=10)
    right.set_title("time of an update, static = 1", fontsize=10)
    right.axhline(1.0, color="#444444", linewidth=0.8)
    for axis in (left, right):
        axis.set_xticks(range(len(workloads)), [name.replace("_", " ") for name in workloads], fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    left.legend(frameon=False, fontsize=9)
    machine = found["machine"]
    figure.suptitle(f"{machine['name']}, {machine['threads']} threads, {machine['precision']}", fontsize=9)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=130, format="png")
