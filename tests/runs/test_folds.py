"""data.split.fold=all: a model of each fold, judged together, and a bundle of all rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml

import seqclf
from seqclf import InputError
from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.judge import judge
from seqclf.evaluation.score_files import read_run_scores
from seqclf.runs import all_rows, prepare, training_run
from seqclf.runs.run_files import read_run
from seqclf.settings.base import parse_options
from seqclf.settings.decision_settings import DecisionOptions

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=8", "model.embedding_size=8", "baseline=false"]
SETTINGS += ["trainer.max_epochs=2", "batching.max_sequences=16", "data.id=id", "model.heads=[recurrent,linear]"]
FOLDS = ["data.split.by=fold", "data.split.folds=3", "data.split.fold=all"]
ROWS = 120


def table(rare=0):
    """Rows of two classes, in groups of three, and of a third class if it has `rare` rows."""
    generator = np.random.default_rng(0)
    tokens = [generator.choice(list("abc"), generator.integers(3, 9)).tolist() for _ in range(ROWS)]
    labels = ["yes" if row.count("a") * 3 > len(row) else "no" for row in tokens]
    labels[:rare] = ["rare"] * rare
    groups = [f"g{number // 3}" for number in range(ROWS)]
    return pa.table({"id": [f"r{n}" for n in range(ROWS)], "code": tokens, "label": labels, "g": groups})


def train(folder, *overrides, rare=0):
    settings = [*SETTINGS, f"data.cache_dir={folder / 'cache'}", *FOLDS, *overrides]
    return seqclf.fit(table(rare), label="label", overrides=settings, folder=folder / "run")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("folds")
    train(folder, "data.group=g")
    return folder


def test_each_row_is_scored_once_by_the_model_that_did_not_see_it(folder):
    joined = read_run_scores(folder / "run/scores")[-1].splits["test"]
    assert sorted(joined.ids.to_pylist()) == sorted(table()["id"].to_pylist())
    parts = [read_run_scores(folder / f"run/fold-{fold}/scores")[-1].splits["test"] for fold in range(3)]
    scales = [np.ptp(part.logits, axis=1).mean() for part in parts]
    expected = [part.logits * (scales[0] / scale) for part, scale in zip(parts, scales, strict=True)]
    assert joined.logits == pytest.approx(np.concatenate(expected), rel=1e-5, abs=1e-6)
    groups = [set(part.group_names.to_pylist()) for part in parts]
    assert not groups[0] & groups[1] | groups[1] & groups[2] | groups[0] & groups[2]


def test_the_folds_are_judged_together_by_groups(folder):
    metrics = json.loads((folder / "run/metrics.json").read_text())
    joined = read_run_scores(folder / "run/scores")[-1].splits["test"]
    assert metrics["test"]["accuracy"] == pytest.approx((joined.logits.argmax(1) == joined.labels).mean())
    assert metrics["test"]["groups"]["count"] == ROWS // 3
    predictions = pq.read_table(folder / "run/predictions.parquet")
    assert predictions.num_rows == ROWS and set(predictions["split"].to_pylist()) == {"test"}
    suspects = seqclf.Run(folder / "run").suspects
    assert int(suspects.schema.metadata[b"rows"]) == ROWS, "the rows that each fold left out"


def judged(shell, *arguments):
    completed = shell("evaluate", "decision.min_recall=0.5", *arguments)
    assert completed.exit_code == 0, completed.stderr
    return completed.result["decision"]["targets"][0], " ".join(completed.stderr.split())


@pytest.mark.parametrize("file", ["", "*-network.parquet"])
def test_scores_of_folds_are_estimates_in_the_run_and_in_its_file(folder, empty_shell, file):
    path = next((folder / "run/scores").glob(file)) if file else None
    source = f"scores={path}" if file else f"run={folder / 'run'}"
    target, text = judged(empty_shell, source, "decision.confidence=0.95", "positive=yes")
    assert (target["basis"], target["statement"], target["backed"]) == ("folds", "sure", False)
    assert "Estimated at the rank that is 95% sure" in text and "Use it: not yet" in text


def test_rows_of_the_folds_are_left_out_by_hand(folder, empty_shell):
    (folder / "ids.txt").write_text("r1\nr5\n")
    arguments = [f"run={folder / 'run'}", "positive=yes", f"decision.ignore={folder / 'ids.txt'}"]
    target, text = judged(empty_shell, *arguments, f"output={folder / 'judged'}")
    assert (target["basis"], target["backed"]) == ("by_hand", False)
    assert "2 rows left out by hand (split test): no statement holds" in text
    assert json.loads((folder / "judged/metrics.json").read_text())["test"]["rows"] == ROWS - 2
    (folder / "ids.txt").write_text("\n".join(table()["id"].to_pylist()))
    refused = empty_shell("evaluate", *arguments, "decision.min_recall=0.5")
    assert refused.exit_code == 2 and f"leaves no row of test out of {ROWS}" in refused.stderr


def test_a_row_in_the_validation_of_several_folds_counts_once(folder):
    ids = read_run_scores(folder / "run/scores")[-1].splits["validation"].ids.to_pylist()
    parts = [read_run_scores(folder / f"run/fold-{fold}/scores")[-1].splits["validation"].ids for fold in range(3)]
    assert len(ids) == len(set(ids)) < sum(map(len, parts))


def test_the_bundle_is_trained_on_all_rows_and_says_so(folder):
    facts = json.loads((folder / "run/data.json").read_text())
    assert any(f"all {ROWS} rows" in line for line in facts["warnings"])
    assert any("loss and calibration are of logits that were multiplied" in line for line in facts["warnings"])
    predicted = seqclf.Classifier(folder / "run/bundle", device="cpu").predict([["a", "b"], ["c"]])
    assert all(row["error"] is None for row in predicted)
    weights = seqclf.load_task(folder / "run/model.ckpt").state_dict()
    first = seqclf.load_task(folder / "run/fold-0/model.ckpt").state_dict()
    assert any(not weights[name].equal(first[name]) for name in weights)
    state = torch.load(folder / "run/model.ckpt", weights_only=True)
    assert sum(state["hyper_parameters"]["dataset"]["class_counts"]) == ROWS
    assert state["epoch"] == 2, "as many epochs as the training of the first fold"


def test_an_export_of_the_model_of_all_rows_has_the_decision_of_the_run(folder, empty_shell):
    exported = empty_shell("export", f"checkpoint={folder}/run/model.ckpt", f"bundle={folder}/again")
    one, other = (json.loads((folder / path / "manifest.json").read_text()) for path in ("run/bundle", "again"))
    assert one["decision"] == other["decision"] and one["metrics"] == other["metrics"] != {}, exported.stderr


def test_the_training_on_all_rows_starts_from_the_weights_that_are_given(folder, tmp_path):
    start, encoders = (folder / "run" / name for name in ("model.ckpt", "bundle/encoders"))
    given = [f"start={start}", f"data.encoders={encoders}", "trainer.max_epochs=1", "optimizer.lr=1e-9"]
    train(tmp_path, "data.group=g", *given)
    first, then = (seqclf.load_task(path / "run/model.ckpt").model for path in (folder, tmp_path))
    for one, other in zip(first.parameters(), then.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0)


def test_a_run_goes_on_with_the_folds_that_are_not_finished(folder):
    before = (folder / "run/metrics.json").read_text()
    trained = (folder / "run/fold-1/model.ckpt").stat().st_mtime_ns
    with pytest.raises(InputError, match="holds a run already"):
        train(folder, "data.group=g")
    train(folder, "data.group=g", "checkpoint=auto")
    assert (folder / "run/metrics.json").read_text() == before
    assert (folder / "run/fold-1/model.ckpt").stat().st_mtime_ns == trained


@pytest.mark.parametrize(
    ("overrides", "place"),
    [
        (["data.split.by=random"], "data.split.fold=all"),
        (["trainer.fast_dev_run=1"], "data.split.fold=all"),
        (["trainer.devices=2"], "data.split.fold=all"),
        (["data.split.fold=3"], "data.split.fold=3"),
    ],
)
def test_settings_that_cannot_be_used_are_named(tmp_path, overrides, place):
    with pytest.raises(InputError, match=place):
        train(tmp_path, *overrides)


def test_a_fold_without_a_class_is_named(tmp_path):
    with pytest.raises(InputError, match=r"data.split.folds=3.* class 'rare'"):
        train(tmp_path, "export=false", "data.max_bad_share=1", rare=1)


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ("+trainer.max_time=00:01:00:00", "set trainer.max_epochs"),
        ("structure=[{epoch: 2, hidden_size: 12}]", "schedule"),
    ],
)
def test_a_run_that_cannot_be_exported_is_refused_before_its_first_training(tmp_path, override, problem):
    with pytest.raises(InputError, match=rf"^data.split.fold=all: .*{problem}.*, or set export=false$"):
        train(tmp_path, override)
    assert not list((tmp_path / "run").glob("fold-*"))


def test_trainings_that_patience_stopped_become_a_bundle(tmp_path):
    train(tmp_path, "monitor=loss", "patience=1", "trainer.max_epochs=20", "optimizer.lr=0.3")
    assert (tmp_path / "run/bundle/manifest.json").is_file()


def test_no_row_is_held_out_and_each_fold_is_judged_at_the_threshold_of_the_others(tmp_path):
    train(tmp_path, "decision.min_recall=0.5", "data.positive=yes")
    lines = json.loads((tmp_path / "run/data.json").read_text())["warnings"]
    assert "no guarantee: the bundle is another model" in lines[-1] and f"all {ROWS} rows" in lines[-2]
    contenders, facts, settings = read_run(tmp_path / "run")
    rows = contenders[-1].splits["test"]
    assert "threshold" not in contenders[-1].splits and np.unique(rows.fold).tolist() == [0, 1, 2]
    options = parse_options(DecisionOptions, settings["decision"], "decision")
    found = pq.read_table(tmp_path / "run/predictions.parquet")["prediction"].to_numpy() == "yes"
    for fold in range(3):
        others, own = rows.fold != fold, rows.fold == fold
        decision = choose_decision(options, rows.logits[others], rows.labels[others], ["no", "yes"], "yes")
        assert (found[own] == decision.choose(rows.logits[own])).all()
    judged = json.loads((tmp_path / "run/metrics.json").read_text())["test"]
    assert judged["positive"]["alerts"] == found.sum()
    assert judge(contenders, facts, options).to_dict()["test"] == judged
    recipe = json.loads((tmp_path / "run/bundle/manifest.json").read_text())["recipe"]
    assert recipe["decision"] == {**settings["decision"], "holdout": "auto"}


def test_the_first_fold_and_the_cores_that_are_idle_for_it_decide_on_the_threads_of_all(tmp_path, monkeypatch):
    idle, used, run_trainer = iter([2]), [], training_run.run_trainer  # idle cores are counted once
    for module in (training_run, all_rows):
        monkeypatch.setattr(module, "run_trainer", lambda *given: used.append(given[4]) or run_trainer(*given))
    monkeypatch.setattr(prepare, "idle_threads", lambda *_: next(idle))
    monkeypatch.delenv("OMP_NUM_THREADS")
    train(tmp_path, "trainer.max_epochs=1", "data.group=g")
    assert used == [2, 2, 2, 2]


def test_the_folds_guess_the_positive_label_once(tmp_path):
    rows = table(rare=61).to_pydict()
    labels = ["yes" if label == "rare" else "no" for label in rows["label"]]
    groups = [f"{label}{number % 5}" if label == "yes" else f"g{number}" for number, label in enumerate(labels)]
    data = pa.table({**rows, "label": labels, "g": groups})
    overrides = [*SETTINGS, *FOLDS, f"data.cache_dir={tmp_path / 'cache'}", "data.group=g", "export=false"]
    overrides += ["trainer.max_epochs=1"]
    seqclf.fit(data, label="label", overrides=overrides, folder=tmp_path / "run")
    parts = [read_run_scores(tmp_path / f"run/fold-{fold}/scores")[-1] for fold in range(3)]
    assert [part.positive for part in parts] == [parts[0].positive] * 3
    given = [yaml.safe_load((tmp_path / f"run/fold-{fold}/config.yaml").read_text())["data"] for fold in range(3)]
    assert [data["infer"] for data in given] == [True, False, False]  # the fields of the first fold are those of all
    assert given[1]["fields"] == given[2]["fields"] != {}


def test_rows_of_several_files_that_share_their_number_are_all_scored(tmp_path):
    for part in range(2):
        pq.write_table(table().drop(["id"]).slice(60 * part, 60), tmp_path / f"p-{part}.parquet")
    settings = [each for each in [*SETTINGS, *FOLDS] if each != "data.id=id"]
    overrides = [*settings, f"data.cache_dir={tmp_path / 'cache'}", "export=false"]
    seqclf.fit(str(tmp_path / "p-*.parquet"), label="label", overrides=overrides, folder=tmp_path / "run")
    assert pq.read_table(tmp_path / "run/predictions.parquet").num_rows == ROWS


def test_another_run_is_not_replaced_by_going_on_and_is_by_overwriting(tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/last.ckpt").write_bytes(b"of a usual run")
    with pytest.raises(InputError, match="holds a run already"):
        train(tmp_path, "export=false", "checkpoint=auto")
    (tmp_path / "run/fold-7").mkdir()
    (tmp_path / "run/bundle").mkdir()
    train(tmp_path, "export=false", "overwrite=true")
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert not left & {"fold-7", "bundle"} and not list((tmp_path / "run/checkpoints").iterdir())
    with pytest.raises(InputError, match="checkpoint=auto"):
        train(tmp_path, "export=false")
