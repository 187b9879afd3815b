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
    from seqclf.system import signals

    page, picture = (Path(config.output).with_suffix(suffix) if config.output else None for suffix in (".html", ".png"))
    with signals.reported_outputs(page, picture):
        return _bench(config, page, picture)


def _bench(config: BenchConfig, page: Path | None, picture: Path | None) -> JsonObject:
    import time

    from seqclf.system import progress

    with progress.stage("loading PyTorch"):
        import torch  # noqa: F401

    from seqclf.benchmark.benchmark import make_workloads, run_benchmark
    from seqclf.benchmark.modes import LEFT_OUT, modes_of
    from seqclf.benchmark.settings import build_settings
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.reporting.bench.figure import write_picture
    from seqclf.reporting.bench.page import write_page
    from seqclf.reporting.bench.tables import show_machine, show_workload
    from seqclf.reporting.console import console

    started = time.perf_counter()
    # Before minutes of timing.
    if page:
        check_output_path(page)
    plain = config.model_dump()
    settings = build_settings(plain)
    for mode in sorted(set(plain["modes"]) - set(modes_of(settings.model, plain["modes"]))):
        console.print(f"{mode} is left out: {LEFT_OUT[mode]}")
    result = run_benchmark(plain, settings, make_workloads(plain), show_workload)
    show_machine(result)
    if page and picture:
        write_picture(result, picture)
        write_page(result, page)
        console.print(f"written: {page}, {picture}", soft_wrap=True)
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
