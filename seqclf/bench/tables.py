"""The benchmark in the terminal."""

from __future__ import annotations

from rich.table import Table

from seqclf.bench.benchmark import StructureChanges, WorkloadResult, speed_text
from seqclf.bench.machine import Machine, MemoryGrowth
from seqclf.bench.model_comparison import ModelComparison
from seqclf.bench.timing import ModeTiming
from seqclf.documents.terminal import console

AGAINST = "against static"
TIME_COLUMNS: dict[str, tuple[str, str]] = {  # heading → attribute of ModeTiming, format
    "tokens/s": ("tokens_per_s", ",.0f"),
    "step ms": ("step_ms", ".2f"),
    "p95": ("step_ms_p95", ".2f"),
    AGAINST: ("time_ratio", ""),
    "padding": ("padding", ".0%"),
    "first s": ("first_step_s", ".2f"),
    "graph ms": ("graph_ms", ".2f"),
    "compiled": ("compiled_graphs", "d"),
}
OTHER_COLUMNS: dict[str, tuple[str, str]] = {
    "memory MB": ("memory_mb", ",.0f"),
    "of training": ("step_memory_mb", ",.0f"),
    "loss": ("loss", ".4f"),
    "macro recall": ("recall", ".3f"),
}
COLUMNS = TIME_COLUMNS | OTHER_COLUMNS
# With these, a table would not fit into a terminal of 80 columns.
PAGE_ONLY = ("p95", "compiled", "graph ms")
STYLES = {"good": "green", "acceptable": "yellow", "bad": "red", "none": "yellow"}


def formatted(timing: ModeTiming, heading: str) -> str:
    """Return the cell of a mode under a heading of `COLUMNS`, empty where nothing was measured."""
    attribute, number_format = COLUMNS[heading]
    value = getattr(timing, attribute)
    if value is None:
        return ""
    return speed_text(value) if heading == AGAINST else format(value, number_format)


def workload_line(result: WorkloadResult | ModelComparison) -> str:
    """Describe the size of a workload."""
    return (
        f"{result.name}: {result.steps} steps of {result.batch_size} sequences, mean length {result.mean_length:.1f}, "
        f"longest {result.max_length}"
    )


def growth_line(growth: MemoryGrowth) -> str:
    """Describe the slope of memory in words."""
    return (
        f"{'memory grows' if growth.leaks else 'no leak'}: {growth.mb_per_1000_steps:+.2f} MB per 1000 ragged steps "
        f"(95 % interval {growth.low:+.2f} to {growth.high:+.2f}, {growth.steps} watched)"
    )


def structure_line(structure: StructureChanges) -> str:
    """Count the changes of structure and their errors in words."""
    return f"{structure.changes} changes of structure between steps, {len(structure.errors)} errors"


def machine_line(machine: Machine) -> str:
    """Name the machine and what ran on it."""
    return f"{machine.name}, threads: {machine.threads}, {machine.precision}, PyTorch {machine.torch}"


def show_workload(result: WorkloadResult) -> None:
    """Print the figures of one workload."""
    console.print(f"\n{workload_line(result)}", soft_wrap=True)
    for columns in (TIME_COLUMNS, OTHER_COLUMNS):
        headings = [heading for heading in columns if heading not in PAGE_ONLY]
        table = Table(box=None, padding=(0, 1, 0, 0))
        table.add_column("mode", no_wrap=True, min_width=8)
        for heading in headings:
            table.add_column(heading, justify="right")
        for mode, timing in result.timings.items():
            table.add_row(mode, *(formatted(timing, heading) for heading in headings))
        console.print(table)
    for mode, message in result.errors.items():
        console.print(f"  {mode} did not run: {message}", style="yellow", soft_wrap=True)
    console.print(f"  {growth_line(result.growth)}; {structure_line(result.structure)}", soft_wrap=True)
    for error in result.structure.errors:
        console.print(f"  {error}", style="red", soft_wrap=True)
    rating = result.rating
    console.print(f"  dynamic is {rating.word}: {rating.reason}", style=STYLES[rating.word], soft_wrap=True)


def show_machine(machine: Machine) -> None:
    """Print the machine that the figures are of."""
    console.print(f"\n{machine_line(machine)}", soft_wrap=True)
