"""Training on two ranks that torchrun starts: one run, whatever happens to a rank."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

TORCHRUN = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seqclf.train"]
ROWS = "data.generator.rows={train: 200, validation: 60, test: 60}"
QUICK = ["data=toy", ROWS, "logger=none", "baseline=false"]


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


@pytest.mark.slow
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
    # Two batches of at most 32 rows a step, for 200 rows. One process alone would take 7 steps or more.
    assert 4 <= int(metrics[1].split(",")[1]) < 7


@pytest.mark.slow
def test_ranks_end_without_the_agent_of_torchrun_and_leave_a_checkpoint(command):
    process = command("trainer.max_epochs=-1", "patience=null", "export=false", "hydra.run.dir=endless")
    try:
        deadline = time.monotonic() + 90
        while not (command.folder / "endless/metrics.csv").exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        process.kill()
        _, stderr = process.communicate(timeout=60)  # until both ranks have closed it
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    lines = [line for line in stderr.splitlines() if line.startswith("stopped by SIGTERM")]
    assert len(lines) == 2 and all(line.endswith("endless/checkpoints/last.ckpt") for line in lines), stderr


@pytest.mark.soak
def test_both_ranks_of_a_multirun_train_the_job_that_runs(shell):
    """Rank 1 of the second job has the seed of that job, which its epoch's batches and so its scores depend on."""
    ranks = ["trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu"]
    arguments = ["-m", "seqclf.train", *QUICK, *ranks, "trainer.max_epochs=1", "export=false", "runtime.threads=1"]
    scores = {}
    for name, more in {
        "jobs": ["-m", "seed=0,1", "hydra.sweep.dir=jobs"],
        "1": ["seed=1", "hydra.run.dir=one"],
    }.items():
        completed = subprocess.run(
            [sys.executable, *arguments, *more],
            cwd=shell.folder,
            env=shell.environment,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert completed.returncode == 0, completed.stderr
        scores[name] = [json.loads(line)["loss"] for line in completed.stdout.splitlines()]
    assert len(scores["jobs"]) == 2 and scores["jobs"][1] == pytest.approx(scores["1"][0], rel=1e-5)
    assert scores["jobs"][0] != scores["jobs"][1]
    assert not (shell.folder / "runs/toy").exists(), "rank 1 needs no folder of its own"
