"""`python -m seqclf.bench`: the cost of dynamic against static graphs, on this machine and this data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.benchmark.options import BenchConfig
    from seqclf.system.json_result import JsonObject


@command("bench", "seqclf.benchmark.options.BenchConfig")
def main(config: BenchConfig) -> JsonObject:
    """Time the modes, watch memory, change the structure, rate dynamic graphs, and write the page and the picture."""
    import time

    from seqclf.benchmark.benchmark import make_workloads, run_benchmark
    from seqclf.benchmark.settings import build_settings
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.reporting.bench.figure import write_picture
    from seqclf.reporting.bench.page import write_page
    from seqclf.reporting.bench.tables import show_machine, show_workload
    from seqclf.reporting.console import console

    started = time.perf_counter()
    output = Path(config.output) if config.output else None
    # Before minutes of timing.
    if output:
        check_output_path(output.with_suffix(".html"))
    plain = config.model_dump()
    result = run_benchmark(plain, build_settings(plain), make_workloads(plain), show_workload)
    show_machine(result)
    if output:
        write_picture(result, output.with_suffix(".png"))
        write_page(result, output.with_suffix(".html"))
        console.print(f"written: {output.with_suffix('.html')}, {output.with_suffix('.png')}", soft_wrap=True)
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
