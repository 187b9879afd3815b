"""models.py measures every model of conf/."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from seqclf.config.documentation import CONF

SCRIPT = Path(__file__).parent / "models.py"


@pytest.mark.soak
def test_every_model_is_measured():
    completed = subprocess.run([sys.executable, SCRIPT, "1", "64"], capture_output=True, text=True, check=True)
    figures = json.loads(completed.stdout.splitlines()[-1])["models"]
    assert set(figures) == {path.stem for path in (CONF / "model").glob("*.yaml")}
    assert all(value > 0 for values in figures.values() for value in values.values())
