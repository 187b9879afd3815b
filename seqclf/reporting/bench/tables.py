"""The benchmark in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.table import Table

from seqclf.reporting.console import console

COLUMNS: dict[str, tuple[str, str]] = {  # heading → the key of a mode's figures, and how it is written
    "steps/s": ("tokens_per_s", ",.0f"),
    "update ms": ("step_ms", ".2f"),
    "p95": ("step_ms_p95", ".2f"),
    "of static": ("time_ratio", ".2f"),
    "padding": ("padding_efficiency", ".2f"),
    "memory MB": ("memory_mb", ",.0f"),
    "of training": ("step_memory_mb", ",.0f"),
    "graph ms": ("graph_ms", ".2f"),
    "first s": ("first_step_s", ".2f"),
    "compiled": ("compiled_graphs", "d"),
    "loss": ("loss", ".4f"),
    "recall": ("recall", ".3f"),
}
PAGE_ONLY = ("p95", "of training", "compiled", "graph ms")
STYLES = {"good": "green", "acceptable": "yellow", "bad": "red", "none": "yellow"}


def written(figures: Mapping[str, Any]) -> list[str]:
    """The cells of a mode, empty where there is no figure."""
    cells = []
    for key, form in COLUMNS.values():
        value = figures.get(key)
        cells.append("" if value is None else format(value, form))
    return cells


def told(name: str, own: Mapping[str, Any]) -> str:
    return (
        f"{name}: {own['updates']} updates of {own['batch_size']} sequences, mean length {own['mean_length']:.1f}, "
        f"longest {own['longest']}"
    )


def leak_line(leak: Mapping[str, Any]) -> str:
    """The slope of memory in words."""
    verdict = "memory grows" if leak["leaks"] else "no leak"
    return (
        f"{verdict}: {leak['mb_per_1000_steps']:+.2f} MB per 1000 ragged updates "
        f"(95 % interval {leak['low']:+.2f} to {leak['high']:+.2f}, {leak['steps']} watched)"
    )


def structure_line(structure: Mapping[str, Any]) -> str:
    return f"{structure['changes']} changes of structure between updates, {len(structure['errors'])} errors"


def show_workload(name: str, own: dict[str, Any]) -> None:
    console.print(f"\n{told(name, own)}", soft_wrap=True)
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("mode", no_wrap=True)
    for heading in COLUMNS:
        if heading not in PAGE_ONLY:
            table.add_column(heading, justify="right")
    for mode, figures in own["modes"].items():
        if "error" not in figures:
            cells = zip(COLUMNS, written(figures), strict=True)
            table.add_row(mode, *(cell for heading, cell in cells if heading not in PAGE_ONLY))
    console.print(table)
    for mode, figures in own["modes"].items():
        if "error" in figures:
            console.print(f"  {mode} did not run: {figures['error']}", style="yellow", soft_wrap=True)
    console.print(f"  {leak_line(own['leak'])}; {structure_line(own['structure'])}", soft_wrap=True)
    for error in own["structure"]["errors"]:
        console.print(f"  {error}", style="red", soft_wrap=True)
    word = own["verdict"]["word"]
    console.print(f"  dynamic is {word}: {own['verdict']['reason']}", style=STYLES[word], soft_wrap=True)


def show_bench(found: dict[str, Any]) -> None:
    machine = found["machine"]
    console.print(
        f"\n{machine['name']}, {machine['threads']} threads, {machine['precision']}, PyTorch {machine['torch']}",
        soft_wrap=True,
    )
