"""plan.py plans an epoch and reports its cost and its balance."""

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parent / "plan.py"


def test_a_small_plan_is_measured():
    completed = subprocess.run([sys.executable, SCRIPT, "2e4", "4"], capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout)
    assert result["steps"] * 4 * 32 >= 20_000
    assert 0.95 < result["padding_efficiency"] <= 1
    assert 1 <= result["imbalance"] < 1.05 and result["imbalance"] <= result["worst_imbalance"]
    assert result["peak_mb"] > result["lengths_mb"]
