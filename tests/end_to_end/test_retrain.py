"""`seqclf retrain`: the recipe of a bundle on other data, from its weights or new ones, and a verdict on both."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import seqclf
from seqclf.bundle.manifest import write_manifest
from seqclf.bundle.runtime import Classifier
from seqclf.runs.bundle_export import write_bundle
from seqclf.training.task import load_task

pytestmark = pytest.mark.slow
SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=16", "model.heads=[recurrent,linear]"]
SETTINGS += ["trainer.max_epochs=4", "optimizer.lr=1e-2", "baseline=false", "data.id=id", "decision.min_recall=0.5"]


def events(count, seed, shops="abcd", noise=0.0):
    """Rows whose class is decided by their number of a's, with static column and a level that shifts with `seed`."""
    generator = np.random.default_rng(seed)
    tokens = [generator.choice(list(shops), generator.integers(4, 10)).tolist() for _ in range(count)]
    labels = ["yes" if 4 * row.count("a") > len(row) else "no" for row in tokens]
    flip = generator.random(count) < noise
    labels = [{"yes": "no", "no": "yes"}[label] if one else label for label, one in zip(labels, flip, strict=True)]
    level = [generator.normal(seed, 1, len(row)).tolist() for row in tokens]
    ids = [f"{seed}-{number}" for number in range(count)]
    age = generator.uniform(20, 80, count)
    return pa.table({"id": ids, "shop": tokens, "level": level, "label": labels, "age": age})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrain")
    for name, table in {"new": events(400, 1), "test": events(300, 2)}.items():
        pq.write_table(table, folder / f"{name}.parquet")
    overrides = [*SETTINGS, f"data.cache_dir={folder / 'cache'}"]
    seqclf.fit(events(300, 0, noise=0.4), label="label", overrides=overrides, folder=folder / "old")
    seqclf.fit(events(400, 1), label="label", overrides=overrides, folder=folder / "good")
    return folder


@pytest.fixture
def retrain(empty_shell, folder):
    return lambda *arguments, **options: completed(empty_shell, folder, *arguments, **options)


def completed(shell, folder, name, *overrides, old="old"):
    """Return the completed command."""
    base = [f"bundle={folder / old / 'bundle'}", f"data.train={folder / 'new.parquet'}"]
    given = [
        *base,
        f"data.cache_dir={folder / 'c'}",
        f"data.test={folder / 'test.parquet'}",
        f"hydra.run.dir={folder / name}",
        *overrides,
    ]
    return shell("retrain", *given)


@pytest.fixture(scope="module")
def promoted(empty_shell, folder):
    return completed(empty_shell, folder, "promoted")


def test_a_better_model_is_promoted(promoted):
    result = promoted.result
    assert promoted.exit_code == 0 and result["promote"]
    assert result["rows"] == 300 and result["difference"]["low"] > 0


def test_the_recipe_and_the_kinds_are_those_of_the_bundle(folder, promoted):
    old, new = (Classifier(folder / name / "bundle", device="cpu") for name in ("old", "promoted"))
    kinds = [[(field.name, field.kind, field.columns) for field in one.schema.fields] for one in (old, new)]
    assert kinds[0] == kinds[1]
    assert [field.name for field in new.schema.fields if field.static] == ["age"]
    recipes = [bundle.manifest["recipe"] for bundle in (old, new)]
    assert recipes[0] == recipes[1] and recipes[0]["decision"]["min_recall"] == 0.5
    assert str(folder) not in json.dumps(recipes[0])


def test_a_positive_label_is_guessed_once(folder, retrain):
    label = json.loads((folder / "old/bundle/manifest.json").read_text())["positive"]
    table = pq.read_table(folder / "new.parquet")
    is_rare = np.array(table["label"]) == label
    kept = np.concatenate([np.flatnonzero(is_rare), np.flatnonzero(~is_rare)[: is_rare.sum() // 2]])
    pq.write_table(table.take(kept), folder / "mostly.parquet")
    retrain("mostly", f"data.train={folder / 'mostly.parquet'}", "trainer.max_epochs=1")
    anew = json.loads((folder / "mostly/bundle/manifest.json").read_text())
    assert anew["positive"] == anew["recipe"]["data"]["positive"] == label


def test_the_recipe_holds_out_what_its_settings_need(folder, retrain):
    assert retrain("by-epoch", "+settings.monitor=loss", "trainer.max_epochs=1").exit_code in (0, 1)
    metrics = json.loads((folder / "by-epoch/metrics.json").read_text())
    assert abs(metrics["holdout"]["rows"] - metrics["validation"]["rows"]) <= 1
    folds = ["data.test=null", "data.split.by=fold", "data.split.fold=all", "trainer.max_epochs=1"]
    assert "has no use" not in retrain("by-folds", *folds).stderr and (folder / "by-folds/metrics.json").is_file()


def test_a_model_that_is_not_better_is_not_promoted(retrain):
    command = retrain("same", "settings={model: {heads: [recurrent]}, optimizer: {lr: 1e-6}}", old="good")
    result = json.loads(command.stdout)
    assert command.exit_code == 1 and not result["promote"] and "old model" in result["reasons"][-1]


def test_a_training_from_weights_keeps_vocabularies_and_scales(folder, retrain):
    from_weights = [f"run={folder / 'good'}", "settings={optimizer: {lr: 1e-9}}", "trainer.max_epochs=1"]
    assert retrain("warm", *from_weights, old="good").exit_code == 1
    first, then = (load_task(folder / name / "model.ckpt") for name in ("good", "warm"))
    assert then.hparams["dataset"]["encoders"] == first.hparams["dataset"]["encoders"]
    weights = dict(first.model.named_parameters())
    for name, weight in then.model.named_parameters():
        torch.testing.assert_close(weight, weights[name], atol=1e-5, rtol=0)
    levels = [(folder / name / "bundle/encoders/level.json").read_bytes() for name in ("good", "warm")]
    assert levels[0] == levels[1]


def test_weights_of_another_model_are_not_taken(folder, retrain):
    lines = retrain("other", f"run={folder / 'good'}", "settings={model: {hidden_size: 8}}", old="good").stderr
    assert "starts from new weights" in lines and "settings of the model" in lines


def test_a_bundle_without_what_it_needs_is_named(folder, tmp_path, empty_shell):
    write_bundle(load_task(folder / "good/model.ckpt"), tmp_path / "bundle", {})
    command = empty_shell("retrain", f"bundle={tmp_path / 'bundle'}", f"data.train={folder / 'new.parquet'}")
    assert command.exit_code == 2 and "recipe" in command.stderr
    with pytest.raises(seqclf.InputError, match="no encoder of the field"):
        seqclf.load_data(events(40, 1), label="label", overrides=[f"data.encoders={tmp_path}", "data.id=id"])


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (["model", "_target_"], "evil.Net", "recipe.model._target_=evil.Net: would run code of the package evil"),
        (["optimizer", "_target_"], "os.system", "trust=os"),
        (["data", "generator"], {"_target_": "evil.make"}, "trust=evil"),
        (["trainer", "callbacks"], [{"_target_": "evil.Hook"}], "trust=evil"),
        (["data"], [], "recipe.data"),
        (["head_patience"], None, "without head_patience"),
    ],
)
def test_a_recipe_that_cannot_be_trusted_or_used_is_named(folder, tmp_path, retrain, path, value, problem):
    shutil.copytree(folder / "good/bundle", tmp_path / "bundle")
    manifest = json.loads((tmp_path / "bundle/manifest.json").read_text())
    block = manifest["recipe"]
    for key in path[:-1]:
        block = block[key]
    block[path[-1]] = value
    if value is None:
        del block[path[-1]]
    del manifest["digest"]
    write_manifest(tmp_path / "bundle", manifest)
    command = retrain("received", f"bundle={tmp_path / 'bundle'}")
    assert command.exit_code == 2 and problem in command.stderr
    assert not (folder / "received").exists()


def test_a_folder_with_a_run_is_left_as_it_is(folder, retrain):
    command = retrain("good")
    assert command.exit_code == 2 and "name another folder" in command.stderr and "overwrite" not in command.stderr


def test_rows_that_share_ids_are_not_compared(folder, tmp_path, retrain):
    table = events(200, 1)
    pq.write_table(table.set_column(0, "id", pa.array(["same"] * 200)), tmp_path / "same.parquet")
    given = [f"data.train={tmp_path / 'same.parquet'}", "data.test=null", "trainer.max_epochs=1"]
    assert "ids repeat" in retrain("repeated", *given).stderr
