"""memory_growth.py watches its variants, and finds the step at which memory stops."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).parent / "memory_growth.py"
GENERATOR = np.random.default_rng(0)


@pytest.fixture(scope="module")
def growth():
    spec = importlib.util.spec_from_file_location("memory_growth", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_memory_stops_where_it_stays_within_a_percent(growth):
    steps = list(range(100, 2100, 100))
    assert growth.stopping_step(steps, [600.0] * 20) == 100
    assert growth.stopping_step(steps, [500.0] * 5 + [600.0] * 15) == 600
    assert growth.stopping_step(steps, [float(step) for step in steps]) > 1800


def test_the_slope_of_a_line_lies_in_its_interval(growth):
    fitted = growth.fit_growth(500 + 0.02 * np.arange(400) + GENERATOR.normal(0, 0.5, 400))
    assert fitted.low < 20 < fitted.high and fitted.high - fitted.low < 3
    assert fitted.leaks and fitted.steps == 400


@pytest.mark.parametrize(
    "used_mb",
    [
        np.full(300, 512.0),
        512 + GENERATOR.normal(0, 2, 300),
        512 + np.repeat(GENERATOR.normal(0, 3, 30), 10),
        512 + 1e-4 * np.arange(300),  # significant, and only 0.03 MB
    ],
)
def test_fluctuation_and_tiny_growth_are_no_leak(growth, used_mb):
    assert not growth.fit_growth(used_mb).leaks


def test_cpu_is_compared_with_the_default_of_the_same_round(growth):
    results = {
        "train/default": [{"step_cpu_ms": 10.0}, {"step_cpu_ms": 20.0}, {"step_cpu_ms": 10.0}],
        "train/trim": [{"step_cpu_ms": 11.0}, {"step_cpu_ms": 22.0}, {"step_cpu_ms": 30.0}],
    }
    assert growth.cpu_ratio(results, "train/trim") == pytest.approx(1.1)
    assert growth.cpu_ratio(results, "train/default") == 1


@pytest.mark.slow
def test_repeated_batches_bring_no_new_shapes(growth):
    options = ["--step", "train/repeated", "--steps", "4"]
    completed = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert result["steps"] == [1, 2, 3, 4] and min(result["memory_mb"]) > 50
    assert 1 <= result["shapes"][0] <= result["shapes"][-1] <= 4
