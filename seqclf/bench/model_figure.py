"""The comparison of models as a picture: tokens per second in training and in prediction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from markupsafe import Markup

from seqclf.bench.bars import Bar, BarGroup, bars_svg, draw_bars, height_in
from seqclf.bench.model_comparison import ModelComparison, ModelFigures, ModelsResult
from seqclf.documents.figures import FILL, MARK
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

TITLES = {"training": "training", "prediction": "prediction by ONNX Runtime"}  # by attribute of ModelFigures
FILE_COLOURS = {FILL: "#2f6db5", MARK: "#b3401f"}
WIDTH_IN, TITLE_IN = 9.0, 0.8  # of the file


def write_picture(result: ModelsResult, path: Path) -> None:
    """Write two panels side by side: thousand tokens a second in training and in prediction."""
    from matplotlib.figure import Figure

    height = height_in(_groups(result, "training", {})) + TITLE_IN
    figure = Figure(figsize=(WIDTH_IN, height))
    axes: Any = figure.subplots(1, 2)
    figure.subplots_adjust(left=0.11, right=0.93, top=1 - TITLE_IN / height, bottom=0.02, wspace=0.45)
    for axis, (kind, title) in zip(axes, TITLES.items(), strict=True):
        draw_bars(axis, _groups(result, kind, FILE_COLOURS))
        axis.set_title(title, fontsize=11, loc="left")
    machine = result.machine
    figure.suptitle(
        f"thousand tokens a second; {machine.name}, threads: {machine.threads}, {machine.precision}", fontsize=10
    )
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=160, format="png")


def page_figure(result: ModelsResult, kind: str, width_in: float) -> Markup:
    """Draw thousand tokens a second of each model. `kind`: training or prediction."""
    return bars_svg(_groups(result, kind, {}), width_in)


def _groups(result: ModelsResult, kind: str, colours: dict[str, str]) -> list[BarGroup]:
    """Return the bars of each workload, the reference first. `colours`: of the file, in place of those of the page."""
    return [
        BarGroup(
            workload.name.replace("_", " "), [_bar(name, result, workload, kind, colours) for name in result.models]
        )
        for workload in result.workloads
    ]


def _bar(name: str, result: ModelsResult, workload: ModelComparison, kind: str, colours: dict[str, str]) -> Bar:
    colour = MARK if name == result.reference else FILL
    figures: ModelFigures | None = workload.models.get(name)
    if figures is None:
        return Bar(name, None, "did not run", colours.get(colour, colour))
    thousands = getattr(figures, kind).tokens_per_s / 1e3
    return Bar(name, thousands, f"{thousands:,.1f}", colours.get(colour, colour))
