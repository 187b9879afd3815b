"""The benchmark's page and terminal lines show every mode, with errors where a mode did not run."""

import re

import pytest

from seqclf.bench.benchmark import BenchmarkResult, Rating, StructureChanges, WorkloadResult
from seqclf.bench.figure import write_picture
from seqclf.bench.machine import Machine, MemoryGrowth
from seqclf.bench.page import write_page
from seqclf.bench.tables import show_workload
from seqclf.bench.timing import ModeTiming
from seqclf.documents.terminal import console


def make_timing(tokens_per_s, graph_ms, time_ratio=1.0):
    return ModeTiming(
        first_step_s=0.25,
        compiled_graphs=0,
        tokens_per_s=tokens_per_s,
        step_ms=1.5,
        step_ms_mean=1.75,
        step_ms_p95=2.5,
        padding_efficiency=0.9,
        graph_ms=graph_ms,
        loss=0.5,
        recall=0.75,
        time_ratio=time_ratio,
        memory_mb=512.0,
        step_memory_mb=12.0,
    )


@pytest.fixture
def result():
    workload = WorkloadResult(
        name="log_normal",
        mean_length=40.0,
        max_length=200,
        steps=6,
        batch_size=8,
        timings={"dynamic": make_timing(20_000.0, 0.125, 0.25), "static": make_timing(5_000.0, None)},
        errors={"compiled": "RuntimeError: <no> compiler"},
        growth=MemoryGrowth(300, 0.5, -1.0, 2.0, leaks=False),
        structure=StructureChanges(144, ["gru, 3 layers: cannot"]),
        rating=Rating("good", "0.25 times the iteration time of static"),
    )
    machine = Machine("cpu", "Some CPU", 2, 1, "32-true", "2.13.0", "3.11.7")
    return BenchmarkResult(machine, {"cell": "lstm"}, [workload])


def test_page_shows_modes_errors_and_rating(result, tmp_path):
    write_page(result, tmp_path / "bench.html")
    page = (tmp_path / "bench.html").read_text(encoding="utf-8")
    assert "Dynamic is good: 0.25 times the iteration time of static." in page
    cells = re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", page)
    assert cells[cells.index("tokens/s") :][:3] == ["tokens/s", "20,000", "5,000"]
    assert cells[cells.index("padding") :][:3] == ["padding", "10%", "10%"], "a share that is padding"
    assert cells[cells.index("times as fast as static") :][:3] == ["times as fast as static", "4", "1"]
    assert page.index("<h3>Time</h3>") < page.index("tokens/s") < page.index("<h3>Memory") < page.index("memory MB")
    assert "compiled did not run: RuntimeError: &lt;no&gt; compiler" in page
    assert "gru, 3 layers: cannot" in page and "no leak: +0.50 MB per 1000 ragged steps" in page
    assert "<script" not in page and "://" not in page


def test_picture_is_drawn_although_a_mode_failed(result, tmp_path):
    write_picture(result, tmp_path / "bench.png")
    assert (tmp_path / "bench.png").read_bytes().startswith(b"\x89PNG")


def test_terminal_shows_modes_and_errors(result, monkeypatch):
    monkeypatch.setattr(console, "_width", 120)
    with console.capture() as captured:
        show_workload(result.workloads[0])
    lines = captured.get().splitlines()
    assert any(line.split()[:3] == ["static", "5,000", "1.50"] for line in lines)
    assert any("4.0 times as fast" in line and "10%" in line for line in lines if line.startswith("dynamic"))
    assert any(line.split() == ["static", "512", "12", "0.5000", "0.750"] for line in lines), "a table of its own"
    assert "  compiled did not run: RuntimeError: <no> compiler" in lines


def test_result_dict_keeps_the_keys_of_the_last_line(result):
    plain = result.to_dict()
    assert list(plain) == ["machine", "model", "workloads"]
    workload = plain["workloads"]["log_normal"]
    assert (workload["longest"], workload["updates"], workload["work_ratio"]) == (200, 6, 0.2)
    assert workload["modes"]["compiled"] == {"error": "RuntimeError: <no> compiler"}
    assert workload["modes"]["static"]["graph_ms"] is None and "round_seconds" not in workload["modes"]["static"]
    assert workload["leak"]["mb_per_1000_steps"] == 0.5 and workload["verdict"]["word"] == "good"
