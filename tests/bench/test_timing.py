"""All modes run the same steps: they learn the same and differ in time."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml

from seqclf.bench.benchmark import make_workloads
from seqclf.bench.mode_trainer import Contender, ModeTrainer, unavailable_modes
from seqclf.bench.modes import LENGTH_DISTRIBUTIONS, MODES
from seqclf.bench.settings import NOISE_OPTIONS, model_without_noise
from seqclf.bench.timing import time_modes
from seqclf.bench.workload import generate_workload
from seqclf.config.documentation import CONF
from seqclf.errors import InputError

MODEL = {
    "_target_": "seqclf.models.classifier.SequenceClassifier",
    "members": 1,
    "encoder": {"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    "cell": "lstm",
    "embedding_size": 6,
    "hidden_size": 8,
    "layers": 1,
    "bidirectional": True,
    "pooling": "max",
    "dropout": 0.0,
    "token_dropout": 0.0,
    "number_noise": 0.0,
}
CONTENDER = Contender(MODEL, 1e-2, "cpu", "32-true", 0)
SHARED = (*NOISE_OPTIONS, "_target_", "members", "embedding_size", "hidden_size", "pooling")
TRANSFORMER = {
    **{name: MODEL[name] for name in SHARED},
    "encoder": {"_target_": "seqclf.models.transformer.Transformer"},
    **{"layers": 1, "heads": 2, "expansion": 2},
}


def timed(workload, modes, rounds, contender=CONTENDER):
    return time_modes({name: contender._replace(mode=MODES[name]) for name in modes}, workload, rounds)


@pytest.fixture(scope="module")
def workload():
    return generate_workload("uniform", 200, 8, 6, seed=2)


@pytest.fixture
def short(monkeypatch):
    """A workload of at most 12 tokens per sequence, for tests of many models."""
    monkeypatch.setitem(LENGTH_DISTRIBUTIONS, "uniform", lambda generator, rows: generator.integers(1, 13, rows))
    return generate_workload("uniform", 200, 8, 6, seed=2)


@pytest.fixture(scope="module")
def timings(workload):
    timings, errors = timed(workload, ["dynamic", "packed", "static"], 3)
    assert errors == {}
    return timings


def test_every_mode_learns_the_same(timings):
    losses = [timing.loss for timing in timings.values()]
    assert max(losses) - min(losses) < 1e-4


def test_figures_cover_all_steps(timings, workload):
    lengths = workload.split.sequences.lengths
    tokens = int(lengths[np.concatenate(workload.batches)].sum())
    for timing in timings.values():
        assert timing.tokens_per_s == pytest.approx(tokens / (6 * timing.step_ms / 1e3), rel=0.8)
    assert timings["static"].time_ratio == 1.0
    assert timings["static"].padding_efficiency == pytest.approx(tokens / (48 * lengths.max()))
    assert timings["dynamic"].padding_efficiency > 1.5 * timings["static"].padding_efficiency


def test_static_batches_are_all_as_long_as_the_longest_sequence(workload):
    for name, expected in (("static", {workload.max_length}), ("dynamic", None)):
        trainer = ModeTrainer(CONTENDER._replace(mode=MODES[name]), workload)
        widths = {trainer.collate(rows)[0]["token"].shape[1] for rows in workload.batches}
        assert widths == expected if expected else len(widths) > 1


def test_rounds_start_from_the_same_weights(workload):
    trainer = ModeTrainer(CONTENDER, workload)
    initial = {name: weight.clone() for name, weight in trainer.model.state_dict().items()}
    trainer.step(workload.batches[0])
    assert any(not torch.equal(initial[name], weight) for name, weight in trainer.model.state_dict().items())
    trainer.reset()
    assert all(torch.equal(initial[name], weight) for name, weight in trainer.model.state_dict().items())


def test_a_mode_that_cannot_run_is_reported_and_the_others_run(workload, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("no compiler\non this machine")

    monkeypatch.setattr(torch, "compile", broken)
    timings, errors = timed(workload, ["dynamic", "static", "compiled"], 1)
    assert errors == {"compiled": "RuntimeError: no compiler"}
    assert timings["dynamic"].tokens_per_s > 0 and timings["static"].tokens_per_s > 0


def test_a_transformer_has_all_modes_but_packed(short):
    assert list(unavailable_modes(TRANSFORMER)) == ["packed"] and unavailable_modes(MODEL) == {}
    timings, errors = timed(short, ["dynamic", "static"], 1, CONTENDER._replace(model=TRANSFORMER))
    assert errors == {} and abs(timings["dynamic"].loss - timings["static"].loss) < 1e-4


def test_an_adaptive_model_is_timed_with_its_own_loss(short):
    target = {"_target_": "seqclf.models.adaptive.AdaptiveClassifier", "earliness": 0.1, "bidirectional": False}
    contender = CONTENDER._replace(model={**MODEL, **target})
    timings, errors = timed(short, ["dynamic", "packed", "static"], 1, contender)
    assert errors == {} and abs(timings["dynamic"].loss - timings["static"].loss) < 1e-4


@pytest.mark.parametrize("name", ["lstm", "tree_lstm"])
def test_noise_is_off_in_a_model_that_has_it(name):
    config = yaml.safe_load((CONF / "model" / f"{name}.yaml").read_text())
    without = model_without_noise(config)
    assert {key: without[key] for key in NOISE_OPTIONS if key in config} == dict.fromkeys(
        config.keys() & NOISE_OPTIONS, 0
    )
    assert without.keys() <= config.keys()


def test_a_tree_model_needs_data_of_trees():
    model = {"_target_": "seqclf.models.trees.tree_classifier.TreeClassifier"}
    model |= {"encoder": {"_target_": "seqclf.models.trees.tree_lstm.TreeLSTM"}}
    assert list(unavailable_modes(model)) == ["packed", "compiled"]
    config = SimpleNamespace(data=None, batch_size=8, updates=2, seed=0, lengths=["uniform"], sequences=64)
    with pytest.raises(InputError, match="reads trees"):
        next(make_workloads(config, model))
