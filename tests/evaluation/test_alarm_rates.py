"""How often healthy models raise alarms, and faulty ones: simulations with known populations."""

import numpy as np
import pytest
from scipy.stats import norm
from support.grouped_rows import SHARES, draw_predictions, group_sizes

from seqclf.evaluation import intervals
from seqclf.evaluation.alarms import NO_POSITIVE
from seqclf.evaluation.decision import Decision, Guarantee
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split

HIGHEST_RATE = 0.05
LOWEST_POWER = 0.8


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """A tenth of the random numbers: the limits of AUROC vary a little."""
    monkeypatch.setattr(intervals, "DRAWS", 200)


def alarm_kinds(logits, labels, positive=None, decision=None):
    names = [f"c{code}" for code in range(logits.shape[1])]
    rows = len(labels)
    outputs = ScoredRows(logits, labels, np.full(rows, 5), np.zeros(rows, bool))
    metrics = judge_split(outputs, names, positive, decision or Decision(), with_intervals=positive is not None)
    # A split without positive rows is no matter of chance.
    return {alarm.kind for alarm in metrics.alarms} - {NO_POSITIVE}


def two_classes(generator, rows, prevalence, separation, recall=None):
    """Alarms of calibrated normal scores. With `recall`, the threshold finds that share of the positive population."""
    labels = (generator.random(rows) < prevalence).astype(int)
    score = generator.normal(size=rows) + separation * labels
    prior = np.log(prevalence / (1 - prevalence))
    margin = separation * score - separation**2 / 2 + prior if separation else score
    logits = np.stack([np.zeros(rows), margin], axis=1)
    decision = None
    if recall is not None:
        at = separation + norm.ppf(1 - recall)
        threshold = separation * at - separation**2 / 2 + prior if separation else at
        target = Guarantee(
            rule="min_recall",
            label="c1",
            target=recall,
            confidence=0.95,
            statement="sure",
            backed=True,
            rows=99,
            needed=None,
        )
        decision = Decision(targets=(target,)).with_margin("min_recall", ["c0", "c1"], threshold, "c1")
    return alarm_kinds(logits, labels, "c1", decision)


def many_classes(generator, rows, shares, recalls, chosen=None):
    """Alarms of a model with these recalls, whose errors fall on all classes. `chosen`: labels it never leaves."""
    classes = len(shares)
    labels = generator.choice(classes, rows, p=shares)
    others = (labels + generator.integers(1, classes, rows)) % classes
    predicted = np.where(generator.random(rows) < np.array(recalls)[labels], labels, others)
    if chosen is not None:
        predicted = np.where(np.isin(predicted, chosen), predicted, chosen[0])
    return alarm_kinds(np.eye(classes)[predicted] * 2, labels)


def equal(classes):
    return np.full(classes, 1 / classes)


def skewed(classes):
    shares = 1 / np.arange(1, classes + 1)
    return shares / shares.sum()


def rate(simulate, *arguments, repeats, kinds=None):
    """Share of the repeats that raise an alarm, of `kinds` if they are given."""
    generator = np.random.default_rng(0)
    raised = [simulate(generator, *arguments) for _ in range(repeats)]
    return sum(bool(found if kinds is None else found & kinds) for found in raised) / repeats


CHANCE = {"no_better_than_chance", "useless_alerts", "never_predicted"}
FAULTS = {
    "12 % recall": (many_classes, (2000, [0.98, 0.02], [0.998, 0.12]), {"hidden_recall"}),
    "12 % of 30 rows": (many_classes, (1500, [0.98, 0.02], [0.998, 0.12]), {"hidden_recall", "never_predicted"}),
    "lost of 3": (many_classes, (300, equal(3), [0.9] * 3, [0, 1]), {"never_predicted"}),
    "lost of 10": (many_classes, (300, equal(10), [0.9] * 10, list(range(9))), {"never_predicted"}),
    "lost of 50": (many_classes, (1500, equal(50), [0.9] * 50, list(range(49))), {"never_predicted"}),
    "lost positive": (two_classes, (1000, 0.02, 0.3), {"never_predicted"}),
    "random 2": (two_classes, (400, 0.5, 0.0), CHANCE),
    "random 2 rare": (two_classes, (1500, 0.05, 0.0, 0.8), CHANCE),
    "random 2 few alerts": (two_classes, (1500, 0.2, 0.0, 0.1), CHANCE),
    "random 2 unnamed": (many_classes, (500, equal(2), [0.5, 0.5]), CHANCE),
    "random 10": (many_classes, (300, equal(10), [0.1] * 10), CHANCE),
    "random 50": (many_classes, (300, equal(50), [0.02] * 50), CHANCE),
    "random 50 skewed": (many_classes, (500, skewed(50), [0.02] * 50), CHANCE),
    "majority of 2": (many_classes, (300, [0.7, 0.3], [1.0, 1.0], [0]), {"never_predicted"}),
    "majority of 10": (many_classes, (300, skewed(10), [1.0] * 10, [0]), {"never_predicted", "below_majority"}),
}


def healthy_rate(cell, repeats):
    if len(cell) == 4:
        return rate(two_classes, *cell, repeats=repeats)
    rows, shares, accuracy = cell
    return rate(many_classes, rows, shares, np.full(len(shares), accuracy), repeats=repeats)


@pytest.mark.parametrize(
    "cell",
    [(100, 0.5, 2 * norm.ppf(0.6), None), (500, 0.01, 1.8, 0.8), (500, skewed(50), 0.3), (500, equal(100), 0.3)],
    ids=["accuracy .6", "five positive rows", "50 classes", "100 classes"],
)
def test_healthy_models_hardly_ever_raise_an_alarm(cell):
    """Before alarms were tests: 0.60, 0.42, 0.90 and 1.00."""
    assert healthy_rate(cell, 100) <= HIGHEST_RATE


@pytest.mark.parametrize("repeats", [20, pytest.param(200, marks=pytest.mark.soak)])
@pytest.mark.parametrize("fault", FAULTS)
def test_faulty_models_raise_their_alarm_in_four_of_five_runs(fault, repeats):
    simulate, arguments, kinds = FAULTS[fault]
    assert rate(simulate, *arguments, repeats=repeats, kinds=kinds) >= LOWEST_POWER


def grouped_rate(classes, recall, groups, layout, repeats):
    """How often a model that is healthy over all groups raises an alarm, where it fails on some of them."""
    generator, sizes, raised = np.random.default_rng(0), group_sizes(groups, layout), 0
    for _ in range(repeats):
        labels, predicted, group = draw_predictions(generator, sizes, SHARES[classes], recall, 0.7, mixed=False)
        names = [f"c{code}" for code in range(len(SHARES[classes]))]
        lengths = np.full(len(labels), 5)
        outputs = ScoredRows(2.0 * np.eye(len(names))[predicted], labels, lengths, lengths < 0, group)
        metrics = judge_split(outputs, names, None, Decision(), with_intervals=False)
        raised += bool({alarm.kind for alarm in metrics.alarms})
    return raised / repeats


@pytest.mark.parametrize(("classes", "recall", "groups", "layout"), [("10", 0.8, 20, 20), ("2", 0.75, 30, "giant")])
def test_healthy_models_of_grouped_rows_hardly_ever_raise_an_alarm(classes, recall, groups, layout):
    limit = HIGHEST_RATE + 2.5 * np.sqrt(HIGHEST_RATE * (1 - HIGHEST_RATE) / 100)
    assert grouped_rate(classes, recall, groups, layout, 100) <= limit
