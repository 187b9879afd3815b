"""structure.py makes random changes without an error, and leaves no old network in memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "structure.py"


@pytest.mark.soak
def test_random_changes_are_made_and_measured():
    completed = subprocess.run([sys.executable, SCRIPT, "20"], capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert result["errors"] == [] and result["alive"] == 0 and result["preserving"] > 0
    assert result["moved"]["float64"] < 1e-6 and result["moved"]["float32"] < 1e-5
