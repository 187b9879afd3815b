"""Training on Ray, as the page about scaling documents it."""

import csv
import os
import subprocess
import sys
import time
from importlib.util import find_spec
from random import Random

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.doc_pages import DOCS, blocks

if find_spec("ray") is None:  # not imported: Ray reads its environment then (see test_ray_engine)
    pytest.skip("needs Ray", allow_module_level=True)
pytestmark = [
    pytest.mark.soak,
    pytest.mark.filterwarnings("ignore:.*subprocess.*:ResourceWarning"),
]
LOCAL = "import ray\nray.init(num_cpus=2, include_dashboard=False)\n"
EPOCHS = 12


def documented(folder):
    """The block of the page with its paths in `folder`, an own Ray, and a short training of a small table."""
    (block,) = [block for block in blocks(DOCS / "scaling.md") if "TorchTrainer(" in block.text]
    training = f'["model=gru", "logger=none", "baseline=false", "patience=null", "trainer.max_epochs={EPOCHS}"]'
    text = block.text.replace("/shared/", f"{folder}/")
    for documented, local in (('["model=gru"]', training), ("checkpoint_every=500", "checkpoint_every=5")):
        assert documented in text
        text = text.replace(documented, local)
    return LOCAL + text


def kill_rank_zero(process, checkpoint):
    """Kill the worker that holds the lowest process number, once a checkpoint exists."""
    deadline = time.monotonic() + 120
    while not checkpoint.exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
    processes = psutil.Process(process.pid).children(recursive=True)
    workers = [process for process in processes if "RayTrainWorker" in process.name()]
    assert len(workers) == 2
    min(workers, key=lambda worker: worker.pid).kill()


def test_the_workers_of_ray_train_are_ranks_that_survive_the_kill_of_one(tmp_path):
    random = Random(0)
    tokens = [[random.randrange(50) for _ in range(random.randint(1, 30))] for _ in range(1200)]
    pq.write_table(pa.table({"tokens": tokens, "label": [row[0] % 2 for row in tokens]}), tmp_path / "train.parquet")
    (tmp_path / "script.py").write_text(documented(tmp_path))
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            env={**os.environ, "OMP_NUM_THREADS": "1", "SEQCLF_CACHE": str(tmp_path / "cache")},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        kill_rank_zero(process, tmp_path / "run/checkpoints/last.ckpt")
        process.wait(timeout=240)
    output = (tmp_path / "log").read_text()
    assert process.returncode == 0, output
    assert "RETRY" in output  # the trainer started its workers again
    with (tmp_path / "run/metrics.csv").open() as file:
        epochs = [row["epoch"] for row in csv.DictReader(file)]
    assert [int(epoch) for epoch in epochs if epoch] == list(range(EPOCHS))
    assert (tmp_path / "run/bundle").is_dir()
