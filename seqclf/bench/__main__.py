"""Command `python -m seqclf.bench`: measures time and memory of one model as dynamic and as static graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from seqclf.bench.options import BenchConfig
    from seqclf.system.json_result import JsonObject


@command("bench", "seqclf.bench.options.BenchConfig")
def main(config: BenchConfig) -> JsonObject:
    """Compare the modes of a model."""
    import time

    from seqclf.system import progress

    with progress.stage("loading PyTorch"):
        import torch  # noqa: F401

    from seqclf.bench.benchmark import run_benchmark
    from seqclf.bench.sections import machine_line, workload_section
    from seqclf.bench.settings import compose_contenders
    from seqclf.documents.terminal import show_line, show_section

    started = time.perf_counter()
    contenders = compose_contenders(config)
    result = run_benchmark(config, contenders, lambda workload: show_section(workload_section(workload)))
    show_line(f"\n{machine_line(result.machine)}")
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


if __name__ == "__main__":
    main()
