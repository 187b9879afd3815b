"""Training on two ranks that torchrun starts: one run, whatever happens to a rank."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seqclf.train"]
QUICK = ["data=toy", "data.generator.rows={train: 200, validation: 60, test: 60}", "logger=none", "baseline=false"]


@pytest.fixture(scope="module")
def command(shell):
    """`command(*arguments)` starts two ranks in a folder of their own with an empty cache."""
    folder = shell.folder / f"ranks-{os.getpid()}"
    folder.mkdir()
    environment = {**shell.environment, "SEQCLF_CACHE": str(folder / "cache")}

    def start(*arguments):
        return subprocess.Popen(
            [sys.executable, "-m", *TORCHRUN, *QUICK, *arguments],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    start.folder = folder
    return start


def test_torchrun_trains_one_model_without_further_settings(command):
    """In one folder that rank 0 names, from data that one rank prepares, and rank 0 alone speaks."""
    process = command("trainer.max_epochs=1", "export=false")
    stdout, stderr = process.communicate(timeout=180)
    assert process.returncode == 0, stderr
    [result] = map(json.loads, stdout.splitlines())
    assert [str(path) for path in command.folder.glob("runs/toy/*")] == [result["run"]]
    lines = stderr.splitlines()
    summary = [line for line in lines if line.startswith(("data: ", "split "))]
    assert len(summary) == len(set(summary)) > 3
    assert not [line for line in lines if "sync_dist" in line or "GLOBAL_RANK" in line]
    metrics = (Path(result["run"]) / "metrics.csv").read_text().splitlines()
    assert len(metrics) == 2
    # Each rank takes half of the steps: 200 rows in batches of 32.
    assert int(metrics[1].split(",")[1]) == 4
