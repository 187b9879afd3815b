"""Advice that is typed as printed: each run below is told what to do next, does it, and is better for it."""

import re

import numpy as np
import pyarrow as pa
import pytest

import seqclf

pytestmark = pytest.mark.slow
COMMON = ["model=lstm", "logger=none", "model.hidden_size=24", "model.embedding_size=8", "export=false"]
COMMON += ["trainer.accelerator=cpu"]


def rows(count, share, seed, noise=0.0):
    """Sequences that are positive if they begin with a 1. No bag of tokens tells."""
    generator = np.random.default_rng(seed)
    positive = generator.random(count) < share
    tokens = generator.integers(1, 7, (count, 8))
    tokens[:, 0] = np.where(positive, 1, generator.integers(2, 7, count))
    labels = positive ^ (generator.random(count) < noise)
    return pa.table({"code": tokens.tolist(), "label": np.where(labels, "yes", "no").tolist()})


@pytest.fixture
def follow(tmp_path):
    """Function that trains, trains again as the first run says, and returns the overrides and both runs."""

    def train(data, overrides, test=None):
        def fit(more, name):
            settings = [*COMMON, f"data.cache_dir={tmp_path / 'cache'}", *overrides, *more]
            return seqclf.fit(data, label="label", test=test, overrides=settings, folder=tmp_path / name)

        first = fit([], "first")
        advised = re.match(r"train again with (\S+=\S+?)(?:\.$|,| and )", first.metrics["next"])
        assert advised, first.metrics["next"]
        return advised[1], first.metrics, fit([advised[1]], "second").metrics

    return train


def test_a_training_that_was_cut_short_goes_on(follow):
    advice, before, after = follow(rows(900, 0.4, 0), ["trainer.max_epochs=1", "optimizer.lr=1e-3"], rows(300, 0.4, 1))
    assert advice == "trainer.max_epochs=30" and before["not_yet"]
    assert after["test"]["positive"]["average_precision"] > before["test"]["positive"]["average_precision"] + 0.1
    assert after["baseline"]["comparison"][0]["low"] > 0


def test_rows_that_chose_the_epoch_give_way_to_a_test(follow):
    advice, before, after = follow(rows(1500, 0.4, 0), ["trainer.max_epochs=30", "monitor=recall"])
    assert advice == "data.split.test=0.2" and before["validation"]["used_for"] == ["epoch"]
    assert "used_for" not in after["test"] and after["not_yet"] == []


def test_a_rare_label_gets_a_guarantee(follow):
    data, test = rows(3000, 0.08, 0, noise=0.01), rows(1500, 0.08, 1, noise=0.01)
    advice, before, after = follow(data, ["trainer.max_epochs=30", "data.split.validation=0.3"], test)
    assert advice == "decision.min_recall=0.8" and "targets" not in before["test"]
    assert after["decision"]["targets"][0]["backed"] and after["test"]["targets"][0]["status"] == "met"


def test_a_rare_class_that_is_missed_is_weighted(follow):
    data, test = rows(1500, 0.1, 0, noise=0.05), rows(1500, 0.1, 1, noise=0.05)
    overrides = ["trainer.max_epochs=3", "optimizer.lr=1e-3", "monitor=loss"]
    advice, before, after = follow(data, overrides, test)
    assert advice == "loss=balanced" and before["test"]["alarms"][0]["kind"] in ("never_predicted", "hidden_recall")
    assert after["test"]["recall_by_class"]["yes"] > before["test"]["recall_by_class"]["yes"] + 0.2
