"""The benchmark as a page of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqclf.reporting import html
from seqclf.reporting.bench.tables import COLUMNS, leak_line, structure_line, told, written
from seqclf.system.atomic_files import write_output

SPEED = ("steps/s", "update ms", "p95", "of static", "padding")


def write_page(found: dict[str, Any], path: Path) -> None:
    """Needs no other file and no network."""
    machine = found["machine"]
    summary = (
        f"{machine['name']}, {machine['threads']} threads, {machine['precision']}, PyTorch {machine['torch']}: "
        "the same model, weights, sequences and updates in every mode; medians of interleaved rounds."
    )
    parts = [_workload(name, own) for name, own in found["workloads"].items()]
    write_output(path, html.page("Dynamic against static graphs", summary, [*parts, _meaning()]))


def _workload(name: str, own: dict[str, Any]) -> html.Html:
    fastest = max(figures.get("tokens_per_s", 0.0) for figures in own["modes"].values())
    cells = {
        mode: dict(zip(COLUMNS, written(figures), strict=True))
        for mode, figures in own["modes"].items()
        if "error" not in figures
    }
    bars = {mode: html.bar(own["modes"][mode]["tokens_per_s"] / fastest) for mode in cells}
    beside = [heading for heading in COLUMNS if heading not in SPEED]
    failed = [f"{mode} did not run: {figures['error']}" for mode, figures in own["modes"].items() if "error" in figures]
    problems = [*failed, *own["structure"]["errors"]]
    return html.section(
        name.replace("_", " "),
        html.paragraph(f"Dynamic is {own['verdict']['word']}: {own['verdict']['reason']}."),
        html.paragraph(told(name, own), soft=True),
        html.table(
            {"mode": "text", "": "bar", **dict.fromkeys(SPEED, "number")},
            [[mode, bars[mode], *(found[heading] for heading in SPEED)] for mode, found in cells.items()],
            stacked=True,
        ),
        html.table(
            {"mode": "text", **dict.fromkeys(beside, "number")},
            [[mode, *(found[heading] for heading in beside)] for mode, found in cells.items()],
            stacked=True,
        ),
        html.paragraph(f"{leak_line(own['leak'])}; {structure_line(own['structure'])}.", soft=True),
        *([html.alerts(problems)] if problems else []),
    )


def _meaning() -> html.Html:
    meanings = {
        "dynamic, packed": "each batch as long as its longest sequence; packed sequences leave out the rest too",
        "static, compiled": "all batches as long as the longest sequence; compiled by torch.compile with fixed shapes",
        "steps/s": "real steps of sequences trained on in a second, padding not counted",
        "of static": "time of all updates, static = 1",
        "padding": "real steps over computed steps",
        "memory MB, of training": "peak of a process of its own (on a GPU of the device), and what training added",
        "graph ms": "what building the graph adds to a forward pass",
        "first s": "seconds of the first update beyond a later one: warming up, compiling",
        "loss, recall": "over the same sequences after the same updates",
        "good, bad": "up to 1.15 times the static iteration time; from 1.30 on, or with more memory, leaks or errors",
    }
    rows = [[name, meaning] for name, meaning in meanings.items()]
    return html.section("What the columns mean", html.table({"": "text", " ": "text"}, rows))
