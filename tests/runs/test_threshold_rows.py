"""Rows that set the threshold: all validation rows where they choose little, and else a half that is held out."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from support.binary_scores import decision_options

import seqclf
from seqclf.evaluation.holdout import HEADS, chosen_by_validation, fifths, resolve_holdout
from seqclf.evaluation.score_files import read_run_scores
from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.auto.heads_classifier import HeadsClassifier
from seqclf.models.network import cross_fits
from seqclf.runs.prepare import user_recipe, with_head_patience
from seqclf.settings.base import parse_options
from seqclf.settings.train_settings import TrainConfig

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "export=false", "baseline=false", "trainer.max_epochs=1"]
SETTINGS += ["model.hidden_size=8", "model.embedding_size=8", "decision.min_recall=0.8", "data.id=id"]


class Opaque(HeadsClassifier):
    """A class of somebody else that sets more than it can leave out."""

    def fit_to_validation(self, rows):
        return super().fit_to_validation(rows)


def train(folder, *overrides):
    generator = np.random.default_rng(0)
    tokens = [generator.choice(list("aabc"), generator.integers(4, 12)).tolist() for _ in range(300)]
    labels = ["yes" if row.count("a") > 0.6 * len(row) else "no" for row in tokens]
    who = pa.array([f"p{row // 2}" for row in range(300)])
    table = pa.table({"id": [str(row) for row in range(300)], "who": who, "code": tokens, "label": labels})
    settings = [*SETTINGS, f"data.cache_dir={folder.parent / 'cache'}", *overrides]
    return seqclf.fit(table, label="label", overrides=settings, folder=folder)


def network_of(run):
    return read_run_scores(run.folder / "scores")[-1]


def basis_of(run):
    return read_run_scores(run.folder / "scores")[-1].basis


@pytest.mark.parametrize(
    ("settings", "network", "reason"),
    [
        ({}, None, None),
        ({"monitor": None, "patience": None, "trainer": {"callbacks": None}}, HeadsClassifier, None),
        ({"monitor": "loss"}, None, "monitor"),
        ({"decision": {"provisional": True}}, None, "a search"),
        ({"trainer": {"callbacks": [{"_target_": "EarlyStopping", "monitor": "loss"}]}}, None, "a callback"),
        ({"model": {"_target_": f"{AdaptiveClassifier.__module__}.AdaptiveClassifier"}}, None, "sets more"),
        ({}, AdaptiveClassifier, "sets more"),
        ({"head_patience": 3, "model": {"_target_": HEADS}}, None, "head_patience"),
        ({"head_patience": "auto", "model": {"_target_": HEADS}}, None, None),
        ({"head_patience": 3, "model": {"_target_": "seqclf.models.classifier.EncoderClassifier"}}, None, None),
        ({"model": {"_target_": "own.Opaque"}}, None, None),  # unknown until the class is imported
        ({}, Opaque, "sets more"),
    ],
)
def test_rows_are_held_out_for_a_reason(settings, network, reason):
    found = chosen_by_validation(settings, None if network is None else not cross_fits(network))
    assert found is None if reason is None else reason in found
    assert resolve_holdout(decision_options({"holdout": "auto"}), found).holdout == (0.5 if reason else 0)
    assert resolve_holdout(decision_options({"holdout": 0.3}), found).holdout == 0.3


@pytest.mark.parametrize(
    ("overrides", "positive", "expected"),
    [
        ([], None, 3),
        ([], "yes", None),
        (["decision.min_recall={a: 0.8}"], None, None),
        (["model=lstm"], None, None),
        (["head_patience=5"], "yes", 5),
        (["head_patience=null"], None, None),
    ],
)
def test_heads_stop_where_validation_sets_no_threshold(overrides, positive, expected):
    config = parse_options(TrainConfig, dict(seqclf.load_config(["data=toy", *overrides])))
    assert with_head_patience(config, positive).head_patience == expected


def test_fifths_keep_groups_together_and_spread_the_classes():
    labels, groups = np.repeat([0, 1], [180, 20]), np.arange(200) // 2
    assert np.bincount(fifths(labels)[labels == 1]).tolist() == [4] * 5
    of_rows = fifths(labels, groups)
    assert (of_rows[::2] == of_rows[1::2]).all() and sorted(set(of_rows)) == [0, 1, 2, 3, 4]
    assert np.bincount(of_rows[labels == 1], minlength=5).tolist() == [4] * 5


def test_all_validation_rows_set_the_threshold_by_cross_fitted_logits(tmp_path, capsys):
    run = train(tmp_path / "run", "data.group=who", "data.split.by=group")
    splits = network_of(run).splits
    rows, crossed = splits["validation"], splits["threshold"]
    assert (
        "(all of validation), which back a recall of at most" in capsys.readouterr().err
        and basis_of(run) == "cross_fitted"
    )
    assert crossed.ids.equals(rows.ids) and (crossed.labels == rows.labels).all()
    assert (crossed.fold == fifths(rows.labels, rows.groups)).all() and (crossed.fold == rows.fold).all()
    assert 1e-3 < np.abs(crossed.logits - rows.logits).max() < 2 * np.abs(rows.logits).max()
    assert run.metrics["holdout"]["rows"] == 0 and run.metrics["decision"]["targets"][0]["rows"] > 0
    predictions = pq.read_table(run.folder / "predictions.parquet")
    assert Counter(predictions["split"].to_pylist()) == {"validation": 60}
    assert "holdout: 0.0" in (run.folder / "config.yaml").read_text()


def test_rows_of_a_single_head_have_their_own_logits(tmp_path):
    run = train(tmp_path / "run", "model.heads=[recurrent]")
    splits = network_of(run).splits
    np.testing.assert_array_equal(splits["threshold"].logits, splits["validation"].logits)
    assert basis_of(run) == "held_out" and (splits["threshold"].fold == splits["validation"].fold).all()


@pytest.mark.parametrize(
    ("override", "held_out", "basis"),
    [
        ("monitor=loss", 30, "held_out"),
        (f"model._target_={Opaque.__module__}.Opaque", 30, "held_out"),
        ("decision.holdout=0.5", 30, "held_out"),
        ("decision.provisional=true", 0, "chosen"),
    ],
)
def test_half_is_held_out_where_validation_chooses_more(tmp_path, override, held_out, basis):
    run = train(tmp_path / "run", override)
    assert basis_of(run) == basis and run.metrics["holdout"]["rows"] == held_out
    config = parse_options(TrainConfig, yaml.safe_load((run.folder / "config.yaml").read_text()))
    asked = 0.5 if override == "decision.holdout=0.5" else "auto"
    assert config.decision.holdout == 0.5 and user_recipe(config)["decision"]["holdout"] == asked
    rows = {"validation": 60 - (held_out or 30 * (basis == "chosen"))} | ({"threshold": held_out} if held_out else {})
    assert Counter(pq.read_table(run.folder / "predictions.parquet")["split"].to_pylist()) == rows
    if held_out:
        assert all(outputs.fold is None for outputs in network_of(run).splits.values())


def test_validation_rows_may_set_a_later_threshold_if_they_chose_little(tmp_path):
    run = train(tmp_path / "run", "decision.min_recall=null")
    logits = network_of(run).splits["threshold"].logits  # of a later target
    aimed = train(tmp_path / "run", "checkpoint=auto")
    np.testing.assert_array_equal(network_of(aimed).splits["threshold"].logits, logits)
    assert "threshold" not in network_of(train(tmp_path / "other", "monitor=loss", "decision.min_recall=null")).splits
