"""scripts/benchmarks/metrics_cost.py runs a training and tells what its metrics and its report cost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "metrics_cost.py"


@pytest.mark.slow
def test_what_the_verdict_costs_is_told(tmp_path):
    overrides = ["trainer.max_epochs=1", "export=false", f"hydra.run.dir={tmp_path / 'run'}", "runtime.threads=1"]
    done = subprocess.run([sys.executable, SCRIPT, *overrides], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert 0 < found["metrics s"] < found["fit s"]
    assert abs(found["metrics_share"] - found["metrics s"] / found["fit s"]) < 0.01
    assert found["scoring at the end s"] > 0 and found["report s"] > 0
    assert found["report kB"] == round((tmp_path / "run" / "report.html").stat().st_size / 1e3, 1)
