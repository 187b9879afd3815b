"""The benchmark as a picture: tokens per second and step time of each mode, by workload."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from markupsafe import Markup

from seqclf.bench.bars import Bar, BarGroup, bars_svg
from seqclf.bench.benchmark import BenchmarkResult, WorkloadResult
from seqclf.documents.figures import FILL, MARK
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

# Dynamic graphs in blue, static ones in red; the second of each kind is paler.
COLOURS = {
    "dynamic": ("#2f6db5", 1.0),
    "packed": ("#2f6db5", 0.5),
    "static": ("#b3401f", 1.0),
    "compiled": ("#b3401f", 0.5),
}
PAGE_COLOURS = {"#2f6db5": FILL, "#b3401f": MARK}
BAR_WIDTH = 0.2  # four modes and a gap between workloads
WIDTH_IN, PANEL_IN = 5.0, 3.0  # of the file: readable on a phone, whose screen is about as wide


def write_picture(result: BenchmarkResult, path: Path) -> None:
    """Write two panels: tokens per second, and below it the time of a step relative to static."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH_IN, 2 * PANEL_IN), layout="constrained")
    speed_axis, time_axis = figure.subplots(2, 1)
    names = [workload.name.replace("_", " ") for workload in result.workloads]
    for axis, attribute, scale in ((speed_axis, "tokens_per_s", 1e-3), (time_axis, "time_ratio", 1.0)):
        for positions, heights, mode in _bars(result, attribute, scale):
            colour, alpha = COLOURS[mode]
            axis.bar(positions, heights, BAR_WIDTH * 0.9, color=colour, alpha=alpha, label=mode)
        axis.set_xticks(range(len(names)), names, fontsize=11)
        axis.tick_params(axis="y", labelsize=10)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(bottom=0)
    speed_axis.set_title("thousand tokens a second", fontsize=12)
    time_axis.set_title("time of a step, static = 1", fontsize=12)
    time_axis.axhline(1.0, color="#444444", linewidth=0.8)
    speed_axis.legend(frameon=False, fontsize=10)
    machine = result.machine
    figure.suptitle(f"{machine.name}, threads: {machine.threads}, {machine.precision}", fontsize=10)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=160, format="png")


def page_figure(result: BenchmarkResult, width_in: float) -> Markup:
    """Draw the tokens per second as horizontal bars with their figures, which fit any width."""
    modes = _modes(result)
    groups = [
        BarGroup(workload.name.replace("_", " "), [_bar(mode, workload) for mode in modes])
        for workload in result.workloads
    ]
    return bars_svg(groups, width_in)


def _bar(mode: str, workload: WorkloadResult) -> Bar:
    timing = workload.timings.get(mode)
    if timing is None:
        return Bar(mode, None, "did not run", FILL)
    colour, alpha = COLOURS[mode]
    thousands = timing.tokens_per_s / 1e3
    return Bar(mode, thousands, f"{thousands:,.1f}", PAGE_COLOURS[colour], alpha)


def _modes(result: BenchmarkResult) -> list[str]:
    return list(dict.fromkeys(mode for entry in result.workloads for mode in (*entry.timings, *entry.errors)))


def _bars(result: BenchmarkResult, attribute: str, scale: float) -> list[tuple[np.ndarray, list[float], str]]:
    """Return positions, heights and mode of each group of bars. A mode that did not run has the height NaN."""
    modes = _modes(result)
    bars = []
    for index, mode in enumerate(modes):
        values = [getattr(workload.timings.get(mode), attribute, None) for workload in result.workloads]
        positions = np.arange(len(result.workloads)) + (index - (len(modes) - 1) / 2) * BAR_WIDTH
        bars.append((positions, [np.nan if value is None else scale * value for value in values], mode))
    return bars
