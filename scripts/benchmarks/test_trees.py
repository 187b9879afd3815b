"""trees.py times the same states computed in several ways."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "trees.py"


@pytest.mark.soak
def test_all_ways_give_the_same_and_levels_are_faster():
    completed = subprocess.run([sys.executable, SCRIPT, "16", "32", "3"], capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert result["difference of states"] < 1e-5 and result["difference of logits"] < 1e-5
    assert result["times as fast"] > 4
