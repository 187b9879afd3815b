"""Results of a benchmark as sections for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from seqclf.bench.benchmark import WorkloadResult
from seqclf.bench.timing import REFERENCE, ModeFigures
from seqclf.documents.blocks import Alerts, Section, Table, Text

# Dict heading of a row → function that formats the measurement.
ROWS: dict[str, Callable[[ModeFigures], str]] = {
    "tokens/s": lambda figures: f"{figures.tokens_per_s:,.0f}",
    "step ms": lambda figures: f"{figures.step_ms:.2f}",
    f"times as fast as {REFERENCE}": lambda figures: f"{1 / figures.time_ratio:.3g}" if figures.time_ratio else "",
    "padding": lambda figures: f"{1 - figures.padding_efficiency:.0%}",
    "first s": lambda figures: f"{figures.first_step_s:.2f}",
    "memory MB": lambda figures: "" if figures.memory_mb is None else f"{figures.memory_mb:,.0f}",
    "loss": lambda figures: f"{figures.loss:.4f}",
}


def workload_section(result: WorkloadResult) -> Section:
    """Return a section with the measurements of one workload, in a table with a column for each mode."""
    line = (
        "{name}: {updates} steps of {batch_size} sequences, mean length {mean_length:.1f}, longest {longest}"
    ).format(name=result.name, **result.size)
    columns = {"": "text"} | dict.fromkeys(result.figures, "number")
    table = Table(columns, [[name, *map(show, result.figures.values())] for name, show in ROWS.items()])
    problems = [f"{name} did not run: {message}" for name, message in result.errors.items()]
    alerts = Alerts(problems) if problems else None
    return Section(result.name.replace("_", " "), [Text(line, soft=True), table, alerts])
