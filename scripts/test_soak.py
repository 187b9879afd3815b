"""soak.py: its slope's interval allows for autocorrelation, and it finds what grows, differs and is left."""

import fcntl
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "soak.py"
SERIES, READINGS = 300, 300
STEPS = np.arange(READINGS) * 0.01  # in thousands: 3,000 steps


@pytest.fixture(scope="module")
def soak():
    spec = importlib.util.spec_from_file_location("soak", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    before = list(sys.path)
    sys.modules["soak"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["soak"]
    sys.path[:] = before


def noise(correlation):
    """(SERIES, READINGS) memory in MB around 600, an AR(1) series with a standard deviation of 2 MB."""
    innovations = np.random.default_rng(0).normal(size=(SERIES, READINGS)) * np.sqrt(1 - correlation**2)
    values = innovations / np.sqrt(1 - correlation**2)
    for reading in range(1, READINGS):
        values[:, reading] = correlation * values[:, reading - 1] + innovations[:, reading]
    return 600 + 2 * values


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_correlated_noise_is_seldom_taken_for_a_slope(soak, correlation):
    alarms = np.mean([soak.fit_slope(STEPS, memory).low > 0 for memory in noise(correlation)])
    assert alarms <= 0.05


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_a_leak_of_four_mb_per_1000_steps_is_found_and_its_slope_estimated(soak, correlation):
    slopes = [soak.fit_slope(STEPS, memory + 4 * STEPS) for memory in noise(correlation)]
    assert np.mean([slope.low > 0 for slope in slopes]) >= 0.95
    assert np.mean([slope.slope for slope in slopes]) == pytest.approx(4, abs=0.2)
    assert np.mean([slope.low <= 4 <= slope.high for slope in slopes]) >= 0.9


def test_too_few_or_equal_positions_have_no_slope(soak):
    with pytest.raises(ValueError, match="19 readings"):
        soak.fit_slope(np.arange(19.0), np.arange(19.0))
    with pytest.raises(ValueError, match="the same"):
        soak.fit_slope(np.zeros(30), np.arange(30.0))


def readings(memory, files=6):
    """Rows of soak.COLUMNS with a counter that advances every tenth second by 100 steps."""
    counted = [100 * (1 + second // 10) for second in range(len(memory))]
    return [(second, counted[second], memory[second], files, 5, 0) for second in range(len(memory))]


def test_growth_after_warm_up_is_a_finding_and_growth_before_is_none(soak):
    seconds = np.arange(400)
    leaking = soak.summarize(readings(600 + 0.5 * seconds), warmup=0.5)  # 10 steps a second: 50 MB per 1,000 steps
    assert leaking["slope_mb"] == pytest.approx(50, rel=0.05)
    assert [line.split(":")[0] for line in soak.findings_of("training", leaking)] == ["training"]
    settled = soak.summarize(readings(600 + 0.5 * np.minimum(seconds, 150)), warmup=0.5)
    assert settled["start_mb"] < settled["settled_mb"] == settled["end_mb"]
    assert soak.findings_of("training", settled) == []


def test_more_files_are_a_finding(soak):
    rows = readings(np.full(100, 600.0))
    rows[-1] = (*rows[-1][:3], 30, *rows[-1][4:])
    (line,) = soak.findings_of("training", soak.summarize(rows, warmup=0.5))
    assert "6 to 30" in line


def test_left_files_held_locks_and_processes_are_found(soak, tmp_path):
    run = soak.Soak(tmp_path, seed=0)
    (run.temporary / "torchinductor_me").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run/free.lock").touch()
    assert run.left() == []
    (tmp_path / "run/.seqclf-last.ckpt.1.part").touch()
    (run.temporary / "seqclf-export-1").mkdir()
    process = run.start("sleeper", "-c", "import time; time.sleep(60)")
    try:
        with (tmp_path / "run/held.lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            kinds = [" ".join(line.split()[:2]) for line in run.left()]
        assert kinds == [
            "file run/.seqclf-last.ckpt.1.part",
            "held lock",
            f"process {process.pid}",
            "temporary seqclf-export-1",
        ]
    finally:
        process.kill()
        process.wait()


def test_shared_memory_is_told_by_the_process_that_made_it(soak):
    assert soak.belongs(f"torch_{os.getpid()}_1_0", [os.getpid()]) and soak.belongs("seqclf-x", [])
    assert not soak.belongs(f"torch_{os.getpid()}1_1_0", [os.getpid()])


def test_other_weights_are_named(soak):
    one = {"layer.weight": np.ones(2), "global_step": np.array(4)}
    assert soak.unlike(one, dict(one)) == ""
    assert "layer.weight" in soak.unlike(one, {**one, "layer.weight": np.array([1.0, 1.1])})
    assert "global_step" in soak.unlike(one, {"layer.weight": np.ones(2)})


@pytest.mark.soak
def test_thirty_seconds_of_soak_leave_nothing(tmp_path):
    # Memory still grows this early, so that only what ends, differs or is left counts.
    options = ["--minutes", "0.5", "--output", tmp_path / "kept"]
    completed = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert [line for line in result["findings"] if "memory grows" not in line and "no step" not in line] == []
    assert result["prediction"]["steps"] > 0
    assert (completed.returncode == 0) == (result["findings"] == [])
    assert json.loads((tmp_path / "kept/readings.json").read_text()).keys() == {"training", "prediction"}
