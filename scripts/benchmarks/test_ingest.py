"""ingest.py on few events: every stage runs and reports its time and memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "ingest.py"


@pytest.mark.soak
def test_every_stage_is_measured(tmp_path):
    options = ["--millions", "0.02", "--sorted", "--folder", tmp_path]
    completed = subprocess.run([sys.executable, SCRIPT, *options], capture_output=True, text=True)
    assert completed.returncode == 0, completed.stderr
    lines = completed.stdout.strip().splitlines()
    (results,) = json.loads(lines[-1])
    assert all(results[stage]["seconds"] > 0 for stage in ("read_only", "sort_only", "prepare", "reopen", "batches"))
    assert results["read_only"]["events"] == results["sort_only"]["events"] > 10_000
    assert results["reopen"]["reused"] and results["prepare"]["peak_mb"] > 50
    assert len({line.count("|") for line in lines[:3]}) == 1, "the table's rows have the cells of its headings"
    assert list(tmp_path.iterdir()) == []
