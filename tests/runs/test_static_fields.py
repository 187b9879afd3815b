"""Training with static fields: the label needs them and the order, and every kind of run has them."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import seqclf
from seqclf import InputError
from seqclf.models.network import SequenceNetwork

SETTINGS = ["data.group_by=id", "logger=none", "trainer.accelerator=cpu", "runtime.threads=1", "baseline=false"]
SMALL = ["model=gru", "model.hidden_size=24", "model.embedding_size=8", "optimizer.lr=1e-2", "model.dropout=0.1"]


def events(count, seed):
    """An event table. The label is (a before b) xor (country among the first three), and 5 % are flipped."""
    generator = np.random.default_rng(seed)
    columns = {name: [] for name in ("id", "shop", "country", "age", "label")}
    for sequence in range(count):
        tokens = generator.choice(list("cdef"), generator.integers(4, 9))
        is_first = generator.random() < 0.5
        tokens[np.sort(generator.choice(len(tokens), 2, replace=False))] = ["a", "b"] if is_first else ["b", "a"]
        country = generator.integers(6)
        label = is_first ^ (country < 3) ^ (generator.random() < 0.05)
        row = (f"{seed}-{sequence}", None, f"c{country}", float(generator.integers(36, 180)) / 2, "ny"[int(label)])
        for token in tokens:
            for name, value in zip(columns, row, strict=True):
                columns[name].append(token if name == "shop" else value)
    return pa.table(columns)


def train(folder, *overrides, rows=400, name="run", drop=()):
    settings = [*SETTINGS, *SMALL, f"data.cache_dir={folder / 'cache'}", *overrides]
    tables = [events(count, seed).drop(list(drop)) for count, seed in ((rows, 0), (rows // 2, 1))]
    return seqclf.fit(tables[0], test=tables[1], label="label", overrides=settings, folder=folder / name)


def last_checkpoint(run):
    return torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)


def last_weights(run):
    return last_checkpoint(run)["state_dict"]


@pytest.mark.slow
def test_a_label_of_order_and_country_needs_both(tmp_path):
    quick = ["trainer.max_epochs=12", "export=false", "data.split.validation=0.2"]
    both = train(tmp_path, *quick, rows=3000)
    assert both.metrics["test"]["accuracy"] >= 0.94
    without = train(tmp_path, *quick, rows=3000, drop=["country"], name="without")
    assert without.metrics["test"]["accuracy"] <= 0.6


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("static")


@pytest.mark.slow
@pytest.mark.parametrize("model", ["auto", "adaptive", "transformer"])
def test_every_model_trains_and_exports(folder, model):
    sizes = ["model.hidden_size=16", "trainer.max_epochs=1"]
    run = seqclf.fit(
        events(200, 0),
        test=events(60, 1),
        label="label",
        overrides=[*SETTINGS, f"data.cache_dir={folder / 'cache'}", f"model={model}", *sizes],
        folder=folder / model,
    )
    specs = {spec["name"]: spec for spec in run.classifier.specs}
    assert specs["country"]["static"] and specs["age"]["static"] and "static" not in specs["shop"]
    predicted = run.classifier.predict(events(60, 1)).to_pandas().set_index("id")["probability_y"]
    stored = pq.read_table(run.folder / "predictions.parquet").to_pandas()
    stored = stored[stored["split"] == "test"].set_index("id") if "split" in stored else stored.set_index("id")
    np.testing.assert_allclose(stored["probability_y"], predicted[stored.index], atol=1e-5)


def test_the_order_blind_baseline_and_the_survey_read_static_fields(folder):
    """The label is the country alone, so a model without order finds it, and the survey says so."""
    table = events(300, 0)
    countries = table.column("country").to_pylist()
    labels = pa.array(["y" if country < "c3" else "n" for country in countries])
    table = table.set_column(table.schema.get_field_index("label"), "label", labels)
    settings = [entry for entry in SETTINGS if entry != "baseline=false"]
    settings += [*SMALL, "trainer.max_epochs=1", "export=false", f"data.cache_dir={folder / 'cache'}"]
    run = seqclf.fit(table, label="label", overrides=settings, folder=folder / "leak")
    assert "static field country gives the label away" in (run.folder / "report.html").read_text(encoding="utf-8")
    assert run.metrics["baseline"]["recall"] > 0.98


class Counts(SequenceNetwork):
    def __init__(self, fields, num_classes):
        super().__init__()
        self.field = next(field for field in fields if field["kind"] == "category")
        self.output = torch.nn.Linear(self.field["size"], num_classes)

    def forward(self, fields, lengths, host_lengths):
        ids = fields[self.field["name"]]
        inside = (torch.arange(ids.shape[1], device=ids.device) < lengths[:, None])[..., None]
        hot = torch.nn.functional.one_hot(ids, self.field["size"]) * inside
        return self.output(hot.sum(dim=1).float())


class StaticCounts(Counts):
    reads_static = True


@pytest.mark.parametrize("network", [Counts, StaticCounts])
def test_a_network_of_ones_own_gets_static_fields_only_if_it_reads_them(folder, network):
    def fit(*more):
        own = ["model=own_network", f"model._target_={__name__}.{network.__name__}", "trainer.max_epochs=1", *more]
        settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", "export=false", *own]
        run = seqclf.fit(
            events(200, 0), label="label", overrides=settings, folder=folder / f"{network.__name__}-{len(more)}"
        )
        return last_checkpoint(run.folder)["hyper_parameters"]["dataset"]["fields"]

    static = {spec["name"] for spec in fit() if spec.get("static")}
    assert static == ({"country", "age"} if network.reads_static else set())
    declared = ["data.fields={shop: category}", "data.static={age: number}", "data.infer=false"]
    if network.reads_static:
        assert [spec["name"] for spec in fit(*declared)] == ["shop", "age"]
    else:
        with pytest.raises(InputError, match="reads no static fields; set reads_static = True in the class, or data"):
            fit(*declared)


@pytest.fixture(scope="module")
def files(folder):
    pq.write_table(events(400, 0), folder / "train.parquet")
    return [
        *("data=files", f"data.train={folder / 'train.parquet'}", "data.label=label"),
        *(f"data.cache_dir={folder / 'cache'}", *SETTINGS, *SMALL, "export=false", "patience=null"),
    ]


@pytest.mark.slow
def test_a_training_that_is_killed_ends_with_the_weights_of_an_unbroken_one(folder, files):
    command = [sys.executable, "-m", "seqclf.train", *files, "trainer.max_epochs=4", "checkpoint_every=2"]

    def start(name):
        return subprocess.Popen(
            [*command, "checkpoint=auto", f"hydra.run.dir={folder / name}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    assert start("whole").wait(120) == 0
    process, checkpoint = start("killed"), folder / "killed" / "checkpoints" / "last.ckpt"
    deadline = time.monotonic() + 60
    while not checkpoint.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert checkpoint.exists()
    assert start("killed").wait(120) == 0
    whole, killed = last_weights(folder / "whole"), last_weights(folder / "killed")
    assert whole.keys() == killed.keys() and any("static" in name for name in whole)
    assert all(torch.equal(whole[name], killed[name]) for name in whole)


@pytest.mark.slow
def test_two_ranks_train_one_model(folder, files):
    ranks = ["torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m", "seqclf.train"]
    completed = subprocess.run(
        [sys.executable, "-m", *ranks, *files, "trainer.max_epochs=1", f"hydra.run.dir={folder / 'ranks'}"],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    [result] = map(json.loads, completed.stdout.splitlines())
    assert np.isfinite(result["loss"]) and any("static.hidden" in name for name in last_weights(folder / "ranks"))
