"""Rows that come in groups: coverage of the intervals, errors of the verdict, and where both are withheld."""

import numpy as np
import pytest
from support import grouped_rows
from support.grouped_rows import LAYOUTS, SHARES, confusion_coverage, group_sizes, ranking_coverage, verdict_errors

from seqclf.evaluation import intervals
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.design_effect import effective_groups, group_codes
from seqclf.evaluation.intervals import metric_intervals

COVERAGE, ERROR = 0.93, 0.06  # aimed at, in every cell
HARD = [(10, 20), (20, "giant"), (50, "tail")]  # groups, and their sizes
MIN_REPEATS = 50  # with an interval, to say anything


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    """A tenth of the random numbers: the limits vary a little, and the simulations take seconds."""
    monkeypatch.setattr(intervals, "DRAWS", 200)


def deviations(share, repeats, count=2.5):
    return count * np.sqrt(share * (1 - share) / repeats)


def require_coverage(result, lowest=COVERAGE):
    coverage, defined = result
    for name, value in coverage.items():
        if defined[name] >= MIN_REPEATS:
            assert value >= lowest - deviations(lowest, defined[name]), (name, value)


def require_few_errors(result):
    errors, defined = result
    for name, value in errors.items():
        if defined[name] >= MIN_REPEATS:
            assert value <= ERROR + deviations(ERROR, defined[name]), (name, value)


@pytest.mark.parametrize(("groups", "layout"), HARD)
@pytest.mark.parametrize("classes", ["rare", "10"])
def test_intervals_of_grouped_rows_cover(groups, layout, classes):
    require_coverage(confusion_coverage(groups, layout, 0.7, SHARES[classes], 0.9, True, 100))


def test_intervals_that_ignore_groups_do_not_cover():
    coverage, _ = confusion_coverage(20, 20, 0.7, SHARES["2"], 0.9, True, 100, ignore_groups=True)
    assert max(coverage["accuracy"], coverage["recall"], coverage["f1"], coverage["precision of one"]) < 0.75


@pytest.mark.parametrize(("groups", "layout"), HARD)
def test_rankings_of_grouped_rows_are_covered(groups, layout):
    require_coverage(ranking_coverage(groups, layout, 0.7, 0.2, 0.9, True, 60))


@pytest.mark.parametrize("classes", [pytest.param("2", marks=pytest.mark.slow), "10"])
def test_verdicts_on_grouped_rows_are_rarely_wrong(classes):
    require_few_errors(verdict_errors(50, 20, 0.7, SHARES[classes], 1.8, True, 60))


def test_a_large_difference_is_seen_in_50_groups():
    generator = np.random.default_rng(0)
    seen = 0
    for _ in range(40):
        group = np.repeat(np.arange(50), 20)
        labels = generator.integers(0, 3, 1000)
        models = []
        for recall in (0.9, 0.8):
            hits = generator.random(1000) < grouped_rows.shares_of_hits(generator, recall, 0.1, 50)[group]
            predicted = np.where(hits, labels, (labels + 1) % 3)
            models.append(RowPredictions(predicted, np.eye(3)[predicted]))
        seen += compare_models(labels, *models, group=group)[0].is_better
    assert seen >= 32


def test_without_enough_groups_there_is_no_interval_and_no_verdict():
    generator = np.random.default_rng(0)
    labels, group = np.arange(200) % 2, np.zeros(200, int)
    score = labels + generator.normal(size=200)
    probabilities = softmax(np.stack([-score, score], axis=1))
    predicted = (score > 0.5).astype(int)
    limits = metric_intervals(labels, predicted, probabilities, ["no", "yes"], "yes", group)
    assert limits.accuracy is limits.recall is limits.positive.auroc is limits.positive.precision is None
    model = RowPredictions(predicted, probabilities)
    for entry in compare_models(labels, model, RowPredictions(1 - predicted, -probabilities), 1, group=group):
        assert entry.too_few_groups and not entry.is_better and not entry.is_worse


def test_a_class_of_one_group_has_no_interval_and_the_others_do():
    group = np.repeat(np.arange(10), 10)
    labels = np.where(group == 3, 2, np.arange(100) % 2)
    limits = metric_intervals(labels, labels, np.eye(3)[labels], ["a", "b", "c"], None, group)
    assert limits.recall_by_class["c"] is None and limits.recall is None
    assert limits.recall_by_class["a"][0] < 1 and limits.accuracy[0] < 1


def test_groups_of_one_row_are_rows():
    assert group_codes(np.array([7, 9, 8])) is None and group_codes(None) is None
    np.testing.assert_array_equal(group_codes(np.array([7, 9, 7])), [0, 1, 0])
    assert effective_groups(np.repeat(np.arange(4), 5)) == pytest.approx(4)


@pytest.mark.soak
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("groups", [10, 20, 50, 200])
@pytest.mark.parametrize("correlation", [0, 0.3, 0.7])
@pytest.mark.parametrize("mixed", [True, False])
class TestManyPopulations:
    @pytest.mark.parametrize("recall", [0.7, 0.9, 0.98])
    @pytest.mark.parametrize("classes", SHARES)
    def test_intervals_cover(self, classes, recall, mixed, correlation, groups, layout):
        require_coverage(confusion_coverage(groups, layout, correlation, SHARES[classes], recall, mixed, 300))

    @pytest.mark.parametrize("auroc", [0.7, 0.9, 0.98])
    @pytest.mark.parametrize("prevalence", [0.5, 0.05])
    def test_rankings_are_covered(self, prevalence, auroc, mixed, correlation, groups, layout):
        require_coverage(ranking_coverage(groups, layout, correlation, prevalence, auroc, mixed, 300))

    @pytest.mark.parametrize("classes", SHARES)
    def test_verdicts_are_rarely_wrong(self, classes, mixed, correlation, groups, layout):
        if sum(group_sizes(groups, layout)) > 1000:
            pytest.skip("takes minutes; the smaller populations are harder")
        require_few_errors(verdict_errors(groups, layout, correlation, SHARES[classes], 1.8, mixed, 200))
