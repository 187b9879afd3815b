"""Terminal lines of a benchmark show every contender, with errors where one did not run."""

import pytest

from seqclf.bench.benchmark import BenchmarkResult, Figures, WorkloadResult
from seqclf.bench.machine import Machine
from seqclf.bench.mode_trainer import Comparison, Contender
from seqclf.bench.sections import workload_section
from seqclf.bench.timing import PredictionTiming, TrainingTiming
from seqclf.bench.workload import WorkloadSize
from seqclf.documents.terminal import console, show_section

MACHINE = Machine("cpu", "Some CPU", 2, 1, "32-true", "2.13.0", "3.11.7")
SIZE = WorkloadSize(mean_length=40.0, longest=200, updates=6, batch_size=8)


def make_figures(tokens_per_s, time_ratio=1.0, memory_mb=512.0, prediction=None):
    timing = TrainingTiming(
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
        memory_mb=memory_mb,
        step_memory_mb=12.0,
    )
    return Figures(1234, timing, prediction and PredictionTiming(prediction, time_ratio))


def make_result(kind, reference, figures, errors):
    contender = Contender({"cell": "lstm"}, 1e-3, "cpu", "32-true", seed=0)
    comparison = Comparison(kind, dict.fromkeys((*figures, *errors), contender), reference)
    return BenchmarkResult(comparison, MACHINE, [WorkloadResult("log_normal", SIZE, figures, errors, kind)])


@pytest.fixture
def modes():
    figures = {"dynamic": make_figures(20_000.0, 0.25), "static": make_figures(5_000.0)}
    return make_result("modes", "static", figures, {"compiled": "RuntimeError: <no> compiler"})


@pytest.fixture
def models():
    figures = {
        "lstm": make_figures(20_000.0, prediction=50_000.0),
        "gru": make_figures(5_000.0, time_ratio=4.0, memory_mb=None, prediction=99_000.0),
    }
    return make_result("models", "lstm", figures, {"tree_lstm": "RuntimeError: <no> trees"})


def shown(result, width, monkeypatch):
    """Return the lines of the first workload in the terminal."""
    monkeypatch.setattr(console, "_width", width)
    with console.capture() as captured:
        show_section(workload_section(result.workloads[0], result.comparison))
    return captured.get().splitlines()


def test_terminal_shows_modes_and_errors(modes, monkeypatch):
    lines = shown(modes, 80, monkeypatch)
    assert any(line.split() == ["tokens/s", "20,000", "5,000"] for line in lines)
    assert any(line.split() == ["padding", "10%", "10%"] for line in lines)
    assert any(line.split() == ["macro", "recall", "0.750", "0.750"] for line in lines)
    assert "compiled did not run: RuntimeError: <no> compiler" in lines


def test_terminal_shows_models_and_errors(models, monkeypatch):
    lines = shown(models, 80, monkeypatch)
    assert any(line.split() == ["lstm", "20,000", "as", "fast", "1.50", "512"] for line in lines)
    assert any(line.split() == ["gru", "99,000", "4.0", "times", "as", "slow", "1,234"] for line in lines)
    assert "tree_lstm did not run: RuntimeError: <no> trees" in lines
    assert max(map(len, lines)) <= 80


def test_result_dict_keeps_the_keys_of_the_last_line(modes):
    plain = modes.to_dict()
    assert list(plain) == ["machine", "model", "workloads"]
    workload = plain["workloads"]["log_normal"]
    sizes = ["mean_length", "longest", "updates", "batch_size"]
    assert list(workload) == [*sizes, "modes", "work_ratio"]
    assert (workload["longest"], workload["updates"], workload["work_ratio"]) == (200, 6, 0.2)
    assert workload["modes"]["compiled"] == {"error": "RuntimeError: <no> compiler"}
    assert "weights" not in workload["modes"]["static"]
