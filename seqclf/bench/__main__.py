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

    from seqclf.bench.benchmark import machine_facts, make_workloads, measure_workload
    from seqclf.bench.sections import workload_section
    from seqclf.bench.settings import compose_contenders
    from seqclf.documents.terminal import show_line, show_section

    started = time.perf_counter()
    contenders = compose_contenders(config)
    first = next(iter(contenders.values()))
    workloads = {}
    for workload in make_workloads(config, first.model):
        result = measure_workload(contenders, workload, config.rounds)
        show_section(workload_section(result))
        workloads[result.name] = result.to_dict()
    machine = machine_facts(first)
    show_line("\n{name}, threads: {threads}, {precision}, PyTorch {torch}".format_map(machine))
    seconds = round(time.perf_counter() - started, 1)
    return {"machine": machine, "model": first.model, "workloads": workloads, "seconds": seconds}


if __name__ == "__main__":
    main()
