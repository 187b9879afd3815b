"""A run that ended inside of a step goes on by the same command, and repeats no step that was finished."""

import importlib
import json
import os
import shutil
from contextlib import nullcontext

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seqclf
from seqclf import InputError
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.runs import prepare
from seqclf.runs import steps as steps_module
from seqclf.runs.pipeline import TABLE, code_hashes, run_steps
from seqclf.runs.prepare import read_config, rows_hash, user_recipe
from seqclf.runs.steps import export, judge, score
from seqclf.runs.training_run import Training
from seqclf.settings.train_settings import TrainConfig
from seqclf.system import atomic_files

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=8", "model.embedding_size=8"]
SETTINGS += ["data.split.validation=0.3", "trainer.max_epochs=2", "data.id=id", "checkpoint=auto"]
SETTINGS += ["model=lstm"]  # which is exported faster than several heads
GUARANTEE = ("decision.min_recall=0.5", "decision.calibrate=true")
UNSHOWN = ("export=false", "baseline=false")  # makes a run quick
CALLS = ["score_models", "judge_scores", "write_bundle", "write_run_page"]  # of the steps after the training


EACH_WRITE = int(os.environ.get("SEQCLF_TEST_EACH_WRITE", "5"))  # 1: a kill at every write, 2 minutes


class KilledError(BaseException):
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

    for number, call in enumerate([*CALLS, None]):
        with monkeypatch.context() as patch:
            if number > 0:
                patch.setattr(Training, "run", kill)  # the training is finished
            for finished in CALLS[: max(0, number - 1)]:
                patch.setattr(steps_module, finished, kill)
            if call is not None:
                patch.setattr(steps_module, call, kill)
            with nullcontext() if call is None else pytest.raises(KilledError):
                run = train(tmp_path / "run", *GUARANTEE, cache=unbroken.cache)
    assert results(run.folder) == results(unbroken(*GUARANTEE))
    assert (run.folder / "report.html").is_file() and (run.folder / "bundle/manifest.json").is_file()


def test_other_settings_and_damaged_files_are_not_taken_for_finished_steps(tmp_path, monkeypatch, unbroken):
    run, asked = tmp_path / "run", []
    train(run, "export=false", cache=unbroken.cache)
    original = steps_module.score_models

    def score(*arguments, **options):
        asked.append("score")
        return original(*arguments, **options)

    monkeypatch.setattr(steps_module, "score_models", score)
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


def test_a_run_keeps_the_threads_that_idle_cores_gave_it(tmp_path, monkeypatch, capsys, unbroken):
    def threads(folder, *overrides):
        train(folder, *UNSHOWN, *overrides, cache=unbroken.cache)
        return read_config(folder).runtime.threads

    first, other, idle = tmp_path / "first", tmp_path / "other", iter([2, 1])  # idle cores are counted twice
    monkeypatch.setattr(prepare, "idle_threads", lambda *_: next(idle))
    assert threads(tmp_path / "own") is None  # OMP_NUM_THREADS=1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert threads(first) == 2 and "threads: 2\n" in capsys.readouterr().err
    assert threads(first) == 2 and "fit: finished before" in capsys.readouterr().err
    assert threads(other, "trainer.max_epochs=3", f"checkpoint={first / 'checkpoints/last.ckpt'}") == 2
    assert threads(other, "checkpoint=null", "overwrite=true", "model.hidden_size=4") == 1
    assert threads(other, "checkpoint=null", "overwrite=true", "runtime.threads=2") == 2
    assert user_recipe(read_config(first))["runtime"]["threads"] is None


def test_a_longer_training_goes_on_and_its_results_are_new(tmp_path, unbroken):
    run = tmp_path / "run"
    train(run, *UNSHOWN, cache=unbroken.cache)
    before = results(run)[0]
    longer = train(run, *UNSHOWN, "trainer.max_epochs=3", cache=unbroken.cache)
    assert longer.metrics["step"] > before["step"] and longer.metrics["train"]["loss"] != before["train"]["loss"]


def test_each_step_runs_alone_from_the_files_of_the_ones_before(tmp_path, unbroken):
    run, copy = unbroken(*GUARANTEE), tmp_path / "run"
    shutil.copytree(run, copy)
    for name in ("scores", "bundle"):
        shutil.rmtree(copy / name)
    for name in ("steps.json", "metrics.json", "predictions.parquet"):
        (copy / name).unlink()
    run_steps(copy, read_config(copy), [score, judge, export])
    for path in (run / "scores").iterdir():
        assert pq.read_table(path).equals(pq.read_table(copy / "scores" / path.name))
    assert results(copy) == results(run)
    first, second = (json.loads((folder / "bundle/manifest.json").read_text()) for folder in (run, copy))
    assert first == second


def test_the_table_of_steps_has_each_key_of_the_config_once():
    keys = [key for inputs in TABLE.values() for key in inputs.keys]
    assert sorted(keys) == sorted(TrainConfig.model_fields)


def test_a_setting_repeats_no_step_that_does_not_read_it(tmp_path, monkeypatch, unbroken):
    run = tmp_path / "run"
    train(run, *UNSHOWN, "decision.min_recall=0.5", cache=unbroken.cache)
    monkeypatch.setattr(Training, "run", None)
    again = train(run, "export=false", "decision.min_recall=0.7", cache=unbroken.cache)
    assert again.metrics["decision"]["targets"][0]["target"] == 0.7 and "baseline" in again.metrics


def test_no_file_is_of_another_result_than_those_beside_it(tmp_path, unbroken):
    run = tmp_path / "run"
    train(run, *GUARANTEE, cache=unbroken.cache)
    (run / "threshold.parquet").unlink()
    train(run, *GUARANTEE, cache=unbroken.cache)
    assert (run / "threshold.parquet").is_file() and (run / "bundle").is_dir()
    again = train(run, *UNSHOWN, "decision.min_recall=0.9", cache=unbroken.cache)
    assert again.bundle is None and again.metrics["decision"]["targets"][0]["target"] == 0.9


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        (["checkpoint=null", "overwrite=true", "start={run}/model.ckpt"], "start=.*in the run folder that is replaced"),
        (["trainer.fast_dev_run=true"], "trainer.fast_dev_run: .*holds a run"),
        (["checkpoint=null"], "holds a run already"),
    ],
)
def test_settings_that_would_lose_a_finished_run_leave_it_as_it_is(tmp_path, unbroken, overrides, problem):
    run = tmp_path / "run"
    shutil.copytree(unbroken(*GUARANTEE), run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with pytest.raises(InputError, match=problem):
        train(run, *GUARANTEE, *(text.format(run=run) for text in overrides), cache=unbroken.cache)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path != run} == before


def split_of(ids, groups=None):
    sequences = Ragged(np.array([0, 1, 2]), {"x": np.array([1, 2])})
    return Split(sequences, np.array([0, 1]), pa.array(ids), np.array([1, 2]), groups=groups)


def test_a_change_in_the_code_of_a_network_of_ones_own_is_another_training(tmp_path, monkeypatch):
    (tmp_path / "ownnetworks.py").write_text("class Net: pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("ownnetworks")
    settings = {"model": {"_target_": "ownnetworks.Net"}}
    before = code_hashes(settings)
    (tmp_path / "ownnetworks.py").write_text("class Net: changed = True\n")
    assert before.keys() == {"ownnetworks"} and code_hashes(settings) != before


def test_other_ids_and_groups_are_other_rows():
    hashes = {rows_hash(split_of(*of)) for of in [(["a", "b"],), (["a", "c"],), (["a", "b"], np.array([1, 1]))]}
    assert len(hashes) == 3


@pytest.mark.slow
def test_a_run_killed_at_any_write_of_a_file_has_the_results_of_an_unbroken_one(tmp_path, monkeypatch, unbroken):
    expected, flush, left = results(unbroken(*GUARANTEE)), atomic_files._flush, [0]

    def kill(path):  # before a file appears under its name
        left[0] -= 1
        if left[0] == 0:
            raise KilledError
        flush(path)

    monkeypatch.setattr(atomic_files, "_flush", kill)
    train(tmp_path / "counted", *GUARANTEE, cache=unbroken.cache)
    writes = -left[0]
    for number in range(1, writes + 1, EACH_WRITE):
        run, left[0] = tmp_path / str(number), number
        with pytest.raises(KilledError):
            train(run, *GUARANTEE, cache=unbroken.cache)
        train(run, *GUARANTEE, cache=unbroken.cache)
        assert results(run) == expected, number
        assert (run / "bundle/manifest.json").is_file() and not list(run.rglob("*.part")), number
    assert writes > 15
