"""Multirun with submitit, the library that sends jobs to Slurm. `submitit_local` runs the same jobs on this machine."""

import csv
import json
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from seqclf.batching.datamodule import SequenceDataModule

pytest.importorskip("hydra_plugins.hydra_submitit_launcher")

TOY = ["data=toy", "data.generator.rows={train: 800, validation: 50, test: 50}", "logger=none", "baseline=false"]
TRAINING = ["patience=null", "export=false", "runtime.threads=1", "checkpoint=auto"]
WORKER = "submitit.core._submit"  # module of the process that trains


@pytest.fixture
def start(shell, tmp_path):
    """`start(*arguments)` begins a multirun of `submitit_local` in `tmp_path`. Its processes end with the test."""
    started = []

    def begin(*arguments):
        command = [sys.executable, "-m", "seqclf.train", "-m", *TOY, *TRAINING, *arguments]
        process = subprocess.Popen(
            [*command, "hydra/launcher=submitit_local", f"hydra.sweep.dir={tmp_path}"],
            cwd=shell.folder,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            for left in [*psutil.Process(process.pid).children(recursive=True), process]:
                left.kill()
            process.wait()


def workers(launcher):
    """Processes that train for a launcher, by its process id."""
    found = [child for child in psutil.Process(launcher).children(recursive=True) if WORKER in child.cmdline()]
    return [child for child in found if child.ppid() not in {other.pid for other in found}]  # without watchdogs


def finished(process):
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output


def epochs(run):
    with (run / "metrics.csv").open() as file:
        return [int(row["epoch"]) for row in csv.DictReader(file)]


def log(folder, stream):
    """Text that the job wrote to a stream, `out` or `err`, over all its starts."""
    (path,) = (folder / ".submitit").glob(f"*/*_0_log.{stream}")
    return path.read_text()


@pytest.mark.slow
def test_tasks_of_a_job_are_ranks_and_print_one_result_into_its_log(start, tmp_path):
    finished(start("trainer.max_epochs=2", "hydra.launcher.tasks_per_node=2"))
    state = torch.load(tmp_path / "0/checkpoints/last.ckpt", weights_only=True)
    assert state[SequenceDataModule.__qualname__]["settings"]["batching.ranks"] == 2
    metrics = json.loads((tmp_path / "0/metrics.json").read_text())
    assert metrics["test"]["rows"] == 50
    (result,) = [json.loads(line) for line in log(tmp_path, "out").splitlines() if line.startswith("{")]
    assert (result["run"], result["epochs"]) == (str(tmp_path / "0"), 2)
    assert result["accuracy"] == pytest.approx(metrics["test"]["accuracy"], abs=1e-6)


@pytest.mark.slow
def test_a_requeued_job_resumes_in_its_run_folder(start, tmp_path):
    process, last = start("trainer.max_epochs=8"), tmp_path / "0/checkpoints/last.ckpt"
    while not last.exists():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)
    (worker,) = workers(process.pid)
    before = epochs(tmp_path / "0")
    worker.send_signal(signal.SIGUSR2)  # which Slurm sends before a time limit
    finished(process)
    assert worker.pid not in {child.pid for child in psutil.process_iter()}
    assert 1 <= len(before) < 8
    assert epochs(tmp_path / "0") == list(range(8))
    assert log(tmp_path, "out").count("Starting with JobEnvironment") == 2
    assert f"checkpoint=auto: resumes {last}" in log(tmp_path, "err")
    assert "SIGUSR2; resume with checkpoint=" in log(tmp_path, "err")  # written at the signal
    assert [path.name for path in tmp_path.iterdir() if path.is_dir() and path.name != ".submitit"] == ["0"]
