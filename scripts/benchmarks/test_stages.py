"""stages.py on few rows: every stage is measured, and growth is computed between sizes."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "stages.py"


@pytest.fixture(scope="module")
def stages():
    spec = importlib.util.spec_from_file_location("stages", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_exponents_and_bytes_per_row_come_from_neighbouring_sizes(stages):
    small = {"seconds": 2.0, "cpu_s": 1.0, "peak_mb": 100.0}
    results = {
        1000: {"prepare": dict(small), "predict": dict(small)},
        10_000: {
            "prepare": {"seconds": 30.0, "cpu_s": 100.0, "peak_mb": 109.0},
            "predict": {**small, "predicted": 1000},
        },
    }
    stages.add_growth(results, fraction=0.05)
    large = results[10_000]
    assert large["prepare"]["exponent"] == pytest.approx(2)
    assert large["prepare"]["kept_bytes_per_row"] == pytest.approx(1000)
    assert large["prepare"]["rows_per_s"] == pytest.approx(10_000 / 30)
    assert "exponent" not in results[1000]["predict"]
    assert results[1000]["predict"]["rows_per_s"] == pytest.approx(500)
    assert len({line.count("|") for line in stages.table(results)}) == 1


@pytest.mark.soak
def test_every_stage_is_measured(tmp_path):
    options = ["--rows", "2000", "4000", "--predicted", "3000", "--scored", "2000", "--folder", tmp_path]
    completed = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    small, large = json.loads(completed.stdout.splitlines()[-1]).values()
    assert small["reopen"]["reused"] and large["prepare"]["store_bytes"] > small["prepare"]["store_bytes"] > 0
    assert "predict" in small and "predict" not in large
    assert "after_s" in small["train"] and "after_s" not in large["train"]
    assert all(small[stage]["peak_mb"] > 50 for stage in ("prepare", "reopen", "plan", "train", "predict"))
    assert list(tmp_path.iterdir()) == []
