"""The benchmark as a picture: tokens per second and step time of each mode, by workload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from seqclf.benchmark.benchmark import BenchmarkResult
from seqclf.reporting.svg import FILL, INK, MARK, render_svg
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
ROW_IN = 0.24  # height of a bar on the page


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
    height_in = 0.35 + ROW_IN * sum(len(modes) + 1.4 for _ in result.workloads)
    return render_svg(lambda figure: _draw(figure, result, modes), width_in, height_in)


def _draw(figure: Any, result: BenchmarkResult, modes: list[str]) -> None:
    axis = figure.subplots()
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left=0.8 / width, right=1 - 0.6 / width, top=1 - 0.05 / height, bottom=0.05 / height)
    row = 0.0
    for workload in result.workloads:
        axis.text(0, row, workload.name.replace("_", " "), color=INK, va="center", weight="bold")
        row += 1
        for mode in modes:
            axis.text(-0.01, row, f"{mode} ", color=INK, va="center", ha="right", transform=axis.get_yaxis_transform())
            timing = workload.timings.get(mode)
            if timing is None:
                axis.text(0, row, " did not run", color=INK, va="center")
            else:
                colour, alpha = COLOURS[mode]
                axis.barh(row, timing.tokens_per_s / 1e3, 0.75, color=PAGE_COLOURS[colour], alpha=alpha)
                axis.text(timing.tokens_per_s / 1e3, row, f" {timing.tokens_per_s / 1e3:,.1f}", color=INK, va="center")
            row += 1
        row += 0.4
    axis.set_ylim(row - 0.5, -0.7)
    axis.set_xlim(left=0)
    axis.axis("off")


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
