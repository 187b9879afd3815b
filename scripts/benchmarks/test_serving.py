"""The benchmark of serving runs, and its figures are those of the same rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.soak
def test_a_small_run_gives_all_figures(tmp_path):
    script = Path(__file__).with_name("serving.py")
    command = [sys.executable, script, "--rows", "2000", "--rounds", "1", "--folder", tmp_path]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["rows"] == 2000 and found["tokens"] > 2000 * 10
    assert found["ratio"] == pytest.approx(found["bare_s"] / found["file_s"], abs=0.01)
    assert 0 < found["run_ms"] < found["row_ms"]
