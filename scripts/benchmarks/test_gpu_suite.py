"""gpu_suite.py on a small scale: its measurements run on any machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "gpu_suite.py"


@pytest.mark.slow
def test_every_part_runs_and_answers():
    done = subprocess.run(
        [sys.executable, SUITE, "--device", "cpu", "--quick"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["machine"]["device"] == "cpu"
    assert {row["pass"] for row in found["cell"]} == {"forward", "training"}
    assert abs(found["creep"][0]["growth"]) < 0.2
    for part, keys in (("precisions", ["precision", "mode"]), ("sizes", ["hidden", "mode"])):
        rows = [row for row in found[part] if isinstance(row["tokens_per_s"], float)]
        assert len({tuple(row[key] for key in keys) for row in rows}) == len(rows), part
    ran = {(row["precision"], row["mode"]) for row in found["precisions"] if isinstance(row["tokens_per_s"], float)}
    assert ran >= {(precision, mode) for precision in ("fp32", "tf32", "bf16") for mode in ("dynamic", "static")}
    assert {row["hidden"] for row in found["sizes"] if row["mode"] == "packed"} == {16, 32}
    assert {row["mode"] for row in found["kernels"]} == {"dynamic", "packed"}
    assert found["serving"][0]["device"] == "cpu" and found["serving"][0]["tokens_per_s"] > 0
