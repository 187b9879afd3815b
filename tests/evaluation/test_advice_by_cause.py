"""The advice after trainings with a planted cause of errors names the cause, and following it does no harm.

Some of the sets were adjusted until they showed their cause clearly, so they are no independent check of the limits in
`diagnosis.py`.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import seqclf
from seqclf.evaluation import recommendation
from seqclf.evaluation.diagnosis import Cause
from seqclf.runs import evaluate

pytestmark = pytest.mark.slow
COMMON = [
    *("logger=none", "export=false", "trainer.accelerator=cpu", "runtime.threads=1"),
    *("optimizer.lr=3e-3", "optimizer.weight_decay=0.01"),  # the sets were made with these
    *("model=lstm", "model.hidden_size=24", "model.embedding_size=8", "trainer.max_epochs=30"),
]
SAME_LAW = np.random.default_rng(5).normal(size=300)  # weight of each token in `bag`


def table(tokens, labels, **columns):
    return pa.table({"code": tokens.tolist(), "label": labels.tolist(), **columns})


def signals(values, labels):
    return pa.table({"x": values.tolist(), "label": labels.tolist()})


def first_token(count, generator, share=0.5, noise=0.0, symbols=7):
    """Rows are positive if they begin with a 1. No bag of tokens tells. A fraction `noise` of the labels is wrong."""
    positive = generator.random(count) < share
    tokens = generator.integers(1, symbols, (count, 8))
    tokens[:, 0] = np.where(positive, 1, generator.integers(2, symbols, count))
    return table(tokens, np.where(positive ^ (generator.random(count) < noise), "yes", "no"))


def first_of_two(count, generator):
    """Two markers stand anywhere among 20 tokens, and the first of them is the label."""
    tokens, first = generator.integers(5, 15, (count, 20)), generator.integers(0, 2, count)
    places = np.sort(np.argsort(generator.random((count, 20)), axis=1)[:, :2], axis=1)
    tokens[np.arange(count), places[:, 0]], tokens[np.arange(count), places[:, 1]] = 1 + first, 2 - first
    return table(tokens, np.where(first, "yes", "no"))


def bag(count, generator):
    """Each of 300 tokens votes for one label, and their order tells nothing."""
    tokens = generator.integers(0, len(SAME_LAW), (count, 12))
    return table(tokens, np.where(SAME_LAW[tokens].sum(axis=1) > 0, "yes", "no"))


def by_group(count, generator, first=0):
    """A token names the group, and most rows of a group have its label. Groups are numbered from `first`."""
    group = first + generator.integers(0, 60, count)
    tokens = generator.integers(1, 30, (count, 8))
    tokens[:, 0] = 100 + group
    label = np.random.default_rng(1).integers(0, 2, 1000)[group] > 0
    yes = np.where(generator.random(count) < 0.25, tokens[:, 1] > 15, label)
    return table(tokens, np.where(yes, "yes", "no"), who=group.tolist())


def other_groups(count, generator):
    return by_group(count, generator, first=60)


def random_labels(count, generator):
    return table(generator.integers(1, 9, (count, 8)), generator.choice(["a", "b"], count))


def rhythm(count, generator):
    """Two frequencies below noise, in signals of 250 tokens."""
    fast = generator.integers(0, 2, count)
    angle = 2 * np.pi * np.where(fast, 0.05, 0.06)[:, None] * np.arange(250) + 6.3 * generator.random((count, 1))
    return signals(generator.normal(size=angle.shape) + 0.6 * np.sin(angle), np.where(fast, "fast", "slow"))


def step_of_level(count, generator):
    """The sign of one small step in a signal of another level in each row."""
    up, values = generator.integers(0, 2, count), 0.35 * generator.normal(size=(count, 12))
    values += 5 * generator.normal(size=(count, 1))
    values[:, 6:] += np.where(up, 1.0, -1.0)[:, None]
    return signals(values, np.where(up, "up", "down"))


@dataclass(frozen=True)
class Planted:
    """Rows with a planted cause. `advice`: the override that must come first, None to accept any against the cause.

    `is_followed`: True to train with the advice and to score both models on fresh rows.
    """

    cause: Cause
    draw: Any
    rows: int
    overrides: list[str] = field(default_factory=list)
    advice: str | None = None
    draw_test: Any = None
    is_followed: bool = False
    options: dict[str, Any] = field(default_factory=dict)


NUMBERS, TOKENS = "data.fields={x: number}", "data.fields={code: category}"
RARE = {"share": 0.1, "noise": 0.06}
SETS = {
    "few epochs": Planted(
        Cause.FEW_STEPS, first_token, 600, ["trainer.max_epochs=2", "baseline=false"],
        "trainer.max_epochs=30",
        is_followed=True,
    ),
    "a small network": Planted(
        Cause.UNDERFITTING, first_of_two, 900,
        ["model.hidden_size=1", "model.embedding_size=1", "monitor=recall", "patience=2", TOKENS],
        "model.hidden_size=96", is_followed=True,
    ),
    "few rows with noise": Planted(
        Cause.OVERFITTING, first_token, 300,
        ["model.dropout=0.0", "model.token_dropout=0.0", "data.split.validation=0.5", "baseline=false"],
        "model.dropout=0.25",
        is_followed=True, options={"noise": 0.15, "symbols": 9},
    ),
    "votes of tokens": Planted(Cause.SIMPLER_MODEL, bag, 400, [TOKENS], "refit=true", is_followed=True),
    "other groups in test": Planted(
        Cause.SHARED_GROUPS, by_group, 700,
        ["data.group=who", TOKENS, "trainer.max_epochs=10", "baseline=false"], "data.split.by=group",
        draw_test=other_groups,
    ),
    "a lost rare class": Planted(
        Cause.LOST_CLASS, first_token, 1500, ["trainer.max_epochs=3", "optimizer.lr=1e-3"], "loss=balanced",
        is_followed=True, options={"share": 0.1, "noise": 0.05},
    ),
    "a rare class that is found": Planted(
        Cause.NONE, first_token, 1200, ["trainer.max_epochs=12"], options={"share": 0.1}
    ),
    "solved": Planted(Cause.NONE, first_token, 700, ["trainer.max_epochs=12"]),
    "long signals": Planted(
        Cause.UNDERFITTING, rhythm, 160, ["monitor=recall", "patience=1", NUMBERS], "model=auto"
    ),
    "noise that drowns the signal": Planted(
        Cause.UNDERFITTING, step_of_level, 400,
        ["monitor=recall", "patience=3", NUMBERS, "model.number_noise=10.0", "baseline=false", "trainer.max_epochs=90"],
        "model.number_noise=0",
        is_followed=True,
    ),
}  # fmt: skip


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Function that trains and returns the diagnosis, metrics.json, and classes and hits of the test rows."""
    found = []

    def diagnose(*arguments):
        found.append(recommendation_diagnosis(*arguments))
        return found[-1]

    recommendation_diagnosis = recommendation.diagnose_run
    monkeypatch.setattr(recommendation, "diagnose_run", diagnose)
    for name in ("run_report", "write_report"):  # a third of the time of so short a run
        monkeypatch.setattr(evaluate, name, lambda *_: None)

    def fit(rows, test, overrides):
        settings = [*COMMON, f"data.cache_dir={tmp_path / 'cache'}", *overrides]
        run = seqclf.fit(rows, label="label", test=test, overrides=settings, folder=tmp_path / str(len(found)))
        predictions = run.predictions.filter(pc.equal(run.predictions["split"], "test"))
        labels = np.array(predictions["label"].to_pylist())
        hits = labels == np.array(predictions["prediction"].to_pylist())
        return found[-1], run.metrics, (np.unique(labels, return_inverse=True)[1], hits)

    return fit


@pytest.mark.parametrize("name", SETS)
def test_advice_names_the_planted_cause_and_does_no_harm(name, train):
    planted, generator = SETS[name], np.random.default_rng(11)
    rows = planted.draw(planted.rows, generator, **planted.options)
    count = 3000 if planted.is_followed else 500
    test = (planted.draw_test or planted.draw)(count, generator, **planted.options)
    found, metrics, (labels, before) = train(rows, test, planted.overrides)
    assert found.cause is planted.cause, metrics["next"]
    if planted.cause is Cause.NONE:
        assert found.overrides == ()
    if planted.cause is not Cause.NONE:
        assert str(found.cause) in metrics["next"] or not found.overrides
    if planted.cause is Cause.SIMPLER_MODEL:
        assert "judge it on" not in metrics["next"]
    if planted.cause is not Cause.LOST_CLASS:
        assert "balanced" not in metrics["next"] and "loss=balanced" not in found.overrides
    if planted.advice is not None:
        assert found.overrides[0] == planted.advice
    if planted.is_followed:
        _, _, (_, after) = train(rows, test, [*planted.overrides, found.overrides[0]])
        assert lowest_change(labels, before, after) > -0.01


def lowest_change(labels, before, after):
    """Lower limit of the 95 % interval of the change in macro recall, from the same rows of both models."""
    weight = 1 / np.bincount(labels)[labels] / (labels.max() + 1)
    change = after.astype(float) - before
    mean = weight @ change
    return mean - 1.96 * np.sqrt((weight**2) @ (change - mean) ** 2)


def test_random_labels_are_never_balanced_and_ask_for_no_more_rows_to_judge_by(train):
    generator = np.random.default_rng(3)
    rows, test = random_labels(500, generator), random_labels(500, generator)
    found, metrics, _ = train(rows, test, [TOKENS, "monitor=recall", "patience=3"])
    assert found.overrides and "balanced" not in metrics["next"] and "judge it" not in metrics["next"]
