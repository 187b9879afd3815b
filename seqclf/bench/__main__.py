"""`python -m seqclf.bench`: the cost of dynamic against static graphs, or of several models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from seqclf.config.command import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from seqclf.bench.benchmark import BenchmarkResult
    from seqclf.bench.model_comparison import ModelsResult
    from seqclf.bench.options import BenchConfig
    from seqclf.system.json_result import JsonObject


@command("bench", "seqclf.bench.options.BenchConfig")
def main(config: BenchConfig) -> JsonObject:
    """Compare the modes of a model, or several models, and write the page and the picture."""
    from seqclf.system import signals

    page, picture = (Path(config.output).with_suffix(suffix) if config.output else None for suffix in (".html", ".png"))
    with signals.reported_outputs(page, picture):
        return _bench(config, page, picture)


def _bench(config: BenchConfig, page: Path | None, picture: Path | None) -> JsonObject:
    import time

    from seqclf.system import progress

    with progress.stage("loading PyTorch"):
        import torch  # noqa: F401

    from seqclf.bench.tables import show_machine
    from seqclf.bundle.row_writers import check_output_path
    from seqclf.documents.terminal import console

    started = time.perf_counter()
    # Before minutes of timing.
    if page:
        check_output_path(page)
    result, write_page, write_picture = _compare_modes(config) if config.models is None else _compare_models(config)
    show_machine(result.machine)
    if page and picture:
        write_picture(result, picture)
        write_page(result, page)
        console.print(f"written: {page}, {picture}", soft_wrap=True)
    return {**result.to_dict(), "seconds": round(time.perf_counter() - started, 1)}


def _compare_modes(config: BenchConfig) -> tuple[BenchmarkResult, Callable[..., None], Callable[..., None]]:
    """Return the result, and the functions that write its page and its picture."""
    from functools import partial

    from seqclf.bench.benchmark import make_workloads, run_benchmark
    from seqclf.bench.figure import write_picture
    from seqclf.bench.mode_trainer import LEFT_OUT, modes_of
    from seqclf.bench.page import write_page
    from seqclf.bench.settings import build_settings
    from seqclf.bench.tables import show_workload
    from seqclf.config.user_keys import written_keys
    from seqclf.documents.terminal import console
    from seqclf.runs.tree_fields import check_tree_fields

    settings = build_settings(config, written_keys())
    for mode in sorted(set(config.modes) - set(modes_of(settings.model, config.modes))):
        console.print(f"{mode} is left out: {LEFT_OUT[mode]}")
    dataset = None if config.data is None else config.data.name
    check = partial(check_tree_fields, settings.model, dataset=dataset)
    workloads = make_workloads(config, {"model": settings.model}, check)
    result = run_benchmark(config, settings, (by_model["model"] for by_model in workloads), show_workload)
    return result, write_page, write_picture


def _compare_models(config: BenchConfig) -> tuple[ModelsResult, Callable[..., None], Callable[..., None]]:
    """Return the result, and the functions that write its page and its picture."""
    from seqclf.bench.benchmark import make_workloads
    from seqclf.bench.model_comparison import compare_models
    from seqclf.bench.model_figure import write_picture
    from seqclf.bench.model_page import write_page
    from seqclf.bench.model_tables import show_comparison
    from seqclf.bench.settings import build_settings, configs_by_model

    settings = {name: build_settings(*composed) for name, composed in configs_by_model(config).items()}
    workloads = make_workloads(config, {name: entry.model for name, entry in settings.items()})
    result = compare_models(settings, workloads, config.rounds, show_comparison)
    return result, write_page, write_picture


if __name__ == "__main__":
    main()
