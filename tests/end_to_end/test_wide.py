"""model.wide=true through the commands: the mixture is trained, resumed, exported and predicted with equal figures."""

import json

import numpy as np
import onnx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.plugin_package import documented_example

SMALL = ["model.hidden_size=12", "model.embedding_size=8", "logger=none", "baseline=false", "trainer.max_epochs=2"]


def write_rows(path, count, seed):
    """Rows whose label is told by three letters in a row, with some labels wrong."""
    rng = np.random.default_rng(seed)
    words, labels = [], []
    for _ in range(count):
        letters, label = rng.choice(list("abcdefgh"), rng.integers(3, 12)), rng.integers(0, 2)
        if label:
            letters[1:3] = ["a", "h"]
        words.append(letters.tolist())
        labels.append(["no", "yes"][label if rng.random() < 0.95 else 1 - label])
    pq.write_table(pa.table({"letters": words, "label": labels}), path)


@pytest.fixture(scope="module")
def data(shell):
    for number, (split, rows) in enumerate([("train", 400), ("test", 200)]):
        write_rows(shell.folder / f"letters_{split}.parquet", rows, number)
    return [
        *("data=files", "data.train=letters_train.parquet", "data.test=letters_test.parquet", "data.label=label"),
        "data.fields={letters: category}",
    ]


@pytest.fixture(scope="module")
def wide_run(shell, data):
    result = shell("train", *data, *SMALL, "model.wide=true", "hydra.run.dir=wide").result
    return result, json.loads((shell.folder / "wide/metrics.json").read_text())


def test_the_wide_path_finds_what_a_short_training_does_not(wide_run):
    result, metrics = wide_run
    assert metrics["mix"]["share"] == 1.0
    assert [rung["name"] for rung in metrics["ladder"]] == ["wide", "network"]
    assert metrics["test"]["accuracy"] > 0.85
    assert result["parity"] < 1e-5


def test_the_ngrams_that_speak_for_a_class_are_recorded(shell, wide_run):
    _, metrics = wide_run
    best = [term["text"] for term in metrics["terms"]["yes"][:5]]
    assert any("a h" in text for text in best) and metrics["terms"]["yes"][0]["rows"] > 30
    assert "What the simple model goes by" in (shell.folder / "wide/report.html").read_text()


def test_a_bundle_without_share_of_the_network_has_no_network(shell, wide_run):
    model = onnx.load(shell.folder / "wide/bundle/model.onnx")
    assert not [node for node in model.graph.node if node.op_type == "LSTM"]
    assert not [weight.name for weight in model.graph.initializer if "network" in weight.name]


@pytest.mark.parametrize("checkpoint", ["last", "best"])
def test_a_resumed_run_mixes_the_same(shell, data, wide_run, checkpoint):
    run = f"wide_{checkpoint}"
    options = [*data, *SMALL, "model.wide=true", f"checkpoint=wide/checkpoints/{checkpoint}.ckpt"]
    assert shell("train", *options, f"hydra.run.dir={run}").exit_code == 0
    metrics = json.loads((shell.folder / run / "metrics.json").read_text())
    assert metrics["mix"] == wide_run[1]["mix"]
    assert metrics["test"] == wide_run[1]["test"]


def test_the_checkpoint_exports_the_mixture(shell, wide_run):
    exported = shell("export", "checkpoint=wide/checkpoints/best.ckpt", "bundle=wide_copy").result
    assert exported["parity"] == wide_run[0]["parity"]
    ours, copied = ((shell.folder / path / "model.onnx").read_bytes() for path in ("wide/bundle", "wide_copy"))
    assert ours == copied


def test_the_bundle_predicts_and_explains_as_the_run_did(shell, data, wide_run):
    scored = shell("evaluate", "bundle=wide/bundle", *data[2:4], "data.train=null", "data=files").result
    assert scored["accuracy"] == pytest.approx(wide_run[1]["test"]["accuracy"], abs=1e-9)
    lines = ["bundle=wide/bundle", "input=letters_test.parquet", "output=wide.parquet", "explain=true"]
    assert shell("predict", *lines).exit_code == 0


def test_a_mixture_that_was_tampered_with_is_rejected_in_a_line(shell, wide_run):
    state = torch.load(shell.folder / "wide/checkpoints/best.ckpt", weights_only=True)
    for number, change in enumerate(
        [
            lambda wide: wide.update(share=7.0),
            lambda wide: wide["paths"][0].update(_target_="os.system"),
            lambda wide: wide["paths"][0]["streams"][0].update(grams=["many"]),
            lambda wide: wide["paths"][0]["streams"][0].update(grams=[2**40]),
            lambda wide: wide["paths"][0].update(streams=3),
        ]
    ):
        wide = json.loads(json.dumps(state["hyper_parameters"]["wide"]))
        change(wide)
        changed = {**state, "hyper_parameters": {**state["hyper_parameters"], "wide": wide}}
        torch.save(changed, shell.folder / f"changed{number}.ckpt")
        done = shell("export", f"checkpoint=changed{number}.ckpt", "bundle=changed")
        assert done.exit_code == 2, (number, done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_the_checkpoint_of_another_run_stays_as_it_is(shell, data):
    """Nothing was validated, so there is no best checkpoint, and the resumed run evaluates the last one."""
    options = [*data, *SMALL, "model.wide=true", "trainer.check_val_every_n_epoch=3"]
    assert shell("train", *options, "hydra.run.dir=first").exit_code == 0
    last = shell.folder / "first/checkpoints/last.ckpt"
    before = last.read_bytes()
    assert shell("train", *options, f"checkpoint={last}", "hydra.run.dir=second").exit_code == 0
    assert last.read_bytes() == before
    assert torch.load(shell.folder / "second/checkpoints/last.ckpt", weights_only=True)["hyper_parameters"]["wide"]


def write_repeats(path, count, seed):
    """Rows whose label is told by how often a value repeats the one before."""
    rng = np.random.default_rng(seed)
    labels, rows = rng.integers(0, 2, count), []
    for label in labels:
        values = rng.integers(0, 40, rng.integers(6, 15))
        for at in np.flatnonzero(rng.random(len(values) - 1) < 0.5 * label) + 1:
            values[at] = values[at - 1]
        rows.append([f"v{value}" for value in values])
    pq.write_table(pa.table({"letters": rows, "label": np.array(["no", "yes"])[labels]}), path)


def test_a_path_of_another_package_goes_the_same_way(shell, data):
    """Its bundle needs no code of the package, its checkpoint does. N-grams add nothing to it."""
    for number, (split, rows) in enumerate([("train", 400), ("test", 200)]):
        write_repeats(shell.folder / f"repeats_{split}.parquet", rows, number)
    data = [setting.replace("letters_t", "repeats_t") for setting in data]
    package = shell.folder / "mypackage"
    package.mkdir()
    (package / "paths.py").write_text(documented_example("A wide path"))
    own = {"PYTHONPATH": str(shell.folder)}
    paths = ["model.wide=[mypackage.paths.Repeats,ngrams]", "hydra.run.dir=own"]
    done = shell.fork("train", *data, *SMALL, *paths, **own)()
    metrics = json.loads((shell.folder / "own/metrics.json").read_text())
    assert metrics["mix"]["paths"] == ["repeats"] and metrics["mix"]["share"] > 0
    assert "n-grams left out" in done.stderr + done.stdout
    assert done.result["parity"] < 1e-5 and metrics["test"]["accuracy"] > 0.85
    package.rename(shell.folder / "elsewhere")
    scored = shell("evaluate", "bundle=own/bundle", *data[2:4], "data.train=null", "data=files").result
    assert scored["accuracy"] == pytest.approx(metrics["test"]["accuracy"], abs=1e-9)
    rejected = shell("export", "checkpoint=own/checkpoints/best.ckpt", "bundle=own_copy")
    assert rejected.exit_code == 2 and "trust=mypackage" in rejected.stderr


def test_an_adaptive_model_is_rejected_before_training(shell, data):
    done = shell("train", *data, *SMALL, "model=adaptive", "model.wide=true", "hydra.run.dir=rejected")
    assert done.exit_code == 2
    assert "model.wide=true: " in done.stderr
