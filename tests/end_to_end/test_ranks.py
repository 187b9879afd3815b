"""Training on two ranks that torchrun starts: one run, whatever happens to a rank."""

import json
import os
import subprocess
import sys

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
    assert len([line for line in lines if line.startswith("data: ")]) == len({*lines} & {*filter(_is_of_data, lines)})
    assert sum("prepared" in line for line in lines) == 1, "neither twice, nor by the rank that waited"
    assert not [line for line in lines if "sync_dist" in line or "GLOBAL_RANK" in line]
    # Two ranks take half as many steps as one.
    steps = (command.folder / "runs/toy").glob("*/metrics.csv").__next__().read_text().splitlines()[1].split(",")[1]
    assert int(steps) < 7


def _is_of_data(line):
    return line.startswith("data: ")
