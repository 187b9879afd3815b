"""Comparison with the baseline: coverage of its intervals, and its metrics against scikit-learn."""

import numpy as np
import pytest
from scipy.stats import multinomial, norm
from sklearn import metrics

from seqclf.evaluation import intervals
from seqclf.evaluation.comparison import RowPredictions, compare_models, mean_difference_limits

LOWEST_COVERAGE = 0.935


@pytest.fixture
def few_draws(monkeypatch):
    """A tenth of the random numbers: the limits vary a little, and the simulations take seconds."""
    monkeypatch.setattr(intervals, "DRAWS", 200)


def of_score(score, threshold=1.0, predicted=None):
    """Predictions of a score (N,) of class 1 of two."""
    chosen = (score > threshold).astype(int) if predicted is None else predicted
    return RowPredictions(chosen, np.stack([-score, score], axis=1))


def of_classes(predicted, classes):
    """Predictions that are certain of classes (N,)."""
    return RowPredictions(predicted, np.eye(classes)[predicted])


def lowest_coverage_of_paired_proportions(rows):
    """Exact coverage for any outcome of `rows` rows, the lowest over many populations.

    A population is a share of rows on which the models differ, and a share of these on which the model is right.
    """
    generator = np.random.default_rng(0)
    wins, losses = (np.array(counts) for counts in zip(*_win_and_loss_counts(rows), strict=True))
    outcomes = [np.repeat([1, -1, 0], [win, loss, rows - win - loss]) for win, loss in zip(wins, losses, strict=True)]
    low, high = np.array([mean_difference_limits(differences, generator) for differences in outcomes]).T
    coverage = []
    for differing in (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.8):
        for right in (0.0, 0.05, 0.2, 0.35, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0):
            shares = [differing * right, differing * (1 - right), 1 - differing]
            probability = multinomial.pmf(np.stack([wins, losses, rows - wins - losses], axis=1), rows, shares)
            covered = (low <= shares[0] - shares[1]) & (shares[0] - shares[1] <= high)
            coverage.append(probability[covered].sum())
    return min(coverage)


def _win_and_loss_counts(rows):
    return [(wins, losses) for wins in range(rows + 1) for losses in range(rows + 1 - wins)]


@pytest.mark.parametrize("rows", [5, 20, *(pytest.param(rows, marks=pytest.mark.soak) for rows in (1, 2, 10, 50, 100))])
def test_paired_proportions_are_covered(rows):
    """Tango's score interval covers 0.93 of 5 and 20 rows."""
    assert lowest_coverage_of_paired_proportions(rows) >= 0.95


def macro_recall_coverage(supports, outcome_shares, repeats):
    """Coverage of the difference of macro recall.

    `outcome_shares`: for each class, the shares of rows on which only the model is right, only the baseline, and both
    or neither.
    """
    generator = np.random.default_rng(0)
    difference = float(np.mean([shares[0] - shares[1] for shares in outcome_shares]))
    labels = np.repeat(np.arange(len(supports)), supports)
    covered = 0
    for _ in range(repeats):
        counts = [generator.multinomial(rows, shares) for rows, shares in zip(supports, outcome_shares, strict=True)]
        model, baseline = (
            # A row with an even number is right: 1, 0 and 0 in the order of the outcomes, or 0, 1 and 0.
            np.concatenate([np.repeat(hits, count) for count in counts])
            for hits in ([1, 0, 0], [0, 1, 0])
        )
        wrong = (labels + 1) % len(supports)
        predictions = (of_classes(np.where(hits, labels, wrong), len(supports)) for hits in (model, baseline))
        comparison = compare_models(labels, *predictions)[1]
        assert comparison.metric == "recall"
        covered += comparison.low <= difference <= comparison.high
    return covered / repeats


def test_macro_recall_with_a_rare_class_is_covered(few_draws):
    """A normal approximation covers 0.69 of these: often the rare class has no row on which the models differ."""
    shares = [(0.02, 0.02, 0.96), (0.01, 0.0, 0.99), (0.1, 0.02, 0.88)]
    assert macro_recall_coverage((400, 100, 10), shares, 200) >= LOWEST_COVERAGE


def test_a_difference_over_many_classes_is_seen():
    """Right on 18 more of 600 rows and wrong on none more: McNemar's test has a p value of 8e-6.

    With one more row in every class the interval reached from -0.003 to 0.064. A stratified bootstrap gives 0.018 to
    0.045.
    """
    labels = np.repeat(np.arange(30), 20)
    wrong = np.isin(np.arange(600), np.random.default_rng(0).permutation(600)[:18])
    predicted = np.where(wrong, (labels + 1) % 30, labels)
    precision, recall, accuracy = compare_models(labels, *(of_classes(rows, 30) for rows in (labels, predicted)))
    assert (precision.metric, recall.metric, accuracy.metric) == ("average_precision", "recall", "accuracy")
    assert precision.is_better and recall.is_better and accuracy.is_better
    assert recall.high - recall.low < 1.35 * (0.045 - 0.018)


OUTCOMES = {
    "equal": (0.1, 0.1, 0.8),
    "better": (0.2, 0.05, 0.75),
    "always better": (0.15, 0.0, 0.85),
    "much better": (0.6, 0.1, 0.3),
    "worse": (0.05, 0.2, 0.75),
    "nearly the same": (0.004, 0.002, 0.994),
    "independent": (0.25, 0.25, 0.5),
}


@pytest.mark.soak
@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    "supports",
    [
        (990, 10),
        (100, 5),
        (50, 50),
        (500, 100, 20, 10),
        (10,) * 5,
        (30,) * 9,
        (3,) * 100,
        (1,) * 40,
        (20,) * 30,
        (2, 2),
    ],
)
def test_macro_recall_is_covered(few_draws, supports, outcome):
    """Once with the same outcomes in every class, and once with all differences in the last."""
    same = [OUTCOMES[outcome]] * len(supports)
    last = [(0.0, 0.0, 1.0)] * (len(supports) - 1) + [OUTCOMES[outcome]]
    for shares in (same, last):
        assert macro_recall_coverage(supports, shares, 2000) >= LOWEST_COVERAGE


class Scores:
    """Population of scores of the model and of the baseline, whose noise is correlated in each row.

    `model`, `baseline`: kind and AUROC of each. "normal" scores are normal with a deviation of 1, and "wide" ones have
    a deviation of 2 for positives. In "mixed" ones some positives look like negatives and the others are far above.
    "rounded" ones are normal with many ties.
    """

    ROWS = 200_000  # by which the true metrics are computed, half of them positive

    def __init__(self, model, baseline, correlation, positive_share, alert_share):
        self.kinds, self.correlation = (model, baseline), correlation
        is_positive = np.arange(self.ROWS) < self.ROWS // 2
        weight = np.where(is_positive, positive_share, 1 - positive_share)
        scores = self.draw(np.random.default_rng(1), is_positive)
        precisions = [metrics.average_precision_score(is_positive, score, sample_weight=weight) for score in scores]
        order = np.argsort(-scores[0])
        self.threshold = scores[0][order][np.searchsorted(np.cumsum(weight[order]) / weight.sum(), alert_share)]
        is_alert = scores[0] >= self.threshold
        at_equal_alerts = _recall_of_weight(is_positive, scores[1], weight, weight[is_alert].sum())
        self.differences = {
            "average_precision": precisions[0] - precisions[1],
            "recall_at_equal_alerts": is_alert[is_positive].mean() - at_equal_alerts,
        }

    def draw(self, generator, is_positive):
        noise = generator.normal(size=(2, len(is_positive)))
        noise[1] = self.correlation * noise[0] + np.sqrt(1 - self.correlation**2) * noise[1]
        return [_score(*kind, noise_of, is_positive) for kind, noise_of in zip(self.kinds, noise, strict=True)]


def _score(kind, auroc, noise, is_positive):
    if kind == "mixed":
        overlap, uniform = 2 * (1 - auroc), norm.cdf(noise)
        part = np.where(uniform < overlap, uniform / overlap, (uniform - overlap) / (1 - overlap))
        mixture = norm.ppf(np.clip(part, 1e-9, 1 - 1e-9)) + 9 * (uniform >= overlap)
        return np.where(is_positive, mixture, noise)
    deviation = 2.0 if kind == "wide" else 1.0
    score = np.where(is_positive, deviation, 1) * noise + np.sqrt(1 + deviation**2) * norm.ppf(auroc) * is_positive
    return np.round(2 * score) / 2 if kind == "rounded" else score


def _recall_of_weight(is_positive, score, weight, alerts):
    """Recall of the highest scores of a total weight. Of ties, the share that fits counts."""
    level = np.unique(-score, return_inverse=True)[1]
    rows, positives = np.bincount(level, weight), np.bincount(level, is_positive)
    share = np.clip((alerts - (rows.cumsum() - rows)) / rows, 0, 1)
    return (positives * share).sum() / positives.sum()


def ranking_coverage(scores, rows, positive_share, repeats):
    generator = np.random.default_rng(0)
    covered, defined = dict.fromkeys(scores.differences, 0), dict.fromkeys(scores.differences, 0)
    for _ in range(repeats):
        is_positive = np.arange(rows) < np.clip(generator.binomial(rows, positive_share), 2, rows - 2)
        model, baseline = scores.draw(generator, is_positive)
        predicted = (model >= scores.threshold).astype(int)
        predictions = (of_score(score, predicted=predicted) for score in (model, baseline))
        for comparison in compare_models(is_positive.astype(int), *predictions, 1):
            if comparison.metric in covered:
                difference = scores.differences[comparison.metric]
                covered[comparison.metric] += comparison.low <= difference <= comparison.high
                defined[comparison.metric] += 1
    return {metric: covered[metric] / defined[metric] for metric in covered}


def test_rankings_of_rare_positives_are_covered(few_draws):
    scores = Scores(("normal", 0.999), ("normal", 0.99), 0.5, positive_share=0.1, alert_share=0.1)
    coverage = ranking_coverage(scores, 150, 0.1, 60)
    assert min(coverage.values()) >= LOWEST_COVERAGE, coverage


@pytest.mark.soak
@pytest.mark.parametrize(
    ("rows", "positive_share", "alert_share"),
    [(1000, 0.01, 0.02), (5000, 0.01, 0.015), (300, 0.1, 0.1), (60, 0.5, 0.5), (200, 0.9, 0.8), (1000, 0.13, 0.3)],
)
@pytest.mark.parametrize(
    ("model", "baseline", "correlation"),
    [
        (("normal", 0.9), ("normal", 0.9), 0.8),
        (("normal", 0.9), ("normal", 0.9), 0.0),
        (("normal", 0.99), ("normal", 0.9), 0.8),
        (("normal", 0.8), ("normal", 0.97), 0.3),
        (("normal", 0.999), ("normal", 0.999), 0.5),
        (("mixed", 0.95), ("normal", 0.9), 0.0),
        (("wide", 0.95), ("rounded", 0.9), 0.95),
        (("mixed", 0.98), ("mixed", 0.9), 0.5),
        (("normal", 0.5), ("normal", 0.5), 0.0),
    ],
)
def test_rankings_are_covered(few_draws, rows, positive_share, alert_share, model, baseline, correlation):
    scores = Scores(model, baseline, correlation, positive_share, alert_share)
    coverage = ranking_coverage(scores, rows, positive_share, 400)
    assert min(coverage.values()) >= LOWEST_COVERAGE, coverage


def sample_scores(rows=400, seed=0, decimals=None):
    generator = np.random.default_rng(seed)
    labels = (generator.random(rows) < 0.2).astype(int)
    scores = [labels * shift + generator.normal(size=rows) for shift in (2.0, 1.0)]
    return labels, [score if decimals is None else score.round(decimals) for score in scores]


@pytest.mark.parametrize("decimals", [None, 0])
def test_metrics_are_those_of_sklearn(decimals):
    labels, scores = sample_scores(decimals=decimals)
    predictions = [of_score(score) for score in scores]
    comparisons = {entry.metric: entry for entry in compare_models(labels, *predictions, 1)}
    assert list(comparisons) == ["average_precision", "recall_at_equal_alerts", "accuracy"]
    for name, function in (("model", 0), ("baseline", 1)):
        precision = metrics.average_precision_score(labels, scores[function])
        assert getattr(comparisons["average_precision"], name) == pytest.approx(precision)
        accuracy = metrics.accuracy_score(labels, predictions[function].predicted)
        assert getattr(comparisons["accuracy"], name) == pytest.approx(accuracy)
    recall = metrics.recall_score(labels, predictions[0].predicted)
    assert comparisons["recall_at_equal_alerts"].model == pytest.approx(recall)
    for entry in comparisons.values():
        assert entry.low < entry.difference < entry.high


def test_the_baseline_gets_as_many_alerts_as_the_model():
    labels = np.array([0] * 90 + [1] * 10)
    score = np.arange(100.0)  # ranks every positive row first
    model = of_score(score, 94.5)
    for scale in (1, 1000):
        # The threshold of the baseline does not matter, nor does the scale of its scores.
        baseline = of_score(scale * score, predicted=np.zeros(100, int))
        comparison = compare_models(labels, model, baseline, 1)[1]
        assert (comparison.model, comparison.baseline) == (0.5, 0.5)


def test_macro_recall_is_that_of_sklearn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, 300)
    predicted = [np.where(generator.random(300) < share, labels, 0) for share in (0.8, 0.6)]
    _, recall, accuracy = compare_models(labels, *(of_classes(rows, 4) for rows in predicted))
    assert (recall.metric, accuracy.metric) == ("recall", "accuracy")
    assert recall.model == pytest.approx(metrics.balanced_accuracy_score(labels, predicted[0]))
    assert recall.baseline == pytest.approx(metrics.balanced_accuracy_score(labels, predicted[1]))
    assert recall.is_better and not recall.is_worse


def test_class_weights_alone_do_not_beat_the_baseline():
    """The same scores at another decision: macro recall rises, and nothing was learned from the order."""
    generator, shares = np.random.default_rng(0), np.array([0.7, 0.1, 0.1, 0.1])
    labels = generator.choice(4, p=shares, size=600)
    logits = 1.2 * np.eye(4)[labels] + generator.normal(size=(600, 4)) + np.log(shares)
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    weighted = probabilities / shares
    baseline = RowPredictions(probabilities.argmax(axis=1), probabilities)
    precision, recall, _ = compare_models(labels, RowPredictions(weighted.argmax(axis=1), probabilities), baseline)
    assert recall.is_better and not precision.is_better and not precision.is_worse


def draw_models(generator, labels, classes, distances):
    """Two models of scores that are normal, `distances` from the true class to the others, and partly alike."""
    common = generator.normal(size=(len(labels), classes))
    for distance, own in zip(distances, generator.normal(size=(2, *common.shape)), strict=True):
        yield RowPredictions(labels, distance * np.eye(classes)[labels] + 0.8 * common + 0.6 * own)


def precision_coverage(shares, rows, distances, repeats):
    """Coverage of the difference of mean average precision of two models."""
    generator, classes = np.random.default_rng(0), len(shares)
    everything = generator.choice(classes, p=shares, size=200_000)
    truth = compare_models(everything, *draw_models(generator, everything, classes, distances))[0].difference
    covered = 0
    for _ in range(repeats):
        labels = generator.choice(classes, p=shares, size=rows)
        labels[: 2 * classes] = np.repeat(np.arange(classes), 2)
        first = compare_models(labels, *draw_models(generator, labels, classes, distances))[0]
        covered += first.low <= truth <= first.high
    return covered / repeats


@pytest.mark.parametrize(
    ("shares", "rows", "distances"),
    [([0.4, 0.3, 0.3], 60, (1.0, 1.0)), ([0.8, 0.1, 0.1], 200, (2.0, 1.5)), ([0.1] * 10, 200, (3.5, 3.0))],
)
def test_mean_average_precision_is_covered(few_draws, shares, rows, distances):
    assert precision_coverage(shares, rows, distances, 150) >= 0.92, "two deviations below 0.95"


@pytest.mark.parametrize("positive", [None, 1])
def test_two_equal_models_are_neither_better_nor_worse(positive):
    labels, (score, _) = sample_scores()
    predictions = of_score(score)
    for comparison in compare_models(labels, predictions, predictions, positive):
        assert comparison.difference == 0 and not comparison.is_better and not comparison.is_worse
        assert -0.1 < comparison.low < 0 < comparison.high < 0.1


def test_accuracy_decides_where_it_chose_the_epoch():
    labels, (score, _) = sample_scores()
    predictions = of_score(score)
    for positive in (None, 1):
        assert compare_models(labels, predictions, predictions, positive, "accuracy")[0].metric == "accuracy"


def test_without_positive_rows_only_accuracy_is_compared():
    labels, score = np.zeros(20, int), np.arange(20.0)
    predictions = of_score(score, predicted=labels)
    assert [entry.metric for entry in compare_models(labels, predictions, predictions, 1)] == ["accuracy"]


def test_without_an_alert_there_is_no_recall_at_equal_alerts():
    labels, (score, _) = sample_scores()
    model = of_score(score, predicted=np.zeros(len(labels), int))
    names = [entry.metric for entry in compare_models(labels, model, model, 1)]
    assert names == ["average_precision", "accuracy"]


def test_large_splits_take_little_memory_and_agree_with_exact_levels(monkeypatch):
    """Coarse levels move the interval by little, whatever the number of distinct scores."""
    labels, scores = sample_scores(rows=3000)
    predictions = [of_score(score) for score in scores]
    exact = compare_models(labels, *predictions, 1)[0]
    monkeypatch.setattr("seqclf.evaluation.ranking_comparison.MAX_LEVELS", 200)
    coarse = compare_models(labels, *predictions, 1)[0]
    assert coarse.difference == exact.difference
    assert (coarse.low, coarse.high) == pytest.approx((exact.low, exact.high), abs=0.01)
