"""Multirun with `hydra/launcher=joblib`: runs that train at the same time in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from support.wandb_records import records, run_of

JOBLIB = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]


@pytest.mark.soak
def test_runs_of_two_processes_are_whole_and_share_a_group(shell, files):
    arguments = [*files, "trainer.max_epochs=1", "runtime.threads=null", "seed=0,1", "export=false", "baseline=false"]
    command = ["-m", "seqclf.train", "-m", *arguments, *JOBLIB, "hydra.sweep.dir=sweeps/joblib"]
    environment = {**shell.environment}
    del environment["OMP_NUM_THREADS"]
    completed = subprocess.run(
        [sys.executable, *command], cwd=shell.folder, env=environment, capture_output=True, text=True, timeout=180
    )
    assert completed.returncode == 0, completed.stderr
    results = [json.loads(line) for line in completed.stdout.splitlines()]
    folder = shell.folder / "sweeps/joblib"
    assert {result["run"] for result in results} == {str(folder / "0"), str(folder / "1")}
    for run in (folder / "0", folder / "1"):
        assert json.loads((run / "metrics.json").read_text())["test"]["rows"] == 90
        assert len((run / "metrics.csv").read_text().splitlines()) == 2
    recorded = [run_of(list(records(path))) for path in folder.glob("*/wandb/*run-*/run-*.wandb")]
    assert [run.run_group for run in recorded] == ["joblib", "joblib"]
    threads = f"threads: {max(1, len(os.sched_getaffinity(0)) // 2)}"
    models = [line for line in completed.stderr.splitlines() if line.startswith("model: ") and "weights" in line]
    assert len(models) == 2 and all(line.endswith(threads) for line in models), models


@pytest.mark.soak
def test_ctrl_c_ends_all_processes(shell, files):
    folder = shell.folder / "sweeps/interrupted"
    arguments = [*files, "trainer.max_epochs=-1", "patience=null", "seed=0,1,2,3", "logger=none", *JOBLIB]
    process = subprocess.Popen(
        [sys.executable, "-m", "seqclf.train", "-m", *arguments, f"hydra.sweep.dir={folder}"],
        cwd=shell.folder,
        env=shell.environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # its processes are one group, as those of a terminal's command are
    )
    try:
        deadline = time.monotonic() + 150
        while len(list(folder.glob("*/metrics.csv"))) < 2 and time.monotonic() < deadline:
            assert process.poll() is None, "the multirun ended by itself"
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(timeout=60) == 128 + signal.SIGINT
        deadline = time.monotonic() + 20
        while group_lives(process.pid) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not group_lives(process.pid)
    finally:
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
    assert sorted(path.name for path in folder.iterdir() if path.is_dir()) == ["0", "1"], "no further run was started"


def group_lives(group):
    """Return whether a process of a group exists."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
