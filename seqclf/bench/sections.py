"""Results of a benchmark as sections for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from seqclf.bench.benchmark import Figures, WorkloadResult, speed_text
from seqclf.bench.machine import Machine
from seqclf.bench.mode_trainer import Comparison
from seqclf.documents.blocks import Alerts, Block, Heading, Section, Table, Text


class Column(NamedTuple):
    """A table column with one measurement for each contender.

    `heading`: heading of the column. `{reference}` in the heading is replaced by the name of the reference contender.
    `attribute`: dotted name of an attribute of `Figures`. `text`: function that formats the measured value.
    """

    heading: str
    attribute: str
    text: Callable[[Any], str]

    def value(self, figures: Figures) -> Any:
        return attrgetter(self.attribute)(figures)

    def cell(self, figures: Figures) -> str:
        """Return the measured value as text, or an empty string if nothing was measured."""
        value = self.value(figures)
        return "" if value is None else self.text(value)


WHOLE, HUNDREDTHS = "{:,.0f}".format, "{:.2f}".format
TOKENS = Column("tokens/s", "training.tokens_per_s", WHOLE)
STEP = Column("step ms", "training.step_ms", HUNDREDTHS)
MEMORY = Column("memory MB", "training.memory_mb", WHOLE)
TIME = (
    TOKENS,
    STEP,
    Column("p95", "training.step_ms_p95", HUNDREDTHS),
    Column(
        "times as fast as {reference}",
        "training.time_ratio",
        lambda ratio: f"{1 / ratio:.3g}",
    ),
    Column("padding", "training.padding", "{:.0%}".format),
    Column("first s", "training.first_step_s", HUNDREDTHS),
    Column("compiled", "training.compiled_graphs", str),
)
LEARNED = (
    MEMORY,
    Column("of training", "training.step_memory_mb", WHOLE),
    Column("loss", "training.loss", "{:.4f}".format),
    Column("macro recall", "training.recall", "{:.3f}".format),
)
PREDICTION = (
    Column("tokens/s", "prediction.tokens_per_s", WHOLE),
    Column("against {reference}", "prediction.time_ratio", speed_text),
    Column("weights", "weights", WHOLE),
)
TABLES: dict[str, dict[str, Sequence[Column]]] = {  # dict kind of comparison → dict heading → columns
    "modes": {"Time": TIME, "Memory, and what was learned": LEARNED},
    "models": {
        "Training": (TOKENS, Column("against {reference}", "training.time_ratio", speed_text), STEP, MEMORY),
        "Prediction": PREDICTION,
    },
}


def workload_section(result: WorkloadResult, comparison: Comparison) -> Section:
    """Return a section with the measurements of one workload."""
    size = result.size
    line = (
        f"{result.name}: {size.updates} steps of {size.batch_size} sequences, mean length {size.mean_length:.1f}, "
        f"longest {size.longest}"
    )
    blocks: list[Block] = [Text(line, soft=True)]
    for heading, columns in TABLES[comparison.kind].items():
        blocks += [Heading(heading), _table(result, comparison, columns)]
    problems = [f"{name} did not run: {message}" for name, message in result.errors.items()]
    return Section(result.name.replace("_", " "), [*blocks, Alerts(problems) if problems else None])


def _table(result: WorkloadResult, comparison: Comparison, columns: Sequence[Column]) -> Table:
    """Return a table with a row for each model, or with a column for each mode.

    A table with one column for each mode fits a narrow terminal, because there are at most four modes.
    """
    rows = [["", *(_heading(column, comparison) for column in columns)]]
    for name, figures in result.figures.items():
        rows.append([name, *(column.cell(figures) for column in columns)])
    headings, *cells = rows if comparison.kind == "models" else map(list, zip(*rows, strict=True))
    return Table(dict.fromkeys(headings, "number") | {"": "text"}, cells)


def _heading(column: Column, comparison: Comparison) -> str:
    return column.heading.format(reference=comparison.reference)


def machine_line(machine: Machine) -> str:
    """Return a line with the name of the machine, the number of threads, the precision and the PyTorch version."""
    return f"{machine.name}, threads: {machine.threads}, {machine.precision}, PyTorch {machine.torch}"
