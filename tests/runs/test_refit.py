"""refit=true: the exported model is trained on train and validation, and validation is about the model before."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.noisy_rows import noisy_rows

import seqclf
from seqclf import InputError
from seqclf.data.storage.joined import join_splits
from seqclf.training.module import load_task
from seqclf.training.resume import newest_checkpoint

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=8", "model.embedding_size=8"]
SETTINGS += ["optimizer.lr=1e-2", "data.split.validation=0.3", "trainer.max_epochs=3", "baseline=false"]
SETTINGS += ["batching.max_sequences=16", "data.id=id", "model.heads=[recurrent,linear]"]
GUARANTEE = ["decision.min_recall=0.5", "decision.holdout=0.5"]


def train(folder, *overrides, name="run", test=True, count=240):
    settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", *overrides]
    judged = {"test": noisy_rows(100, 1)} if test else {}
    return seqclf.fit(noisy_rows(count, 0), label="label", **judged, overrides=settings, folder=folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("refit")


@pytest.fixture(scope="module")
def joined_ids():
    """Ids of the rows that the last refit was trained on."""
    return []


@pytest.fixture(scope="module")
def runs(folder, joined_ids):
    """Runs without a refit, and with one, by decision."""
    import seqclf.runs.refit as refit

    def join(splits, target):
        joined = join_splits(splits, target)
        joined_ids[:] = joined.ids.to_pylist()
        return joined

    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refit, "join_splits", join)
        for name, decision in (("argmax", []), ("guarantee", GUARANTEE)):
            made[name, False] = train(folder, "export=false", *decision, name=f"{name}-without")
            exported = f"export={str(name == 'guarantee').lower()}"
            made[name, True] = train(folder, "refit=true", exported, *decision, name=name)
    return made


def test_joined_splits_hold_the_rows_of_each_in_order(folder, runs):
    from seqclf.data.storage.dataset import open_dataset

    stored = next(path.parent for path in (folder / "cache").glob("*/dataset.json"))
    splits = open_dataset(stored, None, True).splits
    joined = join_splits([splits["validation"], splits["train"]], folder / "joined")
    row = 0
    for split in (splits["validation"], splits["train"]):
        for number in range(len(split.labels)):
            start, stop = joined.sequences.offsets[row : row + 2]
            first, last = split.sequences.offsets[number : number + 2]
            for name, tokens in split.sequences.fields.items():
                assert np.array_equal(joined.sequences.fields[name][start:stop], tokens[first:last])
            assert joined.labels[row] == split.labels[number] and joined.ids[row] == split.ids[number]
            row += 1
    assert row == len(joined.labels) == len(joined.sequences)


def test_the_training_rows_are_those_of_train_and_validation_but_for_held_out_rows(runs, joined_ids):
    run = runs["guarantee", True]
    predictions = run.predictions.to_pylist()
    of_split = {
        name: {row["id"] for row in predictions if row["split"] == name} for name in ("validation", "threshold")
    }
    everything = set(noisy_rows(240, 0)["id"].to_pylist())
    assert of_split["threshold"] and of_split["validation"] < set(joined_ids)
    assert set(joined_ids) == everything - of_split["threshold"] and len(joined_ids) == len(set(joined_ids))
    assert run.metrics["refit"]["rows"] == len(joined_ids) == 240 - run.metrics["holdout"]["rows"]
    assert runs["argmax", True].metrics["refit"]["rows"] == 240


@pytest.mark.parametrize("name", ["argmax", "guarantee"])
def test_what_validation_says_is_of_the_model_before(runs, name):
    without, refitted = runs[name, False].metrics, runs[name, True].metrics
    for split in ("validation", "train"):
        assert refitted[split] == without[split]
        calibrated = [run["calibration"]["ece"][split] for run in (refitted, without)]
        if name == "argmax":  # without a refit, cross-fitted logits set the temperature
            calibrated = [errors["before"] for errors in calibrated]
        assert calibrated[0] == calibrated[1]
    # Held-out rows set the threshold and the temperature of the exported model, and others those of the one before.
    assert refitted["calibration"]["temperature"] != without["calibration"]["temperature"]
    assert (refitted["decision"] == without["decision"]) == (name == "argmax")
    assert refitted["test"]["loss"] != without["test"]["loss"]


def test_best_checkpoint_is_the_exported_model(runs, tmp_path):
    from seqclf.runs.export import write_bundle

    run = runs["guarantee", True]
    task = load_task(run.folder / "checkpoints/best.ckpt")
    write_bundle(task, tmp_path / "bundle", json.loads((run.folder / "metrics.json").read_text()))
    for file in ("model.onnx", "MODEL_CARD.md"):
        assert (tmp_path / "bundle" / file).read_bytes() == (run.folder / "bundle" / file).read_bytes()
    parity = json.loads((run.folder / "bundle/parity.json").read_text())
    assert parity["passed"] and parity["max_error"] < 1e-4
    assert task.trained_steps == run.metrics["step"]
    description = task.hparams["dataset"]
    assert sum(description["class_counts"]) == run.metrics["refit"]["rows"] > description["rows"]["train"]


def test_the_guarantee_is_about_the_scores_of_the_exported_model(runs):
    """Held-out rows trained neither model. The bundle gives their scores, and these set its threshold."""
    run = runs["guarantee", True]
    scored = [row for row in run.predictions.to_pylist() if row["split"] == "threshold"]
    table = noisy_rows(240, 0).to_pylist()
    codes = {row["id"]: row["code"] for row in table}
    found = run.classifier.predict(pa.table({"code": [codes[row["id"]] for row in scored]})).to_pylist()
    for ours, theirs in zip(found, scored, strict=True):
        assert ours["probability_yes"] == pytest.approx(theirs["probability_yes"], abs=1e-5)
    assert run.metrics["decision"]["targets"][0]["backed"]
    found_of_yes = [row["prediction"] == "yes" for row in scored if row["label"] == "yes"]
    assert run.metrics["decision"]["targets"][0]["rows"] == len(found_of_yes) and np.mean(found_of_yes) >= 0.5


def test_a_finished_run_is_refitted_again_from_the_model_before(runs, folder):
    run = runs["argmax", True]
    checkpoints = run.folder / "checkpoints"
    assert newest_checkpoint(checkpoints).name == "last.ckpt"
    before = {path.name: path.read_bytes() for path in checkpoints.glob("*.ckpt")}
    assert set(before) == {"best.ckpt", "last.ckpt", "before_refit.ckpt"}
    for name in ("elsewhere", "argmax"):
        again = train(folder, "refit=true", "export=false", f"checkpoint={checkpoints / 'last.ckpt'}", name=name)
        for key in ("validation", "test", "calibration", "step"):
            assert again.metrics[key] == run.metrics[key], (name, key)
        weights = load_task(again.folder / "checkpoints/best.ckpt").state_dict()
        first = torch.load(checkpoints / "best.ckpt", weights_only=True)["state_dict"]
        assert all(torch.equal(weights[key], first[key]) for key in first)
        assert {path.name for path in (again.folder / "checkpoints").glob("*.ckpt")} == set(before)
    without = train(folder, "export=false", f"checkpoint={checkpoints / 'last.ckpt'}", name="without-again")
    assert without.metrics["test"] == runs["argmax", False].metrics["test"]
    assert not (without.folder / "checkpoints/before_refit.ckpt").exists()
    with pytest.raises(InputError, match=r"was trained on validation too .*last\.ckpt"):
        train(folder, f"checkpoint={checkpoints / 'best.ckpt'}", name="rejected")


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ([], "so no rows would judge the model; give data.test or data.split.test"),
        (["trainer.devices=2", "trainer.strategy=ddp", "data.split.test=0.2"], "one process; set trainer.devices=1"),
        (["structure=[{epoch: 2, hidden_size: 12}]", "data.split.test=0.2"], "no schedule of a changing network"),
        (["trainer.max_time=00:00:01:00", "data.split.test=0.2"], "set trainer.max_epochs"),
    ],
)
def test_what_cannot_be_refitted_is_rejected_before_training(tmp_path, overrides, problem):
    with pytest.raises(InputError, match=r"^refit=true: ") as refused:
        train(tmp_path, "refit=true", *overrides, test=False, count=60)
    assert problem in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "run/checkpoints").exists() and not (tmp_path / "run/config.yaml").exists()
