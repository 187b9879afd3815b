"""metrics_cost.py runs a training and reports the cost of its metrics and its report."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "metrics_cost.py"


@pytest.mark.soak
def test_metrics_and_report_are_timed(tmp_path):
    overrides = ["trainer.max_epochs=1", "export=false", f"hydra.run.dir={tmp_path / 'run'}", "runtime.threads=1"]
    completed = subprocess.run([sys.executable, SCRIPT, *overrides], capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert 0 < result["metrics s"] < result["fit s"]
    assert abs(result["metrics_share"] - result["metrics s"] / result["fit s"]) < 0.01
    assert result["scoring at the end s"] > 0 and result["report s"] > 0
    assert result["report kB"] == round((tmp_path / "run" / "report.html").stat().st_size / 1e3, 1)
