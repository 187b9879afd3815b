"""Terminal lines of a benchmark show every mode, with errors where one did not run."""

import pytest

from seqclf.bench.benchmark import WorkloadResult
from seqclf.bench.sections import workload_section
from seqclf.bench.timing import ModeFigures
from seqclf.documents.terminal import console, show_section

SIZE = {"mean_length": 40.0, "longest": 200, "updates": 6, "batch_size": 8}


def figures(tokens_per_s, time_ratio):
    return ModeFigures(
        tokens_per_s=tokens_per_s,
        step_ms=1.5,
        first_step_s=0.25,
        padding_efficiency=0.9,
        loss=0.5,
        time_ratio=time_ratio,
        memory_mb=512.0,
    )


@pytest.fixture
def result():
    modes = {"dynamic": figures(20_000.0, 0.25), "static": figures(5_000.0, 1.0)}
    return WorkloadResult("log_normal", SIZE, modes, {"compiled": "RuntimeError: <no> compiler"})


def test_the_terminal_shows_modes_and_errors(result, monkeypatch):
    monkeypatch.setattr(console, "_width", 80)
    with console.capture() as captured:
        show_section(workload_section(result))
    lines = captured.get().splitlines()
    cells = [line.split() for line in lines]
    assert ["tokens/s", "20,000", "5,000"] in cells and ["padding", "10%", "10%"] in cells
    assert ["times", "as", "fast", "as", "static", "4", "1"] in cells and ["memory", "MB", "512", "512"] in cells
    assert "log_normal: 6 steps of 8 sequences, mean length 40.0, longest 200" in lines
    assert "compiled did not run: RuntimeError: <no> compiler" in lines


def test_the_result_line_holds_the_figures_of_each_mode(result):
    plain = result.to_dict()
    assert list(plain) == [*SIZE, "modes"] and plain["modes"]["static"]["time_ratio"] == 1
    assert plain["modes"]["compiled"] == {"error": "RuntimeError: <no> compiler"}
