"""Results of a benchmark as sections for the terminal."""

from __future__ import annotations

from collections.abc import Callable

from seqclf.bench.benchmark import REFERENCE, WorkloadResult
from seqclf.bench.machine import Machine
from seqclf.bench.timing import TrainingTiming
from seqclf.documents.blocks import Alerts, Block, Heading, Section, Table, Text

# Dict heading of a table → dict heading of a row → function that formats the measurement.
TABLES: dict[str, dict[str, Callable[[TrainingTiming], str]]] = {
    "Time": {
        "tokens/s": lambda timing: f"{timing.tokens_per_s:,.0f}",
        "step ms": lambda timing: f"{timing.step_ms:.2f}",
        "p95": lambda timing: f"{timing.step_ms_p95:.2f}",
        f"times as fast as {REFERENCE}": lambda timing: f"{1 / timing.time_ratio:.3g}" if timing.time_ratio else "",
        "padding": lambda timing: f"{1 - timing.padding_efficiency:.0%}",
        "first s": lambda timing: f"{timing.first_step_s:.2f}",
        "compiled": lambda timing: str(timing.compiled_graphs),
    },
    "Memory, and what was learned": {
        "memory MB": lambda timing: "" if timing.memory_mb is None else f"{timing.memory_mb:,.0f}",
        "of training": lambda timing: "" if timing.step_memory_mb is None else f"{timing.step_memory_mb:,.0f}",
        "loss": lambda timing: f"{timing.loss:.4f}",
        "macro recall": lambda timing: f"{timing.recall:.3f}",
    },
}


def workload_section(result: WorkloadResult) -> Section:
    """Return a section with the measurements of one workload, in tables with a column for each mode."""
    size = result.size
    line = (
        f"{result.name}: {size.updates} steps of {size.batch_size} sequences, mean length {size.mean_length:.1f}, "
        f"longest {size.longest}"
    )
    columns = {"": "text"} | dict.fromkeys(result.figures, "number")
    blocks: list[Block] = [Text(line, soft=True)]
    for heading, rows in TABLES.items():
        cells = [[name, *map(show, result.figures.values())] for name, show in rows.items()]
        blocks += [Heading(heading), Table(columns, cells)]
    problems = [f"{name} did not run: {message}" for name, message in result.errors.items()]
    return Section(result.name.replace("_", " "), [*blocks, Alerts(problems) if problems else None])


def machine_line(machine: Machine) -> str:
    """Return a line with the name of the machine, the number of threads, the precision and the PyTorch version."""
    return f"{machine.name}, threads: {machine.threads}, {machine.precision}, PyTorch {machine.torch}"
