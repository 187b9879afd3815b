"""Command `python -m seqclf.bench`: measures time and memory of several models, or of one model in several modes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.bench.options import BenchConfig
    from seqclf.system.json_result import JsonObject


@command("bench", "seqclf.bench.options.BenchConfig")
def main(config: BenchConfig) -> JsonObject:
    """Compare the modes of a model, or several models, and write the results as an HTML page and a PNG picture."""
    from seqclf.system import signals

    page, picture = (Path(config.output).with_suffix(suffix) if config.output else None for suffix in (".html", ".png"))
    with signals.reported_outputs(page, picture):
        return _bench(config, page, picture)


def _bench(config: BenchConfig, page: Path | None, picture: Path | None) -> JsonObject:
    import time

    from seqclf.system import progress

    with progress.stage("loading PyTorch"):
        import torch  # noqa: F401

    from seqclf.bench.benchmark import run_benchmark
    from seqclf.bench.page import bench_document, machine_line, workload_section, write_picture
    from seqclf.bench.settings import compose_comparison
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.documents.html import render_document
    from seqclf.documents.terminal import show_line, show_section
    from seqclf.system.atomic_files import write_output

    started = time.perf_counter()
    # Check the output path before the benchmark, because the benchmark takes minutes.
    if page:
        check_output_path(page)
    comparison = compose_comparison(config)
    result = run_benchmark(config, comparison, lambda workload: show_section(workload_section(workload, comparison)))
    show_line(f"\n{machine_line(result.machine)}")
    if page and picture:
        write_picture(result, picture)
        write_output(page, render_document(bench_document(result)))
        show_line(f"written: {page}, {picture}")
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
