"""A run that ended inside of a step goes on by the same command, and repeats no step that was finished."""

import importlib
import json
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import seqclf
from seqclf import SequenceDataModule, load_task
from seqclf.config.options import parse_options
from seqclf.data.options import DataOptions
from seqclf.data.prepare import prepare
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.evaluation.decisions.holdout import hold_out
from seqclf.evaluation.judge import judge
from seqclf.evaluation.options import DecisionOptions
from seqclf.report.run_report import read_run
from seqclf.runs import fit as fit_module
from seqclf.runs import train as train_module
from seqclf.runs.export import write_bundle
from seqclf.runs.finished_steps import fit_inputs
from seqclf.runs.score import score_contenders
from seqclf.runs.train import training_memory

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=8", "model.embedding_size=8"]
SETTINGS += ["data.split.validation=0.3", "trainer.max_epochs=2", "data.id=id", "checkpoint=auto"]
SETTINGS += ["model=lstm"]  # which is exported faster than several heads
GUARANTEE = ("decision.min_recall=0.5", "decision.calibrate=true")
UNSHOWN = ("export=false", "baseline=false")  # makes a run quick
STEPS = ["score_contenders", "judge_run", "write_bundle", "report"]


class KilledError(Exception):
    pass


def rows(count, seed):
    generator = np.random.default_rng(seed)
    tokens = [generator.choice(list("aabc"), generator.integers(4, 12)).tolist() for _ in range(count)]
    labels = ["yes" if row.count("a") > len(row) / 2 else "no" for row in tokens]
    return pa.table({"id": [f"{seed}-{row}" for row in range(count)], "code": tokens, "label": labels})


def train(folder, *overrides, cache):
    settings = [*SETTINGS, *overrides, f"data.cache_dir={cache}"]
    return seqclf.fit(rows(240, 0), label="label", test=rows(100, 1), overrides=settings, folder=folder)


def results(folder):
    """Metrics and predictions of a run, without what time decides."""
    metrics = json.loads((folder / "metrics.json").read_text())
    metrics.pop("next")  # names the folder
    return metrics, pq.read_table(folder / "predictions.parquet").to_pylist()


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """Folders of runs that no kill broke, by their overrides."""
    folder, made = tmp_path_factory.mktemp("unbroken"), {}

    def find(*overrides):
        if overrides not in made:
            made[overrides] = train(folder / str(len(made)), *overrides, cache=folder / "cache").folder
        return made[overrides]

    find.cache = folder / "cache"
    return find


def test_a_run_that_is_killed_in_each_of_its_steps_has_the_results_of_an_unbroken_one(tmp_path, monkeypatch, unbroken):
    def kill(*arguments, **options):
        raise KilledError

    for number, step in enumerate([*STEPS, None]):
        with monkeypatch.context() as patch:
            if number > 0:
                patch.setattr(fit_module.Training, "run", kill)  # the training is finished
            if number > 1:
                patch.setattr(train_module, "_score", kill)
            if number > 3:
                patch.setattr(train_module, "write_bundle", kill)
            if step is not None:
                patch.setattr(train_module, step, kill)
            with nullcontext() if step is None else pytest.raises(KilledError):
                run = train(tmp_path / "run", *GUARANTEE, cache=unbroken.cache)
    assert results(run.folder) == results(unbroken(*GUARANTEE))
    assert (run.folder / "report.html").is_file() and (run.folder / "bundle/manifest.json").is_file()


def test_other_settings_and_damaged_files_are_not_taken_for_finished_steps(tmp_path, monkeypatch, unbroken):
    run, asked = tmp_path / "run", []
    train(run, "export=false", cache=unbroken.cache)
    original = train_module._score

    def score(*arguments, **options):
        asked.append("score")
        return original(*arguments, **options)

    monkeypatch.setattr(train_module, "_score", score)
    train(run, "export=false", cache=unbroken.cache)
    assert asked == []
    train(run, *UNSHOWN, cache=unbroken.cache)
    assert asked == ["score"] and results(run)[0]["no_baseline"] == "baseline=false"
    (network,) = (run / "scores").glob("*-network.parquet")
    network.write_bytes(network.read_bytes()[:-9])
    train(run, *UNSHOWN, cache=unbroken.cache)
    assert asked == ["score", "score"]
    (run / "steps.json").write_text("[")
    train(run, *UNSHOWN, cache=unbroken.cache)
    assert asked == ["score", "score", "score"]


def test_a_longer_training_goes_on_and_its_results_are_new(tmp_path, unbroken):
    run = tmp_path / "run"
    train(run, *UNSHOWN, cache=unbroken.cache)
    before = results(run)[0]
    longer = train(run, *UNSHOWN, "trainer.max_epochs=3", cache=unbroken.cache)
    assert longer.metrics["step"] > before["step"] and longer.metrics["train"]["loss"] != before["train"]["loss"]


def test_each_step_runs_alone_from_the_files_of_the_one_before(tmp_path, unbroken):
    run = unbroken(*GUARANTEE)
    settings = yaml.safe_load((run / "config.yaml").read_text())
    decision = parse_options(DecisionOptions, settings["decision"], "decision")
    dataset = hold_out(prepare(DataOptions.build(**settings["data"])), decision)
    task = load_task(run / "model.ckpt")
    batches = SequenceDataModule(dataset.all_splits, **settings["batching"], seed=settings["seed"])
    scored = score_contenders(task, batches, dataset, baseline=True)
    files = read_run(run)
    assert [scores.name for scores in scored] == [scores.name for scores in files.contenders]
    for one, other in zip(scored, files.contenders, strict=True):
        for split, outputs in one.splits.items():
            np.testing.assert_array_equal(outputs.logits, other.splits[split].logits)
            assert outputs.ids.equals(other.splits[split].ids)
    judged = judge(files.contenders, files.facts, decision)
    assert judged.result.to_dict() == json.loads((run / "metrics.json").read_text())
    first = json.loads((run / "bundle/manifest.json").read_text())
    memory = training_memory(dataset, judged)
    assert write_bundle(task, tmp_path / "bundle", judged.result, first["recipe"], memory).passed
    second = json.loads((tmp_path / "bundle/manifest.json").read_text())
    assert first == second


def split_of(ids, groups=None):
    sequences = Ragged(np.array([0, 1, 2]), {"x": np.array([1, 2])})
    return Split(sequences, np.array([0, 1]), pa.array(ids), np.array([1, 2]), groups=groups)


def test_a_change_in_the_code_of_a_network_of_ones_own_is_another_training(tmp_path, monkeypatch):
    (tmp_path / "ownnetworks.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("ownnetworks")
    dataset = SimpleNamespace(all_splits={"train": split_of(["a", "b"])}, digest="d1gest")

    def inputs(**changes):
        settings = {"model": {"_target_": "ownnetworks.Net"}, "seed": 0, "export": True, **changes}
        return fit_inputs(SimpleNamespace(model_dump=lambda: settings), dataset)

    before = inputs()
    assert inputs(export=False) == before != inputs(seed=1)
    for other in (split_of(["a", "c"]), split_of(["a", "b"], np.array([1, 1]))):
        dataset.all_splits["train"] = other
        assert inputs() != before
    dataset.all_splits["train"] = split_of(["a", "b"])
    (tmp_path / "ownnetworks.py").write_text("class Net: changed = True\n")
    assert inputs() != before
