"""Terminal lines of a benchmark show every mode, with errors where one did not run."""

import pytest

from seqclf.bench.benchmark import BenchmarkResult, WorkloadResult
from seqclf.bench.machine import Machine
from seqclf.bench.sections import workload_section
from seqclf.bench.timing import TrainingTiming
from seqclf.bench.workload import WorkloadSize
from seqclf.documents.terminal import console, show_section

MACHINE = Machine("cpu", "Some CPU", 2, 1, "32-true", "2.13.0", "3.11.7")
SIZE = WorkloadSize(mean_length=40.0, longest=200, updates=6, batch_size=8)


def timing(tokens_per_s, time_ratio):
    return TrainingTiming(
        first_step_s=0.25,
        compiled_graphs=0,
        tokens_per_s=tokens_per_s,
        step_ms=1.5,
        step_ms_mean=1.75,
        step_ms_p95=2.5,
        padding_efficiency=0.9,
        loss=0.5,
        recall=0.75,
        time_ratio=time_ratio,
        memory_mb=512.0,
        step_memory_mb=12.0,
    )


@pytest.fixture
def result():
    figures = {"dynamic": timing(20_000.0, 0.25), "static": timing(5_000.0, 1.0)}
    return WorkloadResult("log_normal", SIZE, figures, {"compiled": "RuntimeError: <no> compiler"})


def test_the_terminal_shows_modes_and_errors(result, monkeypatch):
    monkeypatch.setattr(console, "_width", 80)
    with console.capture() as captured:
        show_section(workload_section(result))
    lines = captured.get().splitlines()
    cells = [line.split() for line in lines]
    assert ["tokens/s", "20,000", "5,000"] in cells and ["padding", "10%", "10%"] in cells
    assert ["times", "as", "fast", "as", "static", "4", "1"] in cells
    assert ["macro", "recall", "0.750", "0.750"] in cells
    assert "compiled did not run: RuntimeError: <no> compiler" in lines


def test_the_result_line_holds_the_figures_of_each_mode(result):
    plain = BenchmarkResult({"cell": "lstm"}, MACHINE, [result]).to_dict()
    assert list(plain) == ["machine", "model", "workloads"]
    workload = plain["workloads"]["log_normal"]
    assert list(workload) == ["mean_length", "longest", "updates", "batch_size", "modes", "work_ratio"]
    assert (workload["longest"], workload["updates"], workload["work_ratio"]) == (200, 6, 0.2)
    assert workload["modes"]["compiled"] == {"error": "RuntimeError: <no> compiler"}
