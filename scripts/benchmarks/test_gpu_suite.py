"""gpu_suite.py on a small scale: its measurements run on any machine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "gpu_suite.py"


@pytest.mark.soak
def test_every_part_runs_on_a_cpu():
    completed = subprocess.run(
        [sys.executable, SUITE, "--device", "cpu", "--quick"], capture_output=True, text=True, check=True
    )
    results = json.loads(completed.stdout.strip().splitlines()[-1])
    assert results["machine"]["device"] == "cpu"
    assert {row["pass"] for row in results["cell"]} == {"forward", "training"}
    assert abs(results["creep"][0]["growth"]) < 0.2
    assert [(row["batch"], row["length"]) for row in results["shapes"]] == [(2, 4), (2, 16), (8, 4), (8, 16)]
    for part, keys in (("precisions", ["precision", "mode"]), ("sizes", ["hidden", "mode"])):
        timed = [row for row in results[part] if isinstance(row["tokens_per_s"], float)]
        assert len({tuple(row[key] for key in keys) for row in timed}) == len(timed), part
    modes = {(row["precision"], row["mode"]) for row in results["precisions"] if isinstance(row["tokens_per_s"], float)}
    assert modes >= {(precision, mode) for precision in ("fp32", "tf32", "bf16") for mode in ("dynamic", "static")}
    assert {row["hidden"] for row in results["sizes"] if row["mode"] == "packed"} == {16, 32}
    assert {row["mode"] for row in results["kernels"]} == {"dynamic", "packed"}
    assert results["serving"][0]["device"] == "cpu" and results["serving"][0]["tokens_per_s"] > 0
