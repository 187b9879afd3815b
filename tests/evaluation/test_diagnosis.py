"""The facts of a run name the cause of its errors, and the overrides against the cause are new to the run."""

import shlex
from dataclasses import replace

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.config.documentation import CONF
from seqclf.data.splitting.split_leakage import LeakReport
from seqclf.evaluation.comparison import MetricComparison
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.diagnosis import Cause, Facts, Fit, Score, diagnose
from seqclf.evaluation.results import SplitOutputs, evaluate_split

# What a run has put in place of settings that are auto.
RESOLVED = ["model.heads=[recurrent,kernels]", "model.hidden_size=64", "model.dropout=0.4"]


def settings(*overrides):
    names_model = any(override.startswith("model=") for override in overrides)
    resolved = RESOLVED if "model=auto" in overrides else [] if names_model else ["model=lstm"]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        composed = compose("train", ["trainer.max_epochs=30", *resolved, *overrides])
        return OmegaConf.to_container(composed, resolve=False)


def split_of(support, recalls):
    """Metrics of a split. `support`: number of rows of each class. `recalls`: fraction of these that is found."""
    labels = np.repeat(np.arange(len(support)), support)
    place = np.concatenate([np.arange(rows) for rows in support])
    found = place < np.rint(np.multiply(support, recalls))[labels]
    predicted = np.where(found, labels, (labels == 0).astype(int))  # a missed row is given the first other class
    classes = [f"c{number}" for number in range(len(support))]
    outputs = SplitOutputs(
        np.eye(len(support))[predicted] * 3.0, labels, np.full(len(labels), 5), np.zeros(len(labels), bool)
    )
    return evaluate_split(outputs, classes, None, Decision(), with_intervals=True)


GOOD = split_of([100, 100, 100], [0.95, 0.95, 0.95])


def compared(difference, half=0.02):
    limits = {"low": difference - half, "high": difference + half}
    return MetricComparison(metric="accuracy", model=0.6 + difference, baseline=0.6, difference=difference, **limits)


def fit_of(train, validation, half=0.04, **options):
    interval = (validation - half, validation + half)
    return Fit(Score("recall", train), Score("recall", validation, interval), **options)


@pytest.mark.parametrize(
    ("train", "validation", "expected"),
    [
        (0.62, 0.6, Cause.UNDERFITTING),
        (0.99, 0.7, Cause.OVERFITTING),
        (0.99, 0.96, Cause.NONE),  # within the interval
        (0.95, 0.94, Cause.NONE),  # the error is small
        (0.6, 0.65, Cause.UNDERFITTING),
        (0.8, 0.55, Cause.OVERFITTING),  # the gap is larger than the error on train
        (0.7, 0.55, Cause.UNDERFITTING),
    ],
)
def test_the_larger_part_of_the_error_names_the_cause(train, validation, expected):
    facts = Facts(settings=settings(), epochs=17, best_epoch=6, fit=fit_of(train, validation))
    found = diagnose(facts, GOOD, compared(0.2))
    assert found.cause is expected
    assert bool(found.overrides) == (expected is not Cause.NONE)


def test_a_model_in_trouble_has_a_cause_even_if_its_parts_are_small():
    facts = Facts(settings=settings(), fit=fit_of(0.95, 0.94))
    assert diagnose(facts, GOOD, compared(0.0), is_troubled=True).cause is Cause.UNDERFITTING
    assert diagnose(Facts(settings=settings()), GOOD, is_troubled=True).overrides
    assert diagnose(Facts(settings=settings()), GOOD).cause is Cause.NONE, "nothing is known of the run"


@pytest.mark.parametrize(
    ("most", "epochs", "best_epoch", "steps", "expected"),
    [
        (3, 3, 1, 90, True),
        (3, 2, 1, 60, False),  # stopped early
        (30, 30, 20, 900, False),
        (40, 40, 39, 1200, True),
        (40, 40, 37, 1200, True),
        (40, 40, 39, 90_000, False),  # the last epochs are the best because the learning rate falls
    ],
)
def test_a_training_is_too_short_by_few_epochs_or_where_the_last_was_the_best(
    most, epochs, best_epoch, steps, expected
):
    facts = Facts(
        settings=settings(f"trainer.max_epochs={most}", "monitor=recall"),
        epochs=epochs,
        best_epoch=best_epoch,
        steps=steps,
        fit=fit_of(0.6, 0.6),
    )
    found = diagnose(facts, GOOD)
    assert (found.cause is Cause.FEW_STEPS) == expected
    longer = f"trainer.max_epochs={max(30, 2 * most)}"
    assert (longer in found.overrides) == expected
    memorised = replace(facts, fit=fit_of(0.99, 0.6))
    assert diagnose(memorised, GOOD).cause is Cause.OVERFITTING, "more epochs would not help"
    last_kept = replace(facts, settings={**facts.settings, "monitor": None}, best_epoch=epochs - 1)
    assert (diagnose(last_kept, GOOD).cause is Cause.FEW_STEPS) == (epochs == most < 12)


@pytest.mark.parametrize(
    ("train", "override"), [(0.6, "model.hidden_size=192"), (0.95, "refit=true")], ids=["underfitted", "overfitted"]
)
def test_a_simpler_model_that_wins_is_the_cause(train, override):
    facts = Facts(
        settings=settings("model.number_noise=0", "model.dropout=0.25"),
        epochs=30,
        best_epoch=20,
        fit=fit_of(train, 0.6),
        splits={"train": GOOD, "test": GOOD},
    )
    found = diagnose(facts, GOOD, compared(-0.2), is_troubled=True)
    assert found.cause is Cause.SIMPLER_MODEL and override in found.overrides
    assert "0.600" in found.evidence and "0.400" in found.evidence
    unfinished = replace(facts, settings=settings("trainer.max_epochs=2"), epochs=2, best_epoch=1, fit=fit_of(0.6, 0.6))
    assert diagnose(unfinished, GOOD, compared(-0.2), is_troubled=True).cause is Cause.FEW_STEPS


def test_only_lost_rare_classes_of_unbalanced_data_are_weighted():
    facts = Facts(settings=settings())
    lost = split_of([300, 300, 30], [0.95, 0.95, 0.1])
    found = diagnose(facts, lost)
    assert (found.cause, found.overrides) == (Cause.LOST_CLASS, ("loss=balanced",)) and "c2" in found.evidence
    not_lost = {
        "balanced": split_of([200, 200, 200], [0.95, 0.95, 0.1]),
        "rare and found": split_of([300, 300, 30], [0.95, 0.95, 0.9]),
        "large and lost": split_of([300, 100, 100], [0.3, 0.95, 0.95]),
        "too few rows to tell": split_of([300, 300, 3], [0.95, 0.95, 0.33]),
    }
    for name, metrics in not_lost.items():
        assert diagnose(facts, metrics).cause is not Cause.LOST_CLASS, name
    for used in ("loss=balanced", "batching=balanced", "loss=logit_adjusted"):
        assert diagnose(Facts(settings=settings(used)), lost).cause is not Cause.LOST_CLASS, used
    memorised = replace(facts, splits={"train": split_of([300, 300, 30], [1.0, 1.0, 1.0])}, fit=fit_of(1.0, 0.7))
    assert diagnose(memorised, lost).cause is Cause.OVERFITTING, "weights do not help a class that train finds"


def leaks_of(**groups):
    nothing = dict.fromkeys(groups, 0)
    return LeakReport(
        rows=900,
        distinct=900,
        seen_before=nothing,
        ids_seen_before=None,
        conflicting_sequences=0,
        conflicting_rows=0,
        groups_seen_before=groups,
    )


def test_groups_that_splits_share_are_split_apart():
    random = settings("data=files", "data.train=a.csv", "data.test=b.csv", "data.group=who")
    high, low = split_of([150, 150], [0.9, 0.9]), split_of([150, 150], [0.6, 0.6])
    shifted = {"train": high, "validation": high, "test": low}
    facts = Facts(settings=random, splits=shifted, leaks=leaks_of(validation=90, test=0))
    found = diagnose(facts, low)
    assert (found.cause, found.overrides) == (Cause.SHARED_GROUPS, ("data.split.by=group",))
    assert "0.900" in found.evidence and "0.600" in found.evidence
    no_reason = {
        "alike": replace(facts, splits={**shifted, "test": high}),
        "no shared group": replace(facts, leaks=leaks_of(validation=0, test=0)),
        "dropped": replace(facts, leaks=replace(facts.leaks, dropped={"validation": 90})),
        "split by group": replace(facts, settings=settings("data=files", "data.group=who", "data.split.by=group")),
        "no group": replace(facts, settings=settings("data=files")),
        "given as a file": replace(facts, settings={**random, "data": {**random["data"], "validation": "c.csv"}}),
    }
    for name, other in no_reason.items():
        assert diagnose(other, other.splits["test"]).cause is not Cause.SHARED_GROUPS, name
    # A test that was divided by rows is too optimistic, whatever it says.
    divided = settings("data=files", "data.train=a.csv", "data.group=who", "data.split.test=0.2")
    leaking = Facts(settings=divided, splits={**shifted, "test": high}, leaks=leaks_of(validation=90, test=80))
    assert diagnose(leaking, high).cause is Cause.SHARED_GROUPS


def overrides(choices, **facts):
    """Overrides against underfitting and against overfitting."""
    facts = Facts(settings=settings(*choices), **facts)
    return [
        list(diagnose(replace(facts, fit=fit), GOOD, is_troubled=True).overrides)
        for fit in (fit_of(0.5, 0.5), fit_of(0.99, 0.5))
    ]


def test_windows_of_kernels_are_recommended_for_long_signals_of_a_recurrent_network():
    assert overrides([], signal_length=300.0)[0][0] == "model=auto"
    for choices, length in ([], 50.0), (["model=conv_lstm"], 300.0), (["model=transformer"], 300.0):
        assert "model=auto" not in overrides(choices, signal_length=length)[0]


def test_a_refit_needs_a_test_and_one_process():
    splits = {"train": GOOD, "validation": GOOD, "test": GOOD}
    assert "refit=true" in overrides([], splits=splits)[1]
    assert "refit=true" not in overrides([])[1]
    assert "refit=true" not in overrides([], splits=splits, ranks=2)[1]
    for choice in ("refit=true", "model=adaptive", "trainer.max_time=00:01:00:00"):
        assert "refit=true" not in overrides([choice], splits=splits)[1], choice


def test_a_learning_rate_is_recommended_for_optimizers_that_it_suits():
    assert "optimizer.lr=1e-3" in overrides([])[0]
    assert "optimizer.lr=1e-3" not in overrides(["optimizer=sgd"])[0]


@pytest.mark.parametrize("model", ["auto", "lstm", "gru", "rnn", "conv_lstm", "transformer", "adaptive", "tree_lstm"])
def test_overrides_are_keys_of_the_model_and_new_to_the_run(model):
    """Each is one word of a shell, is accepted without a plus sign, and is not recommended again."""
    splits, choice = {"train": GOOD, "test": GOOD}, f"model={model}"
    for place, found in enumerate(overrides([choice], splits=splits, has_numbers=True)):
        assert found or model == "adaptive"  # which has no ensemble or refit
        assert [word for override in found for word in shlex.split(override)] == found
        assert not set("".join(found)) & set("*?[]{}~!$"), "special in bash or zsh"
        for override in found:
            assert settings(choice, override) != settings(choice)
            assert override not in overrides([choice, override], splits=splits, has_numbers=True)[place]
