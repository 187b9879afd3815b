"""Output of a benchmark: an HTML page, a PNG picture, and a section of text in the terminal for each workload."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from seqclf.bench.benchmark import BenchmarkResult, DynamicChecks, Figures, WorkloadResult, speed_text
from seqclf.bench.machine import Machine
from seqclf.bench.mode_trainer import Comparison
from seqclf.documents.blocks import Alerts, Block, Document, Heading, Section, Table, Text, picture
from seqclf.documents.figures import FILL, INK, MARK, render_svg
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors


class Column(NamedTuple):
    """A table column with one measurement for each contender.

    `heading`: heading of the column. `{reference}` in the heading is replaced by the name of the reference contender.
    `attribute`: dotted name of an attribute of `Figures`. `text`: function that formats the measured value. `meaning`:
    explanation of the column, printed at the end of the page.
    """

    heading: str
    attribute: str
    text: Callable[[Any], str]
    meaning: str = ""

    def value(self, figures: Figures) -> Any:
        return attrgetter(self.attribute)(figures)

    def cell(self, figures: Figures) -> str:
        """Return the measured value as text, or an empty string if nothing was measured."""
        value = self.value(figures)
        return "" if value is None else self.text(value)


class Kind(NamedTuple):
    """Texts and columns of the page for one kind of comparison: "modes" or "models".

    `panels`: columns that the picture shows as bars. `tables`: dict table heading → columns of the table. `terms`: dict
    term → explanation, for terms that are not column headings.
    """

    title: str
    summary: str
    panels: Sequence[Column]
    tables: Mapping[str, Sequence[Column]]
    terms: Mapping[str, str]


def thousands(tokens: float) -> str:
    return f"{tokens / 1e3:,.1f}"


WHOLE, HUNDREDTHS = "{:,.0f}".format, "{:.2f}".format
TOKENS = Column("tokens/s", "training.tokens_per_s", WHOLE, "tokens of sequences in a second, padding not counted")
STEP = Column("step ms", "training.step_ms", HUNDREDTHS, "median of a step, from collating to the new weights")
MEMORY = Column("memory MB", "training.memory_mb", WHOLE, "peak of a separate process (on a GPU of the device)")
TIME = (
    TOKENS,
    STEP,
    Column("p95", "training.step_ms_p95", HUNDREDTHS, "95th percentile of a step"),
    Column(
        "times as fast as {reference}",
        "training.time_ratio",
        lambda ratio: f"{1 / ratio:.3g}",
        "from the time of all steps: 9 takes a ninth of the time of static, 0.5 twice its time",
    ),
    Column("padding", "training.padding", "{:.0%}".format, "share of the computed cells that is padding"),
    Column("first s", "training.first_step_s", HUNDREDTHS, "first step beyond a later one: warming up, compiling"),
    Column("graph ms", "training.graph_ms", HUNDREDTHS, "what building the graph adds to a forward pass"),
    Column("compiled", "training.compiled_graphs", str, "graphs that torch.compile has compiled"),
)
LEARNED = (
    MEMORY,
    Column("of training", "training.step_memory_mb", WHOLE, "memory that training added"),
    Column("loss", "training.loss", "{:.4f}".format, "over the same sequences after the same steps"),
    Column("macro recall", "training.recall", "{:.3f}".format, "over the same sequences after the same steps"),
)
PREDICTION = (
    Column("tokens/s", "prediction.tokens_per_s", WHOLE),
    Column("against {reference}", "prediction.time_ratio", speed_text),
    Column("weights", "weights", WHOLE, "numbers that training changes"),
)
THOUSANDS = "Thousand tokens a second"
KINDS = {
    "modes": Kind(
        "Dynamic against static graphs",
        "the same model, weights, sequences and steps in every mode; medians of interleaved rounds.",
        (
            Column(THOUSANDS, "training.tokens_per_s", thousands),
            Column("Time of all steps, static = 1", "training.time_ratio", HUNDREDTHS),
        ),
        {"Time": TIME, "Memory, and what was learned": LEARNED},
        {
            "dynamic, packed": "each batch as long as its longest sequence; packed sequences leave out the rest too",
            "static, compiled": "all batches as long as the longest sequence; compiled by torch.compile, fixed shapes",
            "good, bad": "at most 1.15 times the time of static; from 1.30 times on, or more memory, leaks or errors",
        },
    ),
    "models": Kind(
        "Models compared",
        "the same sequences and batches for all models; medians of interleaved rounds. What the models learn is not "
        "compared: that depends on the data.",
        (
            Column(f"{THOUSANDS}, training", "training.tokens_per_s", thousands),
            Column(f"{THOUSANDS}, prediction by ONNX Runtime", "prediction.tokens_per_s", thousands),
        ),
        {
            "Training": (TOKENS, Column("against {reference}", "training.time_ratio", speed_text), STEP, MEMORY),
            "Prediction": PREDICTION,
        },
        {
            "training": "each batch padded to its longest sequence, in PyTorch",
            "prediction": "the exported model, in batches of similar length, by ONNX Runtime",
        },
    ),
}
STYLES = {"good": "green", "acceptable": "yellow", "bad": "red", "none": "yellow"}


def bench_document(result: BenchmarkResult) -> Document:
    """Return the page that shows the result of a benchmark."""
    comparison, kind = result.comparison, KINDS[result.comparison.kind]
    description = f"{' and '.join(panel.heading for panel in kind.panels)}, by workload"
    columns = [column for table in kind.tables.values() for column in table if column.meaning]
    terms = [*kind.terms.items(), *((_heading(column, comparison), column.meaning) for column in columns)]
    return Document(
        kind.title,
        f"{machine_line(result.machine)}: {kind.summary}",
        [
            Section("At a glance", [picture(partial(_page_picture, result), description)]),
            *(workload_section(workload, comparison) for workload in result.workloads),
            Section("What the columns mean", [Table({"": "text", " ": "text"}, terms)]),
        ],
    )


def workload_section(result: WorkloadResult, comparison: Comparison) -> Section:
    """Return a section with the measurements of one workload."""
    size, checks = result.size, result.checks
    line = (
        f"{result.name}: {size.updates} steps of {size.batch_size} sequences, mean length {size.mean_length:.1f}, "
        f"longest {size.longest}"
    )
    blocks: list[Block] = [Text(line, soft=True)]
    for heading, columns in KINDS[comparison.kind].tables.items():
        blocks += [Heading(heading), _table(result, comparison, columns)]
    problems = [f"{name} did not run: {message}" for name, message in result.errors.items()]
    if checks is not None:
        verdict = checks.verdict
        rating = Text(f"Dynamic is {verdict.word}: {verdict.reason}.", style=STYLES[verdict.word])
        blocks = [rating, *blocks, Text(_checks_line(checks), soft=True)]
        problems += checks.structure.errors
    return Section(result.name.replace("_", " "), [*blocks, Alerts(problems) if problems else None])


def _table(result: WorkloadResult, comparison: Comparison, columns: Sequence[Column]) -> Table:
    """Return a table with a row for each model, or with a column for each mode.

    A table with one column for each mode fits a phone screen, because there are at most four modes.
    """
    rows = [["", *(_heading(column, comparison) for column in columns)]]
    for name, figures in result.figures.items():
        rows.append([name, *(column.cell(figures) for column in columns)])
    headings, *cells = rows if comparison.kind == "models" else map(list, zip(*rows, strict=True))
    return Table(dict.fromkeys(headings, "number") | {"": "text"}, cells)


def _heading(column: Column, comparison: Comparison) -> str:
    return column.heading.format(reference=comparison.reference)


def _checks_line(checks: DynamicChecks) -> str:
    """Return a line with the growth of memory, the number of structure changes and the number of errors."""
    growth, structure = checks.leak, checks.structure
    return (
        f"{'memory grows' if growth.leaks else 'no leak'}: {growth.mb_per_1000_steps:+.2f} MB per 1000 ragged steps "
        f"(95 % interval {growth.low:+.2f} to {growth.high:+.2f}, {growth.steps} watched); "
        f"{structure.changes} changes of structure between steps, {len(structure.errors)} errors."
    )


def machine_line(machine: Machine) -> str:
    """Return a line with the name of the machine, the number of threads, the precision and the PyTorch version."""
    return f"{machine.name}, threads: {machine.threads}, {machine.precision}, PyTorch {machine.torch}"


# The picture, on the page and in the PNG file: a horizontal bar for each contender, grouped by workload.

ROW_IN = 0.24  # inches; height of a row, which holds one bar
GAP = 0.4  # rows; height of the gap between workloads
LABEL_IN, FIGURE_IN, TITLE_IN = 0.95, 0.6, 0.5  # inches left of the axis, right of the longest bar, above a panel
FILE_WIDTH_IN = 5.0  # inches; about the width of a phone screen, so that the text is readable on a phone
FILE_COLOURS = {FILL: "#2f6db5", MARK: "#b3401f"}
# Bars of the modes in MARKED have the colour of the reference. Bars of the modes in PALE are half transparent.
MARKED, PALE = ("static", "compiled"), ("packed", "compiled")


def write_picture(result: BenchmarkResult, path: Path) -> None:
    """Write the picture to a PNG file. The title of the picture is the line of `machine_line`."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(FILE_WIDTH_IN, _height_in(result)))
    _draw(figure, result, FILE_COLOURS)
    figure.suptitle(machine_line(result.machine), fontsize=9)
    with explain_disk_errors(path), atomic_replace(path) as unfinished:
        figure.savefig(unfinished, dpi=160, format="png")


def _page_picture(result: BenchmarkResult, width_in: float) -> Markup:
    return render_svg(partial(_draw, result=result, colours={}), width_in, _height_in(result))


def _height_in(result: BenchmarkResult) -> float:
    rows = len(result.workloads) * (1 + len(result.comparison.contenders) + GAP)
    return len(KINDS[result.comparison.kind].panels) * (TITLE_IN + ROW_IN * rows)


def _draw(figure: Any, result: BenchmarkResult, colours: Mapping[str, str]) -> None:
    """Draw the panels of the picture one below the other.

    `colours`: dict colour on the page → colour in the PNG file. `colours` is empty when the page is drawn.
    """
    width, height = figure.get_size_inches()
    panels = KINDS[result.comparison.kind].panels
    for index, panel in enumerate(panels):
        bars_in = height / len(panels) - TITLE_IN
        bottom = 1 - (index + 1) / len(panels)
        axis = figure.add_axes((LABEL_IN / width, bottom, 1 - (LABEL_IN + FIGURE_IN) / width, bars_in / height))
        figure.text(0.02, bottom + (bars_in + 0.08) / height, panel.heading, color=INK, fontsize=10)
        _draw_bars(axis, result, panel, colours)


def _draw_bars(axis: Any, result: BenchmarkResult, panel: Column, colours: Mapping[str, str]) -> None:
    """Draw the name of each workload, and below the name a bar for each contender."""
    row = 0.0
    left = {"ha": "right", "transform": axis.get_yaxis_transform()}
    for workload in result.workloads:
        axis.text(0, row, workload.name.replace("_", " "), color=INK, va="center", weight="bold")
        for name in result.comparison.contenders:
            row += 1
            colour = MARK if name == result.comparison.reference or name in MARKED else FILL
            figures = workload.figures.get(name)
            value, text = (None, "did not run") if figures is None else (panel.value(figures), panel.cell(figures))
            axis.text(-0.01, row, f"{name} ", color=INK, va="center", **left)
            axis.barh(row, value or 0, 0.75, color=colours.get(colour, colour), alpha=0.5 if name in PALE else 1.0)
            axis.text(value or 0, row, f" {text}", color=INK, va="center")
        row += 1 + GAP
    axis.set_ylim(row - 0.5, -0.7)
    axis.set_xlim(left=0)
    axis.axis("off")
