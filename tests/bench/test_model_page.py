"""The page, the picture and the terminal lines of a comparison of models."""

import re

import pytest

from seqclf.bench.machine import Machine
from seqclf.bench.model_comparison import ModelComparison, ModelFigures, ModelsResult, PredictionTiming
from seqclf.bench.model_figure import page_figure, write_picture
from seqclf.bench.model_page import write_page
from seqclf.bench.model_tables import show_comparison
from seqclf.bench.timing import ModeTiming
from seqclf.documents.terminal import console


def make_figures(training, prediction, ratio, memory_mb=512.0):
    timing = ModeTiming(
        first_step_s=0.25,
        compiled_graphs=0,
        tokens_per_s=training,
        step_ms=1.5,
        step_ms_mean=1.75,
        step_ms_p95=2.5,
        padding_efficiency=0.9,
        graph_ms=0.5,
        loss=0.5,
        recall=0.75,
        time_ratio=ratio,
        memory_mb=memory_mb,
    )
    return ModelFigures(1234, timing, PredictionTiming(prediction, ratio))


@pytest.fixture
def result():
    comparison = ModelComparison(
        name="log_normal",
        mean_length=40.0,
        max_length=200,
        steps=6,
        batch_size=8,
        models={"lstm": make_figures(20_000.0, 50_000.0, 1.0), "gru": make_figures(5_000.0, 99_000.0, 4.0, None)},
        errors={"tree_lstm": "RuntimeError: <no> trees"},
    )
    machine = Machine("cpu", "Some CPU", 2, 1, "32-true", "2.13.0", "3.11.7")
    return ModelsResult(machine, {"lstm": {}, "gru": {}, "tree_lstm": {}}, [comparison])


def test_page_shows_models_and_errors(result, tmp_path):
    write_page(result, tmp_path / "bench.html")
    page = (tmp_path / "bench.html").read_text(encoding="utf-8")
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", page)
    assert cells[cells.index("gru") :][:5] == ["gru", "5,000", "4.0 times as slow", "1.50", ""]
    assert "against lstm" in cells and "1,234" in cells
    assert "tree_lstm did not run: RuntimeError: &lt;no&gt; trees" in page
    assert "<script" not in page and "://" not in page


def test_picture_is_drawn_although_a_model_failed(result, tmp_path):
    write_picture(result, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")
    drawn = page_figure(result, "prediction", 5.0)
    assert "99.0" in drawn and "did not run" in drawn and "20.0" not in drawn


def test_terminal_shows_models_and_errors(result, monkeypatch):
    monkeypatch.setattr(console, "_width", 80)
    with console.capture() as captured:
        show_comparison(result.workloads[0], "lstm")
    lines = captured.get().splitlines()
    assert any(line.split() == ["lstm", "20,000", "as", "fast", "1.50", "512"] for line in lines)
    assert any(line.split() == ["gru", "99,000", "4.0", "times", "as", "slow", "1,234"] for line in lines)
    assert "  tree_lstm did not run: RuntimeError: <no> trees" in lines
    assert max(map(len, lines)) <= 80
