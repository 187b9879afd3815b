"""Models are compared on the same sequences, in training and in prediction."""

import shutil

import numpy as np
import pytest

from seqclf import load_config
from seqclf.bench import model_comparison
from seqclf.bench.benchmark import make_workloads
from seqclf.bench.machine import PeakMemory
from seqclf.bench.mode_trainer import BenchmarkSettings
from seqclf.bench.model_comparison import Predictor, compare_models
from seqclf.bench.options import BenchConfig
from seqclf.bench.settings import model_without_noise
from seqclf.errors import InputError

CONFIG = BenchConfig.model_construct(lengths=["uniform"], sequences=64, batch_size=8, updates=3, seed=0)
NAMES = ("lstm", "rnn")


def settings_of(name):
    config = load_config([f"model={name}", "model.hidden_size=8", "model.embedding_size=4"])["model"]
    return BenchmarkSettings(model_without_noise(config), 3e-3, "cpu", "32-true", seed=0)


@pytest.fixture(scope="module")
def settings():
    return {name: settings_of(name) for name in NAMES}


@pytest.fixture(scope="module")
def workloads(settings):
    return list(make_workloads(CONFIG, {name: entry.model for name, entry in settings.items()}))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Exported models by cell: an export takes seconds."""
    folder, export = tmp_path_factory.mktemp("exported"), model_comparison.export_onnx

    def copy(model, fields, path):
        first = folder / f"{model.encoder.cell}.onnx"
        if not first.exists():
            export(model, fields, first)
        shutil.copy(first, path)

    return copy


@pytest.fixture(autouse=True)
def quick(monkeypatch, exported):
    """Each export once, and peak memory without processes, which take seconds to start."""
    monkeypatch.setattr(model_comparison, "export_onnx", exported)
    monkeypatch.setattr(model_comparison, "measure_peak", lambda workload, mode, settings, threads: PeakMemory(100, 10))


def test_trees_have_the_tokens_of_the_sequences():
    names = ("lstm", "tree_lstm")
    (workloads,) = make_workloads(CONFIG, {name: settings_of(name).model for name in names})
    lstm, trees = (workloads[name].split.sequences for name in names)
    assert np.array_equal(lstm.offsets, trees.offsets) and np.array_equal(lstm.fields["token"], trees.fields["token"])
    assert lstm.fields.keys() == {"token"} and len(trees.fields) == 2
    assert all(map(np.array_equal, workloads["lstm"].batches, workloads["tree_lstm"].batches))


def test_every_model_has_figures_of_training_and_prediction(settings, workloads):
    shown = []
    result = compare_models(settings, workloads, 2, lambda *arguments: shown.append(arguments))
    assert result.reference == "lstm" and shown == [(result.workloads[0], "lstm")]
    figures = result.workloads[0].models
    assert list(figures) == list(NAMES) and result.workloads[0].errors == {}
    for values in figures.values():
        assert values.training.tokens_per_s > 0 and values.prediction.tokens_per_s > 0
        assert values.training.memory_mb == 100 and len(values.training.round_seconds) == 2
    assert figures["lstm"].training.time_ratio == figures["lstm"].prediction.time_ratio == 1
    assert figures["rnn"].training.time_ratio != 1 and figures["rnn"].prediction.time_ratio != 1
    # Embedding of 1000 tokens, one direction of the LSTM after the other, and two classes.
    assert figures["lstm"].weights == 1000 * 4 + 2 * 4 * 8 * (4 + 8 + 2) + weights_of_head(16, classes=2)
    plain = result.to_dict()["workloads"]["uniform"]
    assert plain["models"]["rnn"]["prediction"].keys() == {"tokens_per_s", "time_ratio"}


def weights_of_head(size, classes):
    """A normalized pooled state and the output layer."""
    return 2 * size + (size + 1) * classes


def test_a_prediction_round_reads_every_sequence_of_the_batches(settings, workloads, tmp_path):
    trainer = model_comparison.ModeTrainer(model_comparison.MODES["dynamic"], workloads[0]["lstm"], settings["lstm"])
    predictor = Predictor(trainer, tmp_path / "model.onnx")
    read = []
    whole = predictor.read

    class Recorded:
        file, session = whole.file, whole.session

        def __call__(self, fields, lengths):
            read.append(len(lengths))
            return whole(fields, lengths)

    predictor.read = Recorded()
    assert predictor.seconds() > 0 and sum(read) == 24
    assert predictor.tokens == workloads[0]["lstm"].mean_length * 24


def test_a_model_that_cannot_run_is_reported_and_the_others_have_figures(settings, workloads):
    broken = settings["lstm"]._replace(model={**settings["lstm"].model, "pooling": "median"})
    result = compare_models(
        {**settings, "broken": broken}, [{**workloads[0], "broken": workloads[0]["lstm"]}], 1, lambda *_: None
    )
    assert list(result.workloads[0].models) == list(NAMES)
    assert "median" in result.workloads[0].errors["broken"]
    assert result.workloads[0].to_dict()["models"]["broken"].keys() == {"error"}


def test_a_model_that_cannot_be_exported_is_reported(settings, workloads, monkeypatch):
    export = model_comparison.export_onnx

    def export_all_but_one(model, *arguments):
        if model.encoder.cell == "rnn":
            raise InputError("model: cannot be exported")
        export(model, *arguments)

    monkeypatch.setattr(model_comparison, "export_onnx", export_all_but_one)
    result = compare_models(settings, workloads, 1, lambda *_: None)
    assert list(result.workloads[0].models) == ["lstm"]
    assert result.workloads[0].errors == {"rnn": "model: cannot be exported"}


def test_without_the_reference_there_are_no_ratios(settings, workloads):
    broken = settings["lstm"]._replace(model={**settings["lstm"].model, "pooling": "median"})
    result = compare_models({"lstm": broken, "rnn": settings["rnn"]}, workloads, 1, lambda *_: None)
    figures = result.workloads[0].models["rnn"]
    assert figures.prediction.time_ratio is None and "time_ratio" not in figures.training.to_dict()


def test_an_error_of_all_models_ends_the_comparison(settings, workloads):
    broken = settings["lstm"]._replace(model={**settings["lstm"].model, "pooling": "median"})
    with pytest.raises(InputError, match=r"models: none can run; lstm: .*median"):
        compare_models({"lstm": broken}, workloads, 1, lambda *_: None)
