"""`python -m seqclf.bench`: the cost of dynamic against static graphs, on this machine and this data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from seqclf.config.command import command


@command("bench")
def main(config: dict[str, Any]) -> dict[str, Any]:
    """Time the modes, watch memory, change the structure, rate dynamic graphs, and write the page and the picture."""
    import time

    from seqclf.benchmark.benchmark import make_workloads, run_benchmark
    from seqclf.benchmark.settings import build_settings
    from seqclf.bundle.writers import check_output_path
    from seqclf.config.checks import check_ranges
    from seqclf.reporting.bench.figure import write_picture
    from seqclf.reporting.bench.page import write_page
    from seqclf.reporting.bench.tables import show_machine, show_workload
    from seqclf.reporting.console import console

    started = time.perf_counter()
    output = config["output"] and Path(str(config["output"]))
    if output:
        check_output_path(output.with_suffix(".html"))
    check_ranges(config)
    settings = build_settings(config)
    result = run_benchmark(config, settings, make_workloads(config), show_workload)
    show_machine(result)
    if output:
        write_picture(result, output.with_suffix(".png"))
        write_page(result, output.with_suffix(".html"))
        console.print(f"written: {output.with_suffix('.html')}, {output.with_suffix('.png')}", soft_wrap=True)
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
