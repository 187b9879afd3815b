"""Weights of rows: metrics equal scikit-learn's, intervals cover, and a recall on average is that of the weights."""

import numpy as np
import pytest
from sklearn import metrics as sk

from seqclf.errors import InputError
from seqclf.evaluation.choose_decision import choose_decision
from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.intervals import metric_intervals
from seqclf.evaluation.metrics import classification_metrics
from seqclf.evaluation.ranking import ranking_scores
from seqclf.evaluation.result import all_scores
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import WeightedMetrics, judge_split
from seqclf.settings.decision_settings import DecisionOptions

NAMES = ["no", "yes"]


def draw(rows, seed=0, classes=2, skill=2.0):
    generator = np.random.default_rng(seed)
    labels = generator.integers(classes, size=rows)
    logits = generator.normal(size=(rows, classes)) + skill * np.eye(classes)[labels]
    return labels, np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), generator.lognormal(sigma=1.2, size=rows)


@pytest.mark.parametrize("classes", [2, 3])
def test_weighted_metrics_equal_those_of_scikit_learn(classes):
    labels, probabilities, weights = draw(300, classes=classes)
    weights[:20] = 0
    positive = "1" if classes == 2 else None
    found = classification_metrics(labels, probabilities, list("012"[:classes]), positive, weights=weights)
    predicted, given = probabilities.argmax(axis=1), {"sample_weight": weights}
    assert found.accuracy == pytest.approx(sk.accuracy_score(labels, predicted, **given))
    for name, function in (("recall", sk.recall_score), ("precision", sk.precision_score), ("f1", sk.f1_score)):
        assert getattr(found, name) == pytest.approx(function(labels, predicted, average="macro", **given))
    assert found.mcc == pytest.approx(sk.matthews_corrcoef(labels, predicted, **given))
    assert found.loss == pytest.approx(sk.log_loss(labels, probabilities, **given))
    np.testing.assert_allclose(found.confusion, sk.confusion_matrix(labels, predicted, **given))
    ranked = found if positive is None else found.positive
    truths = [(labels == code, probabilities[:, code]) for code in (range(classes) if positive is None else [1])]
    assert ranked.auroc == pytest.approx(np.mean([sk.roc_auc_score(*pair, **given) for pair in truths]))
    precisions = [sk.average_precision_score(*pair, **given) for pair in truths]
    assert ranked.average_precision == pytest.approx(np.mean(precisions))


@pytest.mark.parametrize("group", [None, np.arange(200) // 4])
@pytest.mark.parametrize("classes", [2, 4])
def test_equal_weights_change_nothing_and_their_unit_does_not_matter(classes, group):
    labels, probabilities, weights = draw(200, classes=classes)
    positive, names = 1 if classes == 2 else None, list("0123"[:classes])
    predicted = probabilities.argmax(axis=1)
    other = np.roll(probabilities, 1, axis=0) * 0.4 + probabilities * 0.6

    def results(given):
        models = [RowPredictions(part.argmax(axis=1), ranking_scores(part)) for part in (probabilities, other)]
        compared = compare_models(labels, *models, positive, group=group, weights=given)
        label = None if positive is None else "1"
        limits = vars(metric_intervals(labels, predicted, probabilities, names, label, group, weights=given))
        recalls = limits.pop("recall_by_class")
        of_label = limits.pop("positive")
        of_label = {} if of_label is None else vars(of_label)
        values = [*limits.values(), *recalls.values(), *of_label.values()]
        lines = [[entry.model, entry.baseline, entry.low, entry.high] for entry in compared]
        return np.array(values, float), np.array(lines)

    for one, two in ((None, np.full(200, 3.0)), (weights, weights * 1e4)):
        for first, second in zip(results(one), results(two), strict=True):
            np.testing.assert_allclose(first, second, rtol=0, atol=1e-9)


def test_more_spread_of_the_weights_gives_wider_intervals():
    labels, probabilities, weights = draw(400)
    predicted = probabilities.argmax(axis=1)
    widths = []
    for given in (None, weights, weights**2):
        of_label = metric_intervals(labels, predicted, probabilities, NAMES, "yes", weights=given).positive
        limits = (of_label.recall, of_label.precision, of_label.average_precision, of_label.auroc)
        widths.append([high - low for low, high in limits])
    assert (np.diff(widths, axis=0) > 0).all()
    block = WeightedMetrics.of(labels, probabilities, NAMES, "yes", predicted, weights)
    assert block.effective_rows == pytest.approx(weights.sum() ** 2 / (weights**2).sum())
    assert block.weight == pytest.approx(weights.sum())


def test_intervals_of_rows_that_are_all_right_or_all_wrong_end_there():
    labels, _, weights = draw(5751)
    for predicted, place in ((labels, 1), (1 - labels, 0)):
        of_label = metric_intervals(labels, predicted, np.eye(2)[labels], NAMES, "yes", weights=weights / 7).positive
        assert of_label.recall[place] == place and 0.9 < abs(place - 1 + of_label.recall[1 - place]) <= 1


@pytest.mark.parametrize("depends", [False, True])
@pytest.mark.parametrize(("rows", "recall"), [(60, 0.7), (200, 0.9)])
def test_intervals_of_weighted_recall_cover_it(rows, recall, depends):
    """With `depends`, heavy rows are found less often. The true recall is that of ten million rows."""
    generator = np.random.default_rng(1)

    def sample(size):
        weights = generator.lognormal(sigma=0.8, size=size)
        chance = np.clip(recall - 0.2 * depends * np.tanh(weights - 1), 0, 1)
        return weights, generator.random(size) < chance

    weights, found = sample(10_000_000)
    true, covered, repeats = float(weights @ found / weights.sum()), 0, 400
    for _ in range(repeats):
        weights, found = sample(rows)
        labels = np.ones(rows, np.int64)
        low, high = metric_intervals(
            labels, found.astype(int), np.eye(2)[labels], NAMES, "yes", weights=weights
        ).positive.recall
        covered += low <= true <= high
    assert covered / repeats > 0.93


@pytest.mark.parametrize("rows", [40, 200])
def test_differences_of_weighted_models_are_covered_and_equal_models_are_not_told_apart(rows):
    worse, repeats = 0, 150
    for seed in range(repeats):
        labels, first, weights = draw(rows, seed)
        second = draw(rows, seed + 10_000)[1]
        second = np.where(
            (labels == draw(rows, seed + 10_000)[0])[:, None], second, second[:, ::-1]
        )  # as good as `first`
        models = [RowPredictions(part.argmax(axis=1), ranking_scores(part)) for part in (first, second)]
        compared = {entry.metric: entry for entry in compare_models(labels, *models, 1, weights=weights)}
        assert compared["average_precision"].weighted and compared["recall_at_equal_alerts"].weighted is None
        worse += any(compared[name].is_better or compared[name].is_worse for name in ("average_precision", "accuracy"))
    assert worse / repeats < 0.1


@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("rows", [60, 200])
def test_a_weighted_recall_holds_on_average(rows, grouped):
    """Its value on many new rows, over draws of the rows that set the threshold, where heavy rows score lower."""
    generator, target, reached = np.random.default_rng(0), 0.8, []

    def sample(units):
        size = 2 if grouped else 1
        weights = generator.lognormal(sigma=0.7, size=units).repeat(size)
        scores = generator.normal(size=units).repeat(size) + generator.normal(size=len(weights)) * grouped - weights / 4
        return weights, scores, np.arange(units).repeat(size) if grouped else None

    new_weights, new_scores, _ = sample(100_000)
    for _ in range(400):
        weights, scores, group = sample(rows)
        others = np.linspace(-6, 6, 2000)  # so that no threshold is lower for free
        labels = np.r_[np.ones(len(scores), np.int64), np.zeros(2000, np.int64)]
        logits = np.stack([np.zeros(len(labels)), np.r_[scores, others]], axis=1)
        group = None if group is None else np.r_[group, 10**6 + np.arange(2000)]
        given, options = np.r_[weights, np.ones(2000)], DecisionOptions(min_recall=target)
        decision = choose_decision(options, logits, labels, NAMES, "yes", group, weights=given)
        (guarantee,) = decision.targets
        if guarantee.statement == "rows":  # one row has most of the weight
            continue
        assert guarantee.weighted and guarantee.approximate
        found = decision.choose(np.stack([np.zeros(len(new_scores)), new_scores], axis=1)) == 1
        reached.append(float(new_weights @ found / new_weights.sum()))
    assert len(reached) > 380
    assert np.mean(reached) > target - 2.5 * np.std(reached) / len(reached) ** 0.5
    assert np.mean(reached) < target + 2.5 / rows + 0.01, "no more than the rows ask for"


@pytest.mark.parametrize("group", [None, np.repeat(np.arange(100), 2)])
def test_few_effective_rows_say_nothing_and_how_many_would(group):
    labels, probabilities, weights = draw(200)
    labels[:], weights[:] = 1, 1.0
    weights[0] = 60.0
    options = DecisionOptions(min_recall=0.8)
    (few,) = choose_decision(options, np.log(probabilities), labels, NAMES, "yes", group, weights=weights).targets
    units = weights if group is None else np.bincount(group, weights) / 2
    effective = units.sum() ** 2 / (units**2).sum()
    assert effective < 20 and (few.statement, few.backed) == ("rows", False)
    assert few.needed == np.ceil(20 * len(units) / effective) and few.lacks_rows
    (plain,) = choose_decision(options, np.log(probabilities), labels, NAMES, "yes", group).targets
    assert plain.statement == "average"


def test_sure_recalls_and_other_rules_count_rows_and_say_so():
    labels, probabilities, weights = draw(2000)
    logits = np.log(probabilities)
    for rule, confidence in (("min_recall", 0.95), ("min_precision", None), ("max_alerts", None)):
        options = DecisionOptions(**{rule: 0.5, "confidence": confidence})
        weighted = choose_decision(options, logits, labels, NAMES, "yes", weights=weights)
        plain = choose_decision(options, logits, labels, NAMES, "yes")
        assert weighted.threshold == plain.threshold
        assert (weighted.targets[0].weighted, plain.targets[0].weighted) == (False, None)


def test_costs_of_rows_set_the_threshold_of_least_cost():
    labels, probabilities, costs = draw(300, skill=1.0)
    logits, options = np.log(probabilities), DecisionOptions(cost="loss")
    decision = choose_decision(options, logits, labels, NAMES, "yes", costs=costs)

    def cost(alerts):
        return costs[(labels == 1) & ~alerts].sum() + ((labels == 0) & alerts).sum()

    margins = np.sort(logits[:, 1] - logits[:, 0])
    middles = np.r_[margins[0] - 1, (margins[1:] + margins[:-1]) / 2, margins[-1] + 1]
    least = min(cost(logits[:, 1] - logits[:, 0] > value) for value in middles)
    assert cost(decision.choose(logits) == 1) == pytest.approx(least)
    assert decision.targets[0].column == "loss"
    equal = choose_decision(options, logits, labels, NAMES, "yes", costs=np.full(300, 3.0))
    assert equal.threshold == choose_decision(DecisionOptions(cost=3.0), logits, labels, NAMES, "yes").threshold
    with pytest.raises(InputError, match=r"^decision\.cost=loss: the rows have no costs"):
        choose_decision(options, logits, labels, NAMES, "yes")


def test_a_split_has_both_and_its_target_is_judged_by_weights():
    labels, probabilities, weights = draw(400)
    rows = ScoredRows(np.log(probabilities), labels, np.ones(400, int), np.zeros(400, bool), weights=weights)
    decision = choose_decision(DecisionOptions(min_recall=0.9), rows.logits, labels, NAMES, "yes", weights=weights)
    result = judge_split(rows, NAMES, "yes", decision, with_intervals=True)
    alerts = decision.choose(rows.logits) == 1
    expected = weights[(labels == 1) & alerts].sum() / weights[labels == 1].sum()
    assert result.weighted.positive.recall == pytest.approx(expected) == pytest.approx(result.targets[0].value)
    assert result.positive.recall == pytest.approx(alerts[labels == 1].mean())
    assert type(result).from_dict(result.to_dict()) == result
    assert all_scores(result)["weighted_recall_of_yes"] == pytest.approx(expected)


def test_a_weighted_target_is_unknown_on_rows_without_weights():
    labels, probabilities, weights = draw(400)
    rows = ScoredRows(np.log(probabilities), labels, np.ones(400, int), np.zeros(400, bool))
    decision = choose_decision(DecisionOptions(min_recall=0.9), rows.logits, labels, NAMES, "yes", weights=weights)
    (target,) = judge_split(rows, NAMES, "yes", decision, with_intervals=False).targets
    assert (target.value, target.status) == (None, None)
    assert (
        classification_metrics(labels, probabilities, NAMES, "yes", weights=1.0 * (labels == 0)).positive.auroc is None
    )
