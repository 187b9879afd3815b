"""A package outside of seqclf brings encoders, a network, recurrent cells, a loss and a callback.

They go through train, export, predict and resume. The files are in `outside_package`, `conf` there is the
`--config-dir`.
"""

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from support.installed_package import documented_example

from seqclf import Classifier

PACKAGE = Path(__file__).parent / "outside_package"
CONF = ["--config-dir", str(PACKAGE / "conf")]
DATA = ["data=files", "data.train=outside_train.jsonl", "data.test=outside_test.jsonl", "data.label=fraud"]
QUICK = ["logger=none", "baseline=false", "runtime.threads=1", "trainer.max_epochs=1"]
# The same training as experiment=acme of the package.
OVERRIDES = [
    "model=own_encoder",
    "model.encoder._target_=acme.encoders.Convolution",
    "+model.kernel=3",
    "model.embedding_size=8",
    "+model.hidden_size=8",
    "model.pooling=mean",
    "model.dropout=0.1",
    "model.token_dropout=0.0",
    "model.number_noise=0.0",
    "loss=own",
    "loss._target_=acme.losses.Margin",
    "+loss.margin=2.0",
    "+trainer.callbacks=[{_target_: acme.callbacks.StepLog, every: 2}]",
]
CELLS = ["model=own_encoder", "model.encoder._target_=seqclf.extend.CellEncoder"]
CELL = [*CELLS, "+model.encoder.cell._target_=acme.cells.DeltaRule"]
LOOP = ["model=own_encoder", "model.encoder._target_=acme.encoders.LoopConvolution", "+model.kernel=3"]
LOOP += ["+model.hidden_size=8"]


def cards(seed, count):
    """Cards with the shop and the amount of each payment. The amounts of a fraud fall."""
    generator = np.random.default_rng(seed)
    for row in range(count):
        length, fraud = int(generator.integers(2, 12)), row % 3 == 0
        amounts = np.sort(generator.uniform(1, 60, length))[:: -1 if fraud else 1].round(2)
        shops = generator.choice(["food", "fuel", "fun"], length)
        yield {"shop": shops.tolist(), "amount": amounts.tolist(), "fraud": "yes" if fraud else "no"}


@pytest.fixture(scope="module")
def start(shell):
    """`start(command, *arguments)()`: the completed command, which has the package on its PYTHONPATH."""
    for name, seed, count in (("train", 1, 240), ("test", 2, 90)):
        lines = (f"{json.dumps(card)}\n" for card in cards(seed, count))
        (shell.folder / f"outside_{name}.jsonl").write_text("".join(lines))
    path = os.pathsep.join(filter(None, [str(PACKAGE), shell.environment.get("PYTHONPATH")]))
    return lambda command, *arguments: shell.fork(command, *arguments, PYTHONPATH=path)


@pytest.fixture(scope="module")
def train(start):
    """`train(folder, *arguments, flags=CONF)`: the completed command of a short training. Flags come first."""

    def run(folder, *arguments, flags=()):
        return start("train", *flags, *DATA, *QUICK, f"hydra.run.dir={folder}", *arguments)()

    return run


@pytest.fixture(scope="module")
def trained(shell, start):
    """Run folder and result of one training, configured `by_yaml` of the package and `by_overrides` of our config.

    Only the first is exported by the training itself, because two exports take longer than everything else.
    """
    ways = {"by_yaml": [*CONF, "experiment=acme"], "by_overrides": [*OVERRIDES, "export=false"]}
    waits = {way: start("train", *ways[way], *DATA, *QUICK, f"hydra.run.dir=outside_{way}") for way in ways}
    completed = {way: wait() for way, wait in waits.items()}
    return {way: (shell.folder / f"outside_{way}", completed[way].result) for way in ways}


def test_yaml_and_overrides_train_the_same(trained):
    (run, result), (other_run, other_result) = trained.values()
    assert result["parity"] < 1e-5
    assert {result[name] for name in ("loss", "recall")} == {other_result[name] for name in ("loss", "recall")}
    settings, others = (yaml.safe_load((folder / "config.yaml").read_text()) for folder in (run, other_run))
    kernel = others["model"].pop("kernel")
    others["model"]["encoder"]["kernel"] = kernel
    assert settings["model"] == others["model"] and "cell" not in others["model"], "the keys of an LSTM are dropped"
    assert settings["loss"] == others["loss"] == {"_target_": "acme.losses.Margin", "margin": 2.0}
    assert settings["trainer"]["callbacks"] == others["trainer"]["callbacks"]
    assert (run / "steps.txt").read_text() == (other_run / "steps.txt").read_text() != ""


def test_the_code_of_a_checkpoint_has_to_be_trusted(start, trained):
    checkpoint = f"checkpoint={trained['by_yaml'][0]}/model.ckpt"
    refused = start("export", checkpoint, "bundle=refused")()
    (line,) = refused.stderr.splitlines()
    assert refused.exit_code == 2 and line.startswith(f"error: {checkpoint}: model.encoder._target_=acme.encoders.")
    assert line.endswith("would run code of the package acme; if you trust it, set trust=acme")


@pytest.mark.slow
def test_the_bundle_of_an_exported_checkpoint_predicts(start, trained):
    run, _ = trained["by_overrides"]
    exported = start("export", f"checkpoint={run}/model.ckpt", f"bundle={run}/again", "trust=acme")()
    assert exported.result["parity"] < 1e-5
    predicted = start("predict", f"bundle={run}/again", "input=outside_test.jsonl", f"output={run}/scores.parquet")()
    assert predicted.result["rows"] == 90 and predicted.result["refused"] == 0
    assert set(pq.read_table(run / "scores.parquet")["prediction"].to_pylist()) <= {"yes", "no"}


@pytest.mark.parametrize(
    ("heading", "file"),
    [
        ("An encoder", "encoders.py"),
        ("A recurrent cell", "cells.py"),
        ("Fields beside the tokens", "time_cells.py"),
        ("A callback", "callbacks.py"),
    ],
)
def test_the_package_holds_the_documented_examples(heading, file):
    code = (PACKAGE / "acme" / file).read_text(encoding="utf-8")
    assert code.startswith(documented_example(heading))


def test_a_resumed_run_goes_on_with_the_state_of_its_callback(shell, train, trained):
    last = trained["by_yaml"][0] / "checkpoints/last.ckpt"
    steps = torch.load(last, weights_only=True)["callbacks"]["StepLog"]["steps"]
    more = ["experiment=acme", f"checkpoint={last}", "trainer.max_epochs=2", "export=false"]
    assert train("outside_resumed", *more, flags=CONF).result["epochs"] == 2
    resumed = torch.load(shell.folder / "outside_resumed/checkpoints/last.ckpt", weights_only=True)
    assert resumed["callbacks"]["StepLog"]["steps"] == 2 * steps


@pytest.mark.slow
def test_an_encoder_that_cannot_be_exported_is_refused_before_the_first_epoch(shell, train):
    refused = train("outside_loop", *LOOP)
    assert refused.exit_code == 2 and "epoch   1" not in refused.stderr
    line = refused.stderr.splitlines()[-1]
    assert line.startswith("error: model.encoder._target_=acme.encoders.LoopConvolution: cannot be exported to ONNX: ")
    assert "onnx_form" in line and "export=false" in line
    assert not (shell.folder / "outside_loop").exists()


@pytest.mark.slow
def test_an_encoder_that_cannot_be_exported_is_trained_without_an_export(train):
    result = train("outside_loop", *LOOP, "export=false").result
    assert result["epochs"] == 1 and result["bundle"] is None


@pytest.mark.slow
def test_a_network_of_the_package_goes_the_same_way(shell, train):
    result = train("outside_net", "model=averages", "seed=1", flags=CONF).result
    assert result["parity"] < 1e-5
    typed = ["model._target_=acme.networks.Averages", "+model.depth=1", "+model.hidden_size=8", "seed=1"]
    typed = ["model=own_network", *typed]
    assert train("outside_net_typed", *typed).result["recall"] == result["recall"]
    config = yaml.safe_load((shell.folder / "outside_net_typed/config.yaml").read_text())
    settings = {"hidden_size": 8, "depth": 1, "members": 1}
    assert config["model"] == {"_target_": typed[1].partition("=")[2], **settings}


@pytest.mark.slow
def test_a_cell_reads_a_field_beside_the_tokens(train):
    cell = ["+model.encoder.cell._target_=acme.time_cells.Forgetful", "+model.encoder.cell.gap=amount"]
    result = train("outside_cell", *CELLS, *cell).result
    assert result["parity"] < 1e-5


@pytest.fixture(scope="module")
def shops(shell):
    """A table of the shops of each card, written as shops.parquet."""
    rows = list(cards(3, 150))
    table = pa.table({"shop": [row["shop"] for row in rows], "fraud": [row["fraud"] for row in rows]})
    pq.write_table(table, shell.folder / "shops.parquet")
    return table


@pytest.mark.slow
def test_a_cell_with_a_matrix_is_trained_resumed_exported_and_streamed(shell, start, shops):
    data = ["data=files", "data.train=shops.parquet", "data.label=fraud", "data.fields={shop: category}"]
    sizes = ["+model.hidden_size=8", "+model.bidirectional=false", "+model.encoder.cell.keys=3"]
    command = ["train", *data, *QUICK, *CELL, *sizes, "hydra.run.dir=outside_matrix"]
    start(*command, "export=false")().result  # noqa: B018 (fails unless the command ends well)
    resumed = start(*command, "checkpoint=auto", "trainer.max_epochs=2")().result
    assert resumed["epochs"] == 2 and resumed["parity"] < 1e-5
    bundle = shell.folder / "outside_matrix/bundle"
    memory = json.loads((bundle / "manifest.json").read_text())["step"]["states"][0]
    assert memory["name"] == "memory_0" and memory["shape"] == [3, 8]
    # Without the package on the path.
    predicted = shell("predict", f"bundle={bundle}", "input=shops.parquet", "output=shop_scores.parquet").result
    assert predicted["rows"] == 150 and predicted["refused"] == 0
    scores = pq.read_table(shell.folder / "shop_scores.parquet")["probability_yes"].to_pylist()
    stream = Classifier(bundle).stream()
    for row in range(20):
        tokens = shops["shop"][row].as_py()
        for first in range(0, len(tokens), 3):
            last = stream.read({row: tokens[first : first + 3]})[row]
        assert last["probabilities"]["yes"] == pytest.approx(scores[row], abs=1e-6)


def test_an_argument_of_a_cell_is_checked_before_any_data_is_read(train):
    rejected = train("outside_absent", "data.train=absent.parquet", *CELL, "+model.encoder.cell.keys=0")
    (line,) = rejected.stderr.splitlines()
    assert rejected.exit_code == 2 and line.startswith("error: model.encoder.cell.keys=0: ")


@pytest.mark.slow
def test_an_encoder_with_a_recurrent_layer_of_seqclf_is_exported(train):
    stacked = ["model=own_encoder", "model.encoder._target_=acme.recurrent.StackedLSTM", "+model.layers=2"]
    stacked += ["+model.hidden_size=8"]
    result = train("outside_stacked", *stacked).result
    assert result["parity"] < 1e-5


def test_an_encoder_that_reads_the_padding_is_rejected_before_the_first_epoch(shell, train):
    leaky = ["model=own_encoder", "model.encoder._target_=acme.encoders.LeakyConvolution", "+model.kernel=3"]
    leaky += ["+model.hidden_size=8"]
    rejected = train("outside_leaky", *leaky)
    line = rejected.stderr.splitlines()[-1]
    assert rejected.exit_code == 2 and "epoch   1" not in rejected.stderr
    assert line.startswith("error: model.encoder._target_=acme.encoders.LeakyConvolution: the logits of a sequence ")
    assert not (shell.folder / "outside_leaky").exists()


@pytest.mark.slow
def test_a_search_reaches_the_config_folder_and_leaves_out_keys_that_the_model_lacks(shell, start):
    pytest.importorskip("optuna")
    arguments = ["model=averages", "search.trials=1", "hydra.run.dir=outside_search"]
    result = start("search", *CONF, *DATA, *QUICK, *arguments)().result
    assert set(result["best"]) == {"optimizer.lr", "model.hidden_size"}, "it has neither dropout nor pooling"
