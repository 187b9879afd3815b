"""A command that is killed at random moments, and started again in the same way, ends as an unbroken one."""

import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

KILLS = int(os.environ.get("SEQCLF_TEST_KILLS", "1"))
TOY = ["data=toy", "data.generator.rows={train: 1500, validation: 200, test: 200}", "logger=none", "baseline=false"]
# Enough epochs for the random moments: a kill comes within 0.6 s of a new checkpoint.
TRAINING = [
    f"trainer.max_epochs={3 + KILLS}",
    "patience=null",
    "export=false",
    "checkpoint_every=2",
    "runtime.threads=1",
]
TIMES = {"seconds", "step_ms", "tokens_per_s", "memory_mb"}


WHOLE = [argument for argument in TRAINING if argument != "export=false"]
WHOLE += ["data=toy", TOY[1], "logger=none", "decision.calibrate=true", "data.positive=null", "checkpoint=auto"]


@pytest.fixture(params=[pytest.param(1, marks=pytest.mark.slow), pytest.param(2, marks=pytest.mark.soak)])
def start(shell, request):
    """`start(folder)` begins the command in a process group of its own."""
    ranks = [] if request.param == 1 else ["trainer.devices=2", "trainer.strategy=ddp", "trainer.accelerator=cpu"]

    def begin(folder):
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "seqclf.train",
                *TOY,
                *TRAINING,
                *ranks,
                f"hydra.run.dir={folder}",
                "checkpoint=auto",
            ],
            cwd=shell.folder,
            env=shell.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    begin.folder, begin.name = shell.folder, f"ranks-{request.param}"
    return begin


def finished(process):
    output, _ = process.communicate(timeout=150 + 20 * KILLS)
    assert process.returncode == 0, output


def wait_for_training(run, process):
    """Wait until the run has a checkpoint that is newer than this process."""
    last, began = run / "checkpoints/last.ckpt", time.time()
    while not last.exists() or last.stat().st_mtime < began:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def records(run):
    """Rows of metrics.csv without what time decides."""
    with (run / "metrics.csv").open() as file:
        return [{key: value for key, value in row.items() if key not in TIMES} for row in csv.DictReader(file)]


def test_a_run_killed_at_random_moments_resumes_to_the_same_weights(start):
    unbroken, killed = (start.folder / f"{start.name}-{name}" for name in ("unbroken", "killed"))
    finished(start(unbroken))
    moments = random.Random(1)
    for _ in range(KILLS):
        process = start(killed)
        wait_for_training(killed, process)
        time.sleep(moments.uniform(0, 0.6))
        assert process.poll() is None, process.communicate()[0]
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    finished(start(killed))
    one, other = (torch.load(run / "checkpoints/last.ckpt", weights_only=True) for run in (unbroken, killed))
    assert one["global_step"] == other["global_step"]
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, other["state_dict"][name]), name
    for row, again in zip(records(unbroken), records(killed), strict=True):
        assert {key: (row[key], again[key]) for key in row if row[key] != again[key]} == {}


@pytest.mark.soak
def test_a_run_killed_anywhere_has_the_results_of_an_unbroken_one(shell):
    """Kills come at any moment of the run: reading, training, scoring, exporting."""

    def start(folder):
        command = [sys.executable, "-m", "seqclf.train", *WHOLE, f"hydra.run.dir={folder}"]
        options = {"cwd": shell.folder, "env": shell.environment, "text": True, "start_new_session": True}
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options)

    def results(folder):
        metrics = json.loads((folder / "metrics.json").read_text())
        metrics.pop("next")  # names the folder
        return metrics, pq.read_table(folder / "predictions.parquet"), (folder / "bundle/model.onnx").read_bytes()

    began = time.monotonic()
    finished(start(shell.folder / "whole"))
    seconds, moments = time.monotonic() - began, random.Random(2)
    expected = results(shell.folder / "whole")
    for number in range(KILLS):
        folder = shell.folder / f"killed-{number}"
        process = start(folder)
        time.sleep(moments.uniform(0.2, 1) * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        finished(start(folder))
        assert results(folder) == expected, number


@pytest.mark.slow
@pytest.mark.parametrize("output", ["scores.parquet", "scores.jsonl", "scores/"])
def test_a_prediction_killed_anywhere_writes_the_bytes_of_an_unbroken_one(shell, output):
    """Kills come at any moment: reading, predicting, writing. Each process goes on where the one before was killed."""
    folder, generator = shell.folder / output.strip("/"), np.random.default_rng(0)
    if not (shell.folder / "predictor").exists():
        quick = ["trainer.max_epochs=1", "patience=null", "hydra.run.dir=predictor"]
        assert shell("train", *TOY, *quick).exit_code == 0
        offsets = np.append(0, generator.integers(5, 20, 150_000).cumsum()).astype(np.int32)
        tokens = pa.ListArray.from_arrays(pa.array(offsets), pa.array(generator.integers(0, 12, offsets[-1])))
        pq.write_table(pa.table({"tokens": tokens}), shell.folder / "many.parquet")

    def start():
        command = [sys.executable, "-m", "seqclf.predict", "bundle=predictor/bundle", "input=many.parquet"]
        options = {"cwd": shell.folder, "env": shell.environment, "text": True, "start_new_session": True}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([*command, f"output={output}", "threads=1"], **options, **pipes)

    def results(process):
        """JSON line without times, and bytes of the output, which is removed."""
        stdout, stderr = process.communicate(timeout=150)
        assert process.returncode == 0, stderr
        line = json.loads(stdout.splitlines()[-1])
        paths = sorted(folder.iterdir()) if folder.is_dir() else [folder]
        content = [(path.name, path.read_bytes()) for path in paths]
        shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
        return {key: value for key, value in line.items() if key not in ("seconds", "rows_per_s")}, content

    began = time.monotonic()
    expected = results(start())
    seconds = time.monotonic() - began
    for moment in generator.uniform(0.2, 0.9, KILLS):
        process = start()
        time.sleep(moment * seconds)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if process.returncode == 0:  # it ended before, as the windows of all processes add up
            shutil.rmtree(folder) if folder.is_dir() else folder.unlink()
    assert results(start()) == expected
    assert [path.name for path in shell.folder.glob(".seqclf*")] == []
