"""Models are compared on the same sequences, in training and in prediction."""

import shutil

import numpy as np
import pytest

from seqclf import load_config
from seqclf.bench import benchmark, timing
from seqclf.bench.benchmark import make_workloads, run_benchmark
from seqclf.bench.machine import PeakMemory
from seqclf.bench.mode_trainer import Comparison, Contender, ModeTrainer
from seqclf.bench.options import BenchConfig
from seqclf.bench.settings import model_without_noise
from seqclf.bench.timing import Predictor
from seqclf.errors import InputError

CONFIG = BenchConfig.model_construct(lengths=["uniform"], sequences=64, batch_size=8, updates=3, rounds=2, seed=0)


def contender(name):
    config = load_config([f"model={name}", "model.hidden_size=8", "model.embedding_size=4"])["model"]
    return Contender(model_without_noise(config), 3e-3, "cpu", "32-true", seed=0)


def compare(contenders, on_result=lambda _: None):
    """Compare with the first contender."""
    return run_benchmark(CONFIG, Comparison("models", contenders, next(iter(contenders))), on_result)


@pytest.fixture(scope="module")
def contenders():
    return {name: contender(name) for name in ("lstm", "rnn")}


@pytest.fixture
def broken(contenders):
    return contenders["lstm"]._replace(model={**contenders["lstm"].model, "pooling": "median"})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Exported models by cell: an export takes seconds."""
    folder, export = tmp_path_factory.mktemp("exported"), timing.export_onnx

    def copy(model, fields, path):
        first = folder / f"{model.encoder.cell}.onnx"
        if not first.exists():
            export(model, fields, first)
        shutil.copy(first, path)

    return copy


@pytest.fixture(autouse=True)
def quick(monkeypatch, exported):
    """Each export once, and peak memory without processes, which take seconds to start."""
    monkeypatch.setattr(timing, "export_onnx", exported)
    monkeypatch.setattr(benchmark, "measure_peak", lambda trainer: PeakMemory(100, 10))


def test_trees_have_the_tokens_of_the_sequences():
    contenders = {name: contender(name) for name in ("lstm", "tree_lstm")}
    (workloads,) = make_workloads(CONFIG, Comparison("models", contenders, "lstm"))
    lstm, trees = (workloads[name].split.sequences for name in contenders)
    assert np.array_equal(lstm.offsets, trees.offsets) and np.array_equal(lstm.fields["token"], trees.fields["token"])
    assert lstm.fields.keys() == {"token"} and len(trees.fields) == 2
    assert all(map(np.array_equal, workloads["lstm"].batches, workloads["tree_lstm"].batches))


def test_every_model_has_figures_of_training_and_prediction(contenders):
    shown = []
    result = compare(contenders, shown.append)
    (workload,) = result.workloads
    assert shown == [workload] and workload.errors == {}
    figures = workload.figures
    assert list(figures) == ["lstm", "rnn"]
    for values in figures.values():
        assert values.training.tokens_per_s > 0 and values.prediction.tokens_per_s > 0
        assert values.training.memory_mb == 100
    assert figures["lstm"].training.time_ratio == figures["lstm"].prediction.time_ratio == 1
    assert figures["rnn"].training.time_ratio != 1 and figures["rnn"].prediction.time_ratio != 1
    # Embedding of 1000 tokens, one direction of the LSTM after the other, and two classes.
    assert figures["lstm"].weights == 1000 * 4 + 2 * 4 * 8 * (4 + 8 + 2) + weights_of_head(16, classes=2)
    plain = result.to_dict()
    assert list(plain) == ["machine", "models", "workloads"] and list(plain["models"]) == ["lstm", "rnn"]
    uniform = plain["workloads"]["uniform"]
    assert list(uniform) == ["mean_length", "longest", "updates", "batch_size", "models"]
    assert list(uniform["models"]["rnn"]) == ["weights", "training", "prediction"]
    assert uniform["models"]["rnn"]["prediction"].keys() == {"tokens_per_s", "time_ratio"}
    assert uniform["models"]["rnn"]["training"]["step_memory_mb"] == 10


def weights_of_head(size, classes):
    """A normalized pooled state and the output layer."""
    return 2 * size + (size + 1) * classes


def test_a_prediction_round_reads_every_sequence_of_the_batches(contenders):
    (workloads,) = make_workloads(CONFIG, Comparison("models", contenders, "lstm"))
    predictor = Predictor(ModeTrainer(contenders["lstm"], workloads["lstm"]))
    read = []
    whole = predictor.read

    class Recorded:
        file, session = whole.file, whole.session

        def __call__(self, fields, lengths):
            read.extend(lengths)
            return whole(fields, lengths)

    predictor.read = Recorded()
    assert predictor.seconds() > 0 and len(read) == 24
    assert workloads["lstm"].tokens == sum(read) == workloads["lstm"].size.mean_length * 24


def test_a_model_that_cannot_run_is_reported_and_the_others_have_figures(contenders, broken):
    (workload,) = compare({**contenders, "broken": broken}).workloads
    assert list(workload.figures) == ["lstm", "rnn"]
    assert "median" in workload.errors["broken"]
    assert workload.to_dict()["models"]["broken"].keys() == {"error"}


def test_a_model_that_cannot_be_exported_is_reported(contenders, monkeypatch):
    export = timing.export_onnx

    def export_all_but_one(model, *arguments):
        if model.encoder.cell == "rnn":
            raise InputError("model: cannot be exported")
        export(model, *arguments)

    monkeypatch.setattr(timing, "export_onnx", export_all_but_one)
    (workload,) = compare(contenders).workloads
    assert list(workload.figures) == ["lstm"]
    assert workload.errors == {"rnn": "model: cannot be exported"}


def test_without_the_reference_there_are_no_ratios(contenders, broken):
    figures = compare({"lstm": broken, "rnn": contenders["rnn"]}).workloads[0].figures["rnn"]
    assert figures.prediction.time_ratio is None and "time_ratio" not in figures.training.to_dict()


def test_an_error_of_all_models_ends_the_comparison(broken):
    with pytest.raises(InputError, match=r"models: none can run; lstm: .*median"):
        compare({"lstm": broken})
