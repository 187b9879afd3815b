"""The benchmark as a PNG: tokens per second and step time of each mode, by workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from seqclf.benchmark.benchmark import BenchmarkResult
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

# Dynamic graphs in blue, static ones in red.
COLOURS = {"dynamic": "#2f6db5", "packed": "#8fb4dc", "static": "#b3401f", "compiled": "#e0a187"}
BAR_WIDTH = 0.2  # four modes and a gap between workloads


def write_picture(result: BenchmarkResult, path: Path) -> None:
    """Write two panels: tokens per second, and the time of a step relative to static."""
    from matplotlib.figure import Figure

    workloads = result.workloads
    modes = list(dict.fromkeys(mode for workload in workloads for mode in (*workload.timings, *workload.errors)))
    figure = Figure(figsize=(5 + 1.3 * len(workloads), 4.2), layout="constrained")
    speed_axis, time_axis = figure.subplots(1, 2)
    for index, mode in enumerate(modes):
        positions = np.arange(len(workloads)) + (index - (len(modes) - 1) / 2) * BAR_WIDTH
        for axis, attribute, scale in ((speed_axis, "tokens_per_s", 1e-3), (time_axis, "time_ratio", 1.0)):
            values = [getattr(workload.timings.get(mode), attribute, None) for workload in workloads]
            heights = [np.nan if value is None else scale * value for value in values]
            axis.bar(positions, heights, BAR_WIDTH * 0.9, color=COLOURS[mode], label=mode)
    speed_axis.set_title("thousand tokens a second", fontsize=10)
    time_axis.set_title("time of a step, static = 1", fontsize=10)
    time_axis.axhline(1.0, color="#444444", linewidth=0.8)
    for axis in (speed_axis, time_axis):
        axis.set_xticks(range(len(workloads)), [workload.name.replace("_", " ") for workload in workloads], fontsize=9)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    speed_axis.legend(frameon=False, fontsize=9)
    machine = result.machine
    figure.suptitle(f"{machine.name}, {machine.threads} threads, {machine.precision}", fontsize=9)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=130, format="png")
