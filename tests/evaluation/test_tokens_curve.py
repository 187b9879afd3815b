"""Curves of accuracy against tokens read: against plain counts, the knee by its rule, budgets to thresholds."""

import json
import math

import numpy as np
import pytest
from scipy.special import log_softmax

from seqclf.errors import InputError
from seqclf.evaluation.tokens_curve import THRESHOLDS, CurveCounts, CurvePoint, TokensCurve, find_knee


def point(tokens, recall, threshold=0.5, loss=None):
    return CurvePoint(
        threshold=threshold, tokens=tokens, recall=recall, accuracy=recall, loss=1 - recall if loss is None else loss
    )


def test_counts_of_batches_give_the_scores_of_all_rows():
    generator = np.random.default_rng(0)
    logits = generator.standard_normal((30, len(THRESHOLDS), 3))
    labels, lengths = np.arange(30) % 3, generator.integers(1, 20, 30)
    read = generator.integers(1, lengths[:, None] + 1, (30, len(THRESHOLDS)))
    counts = CurveCounts(3)
    for rows in np.split(np.arange(30), [4, 5, 20]):
        counts.update(logits[rows], read[rows], labels[rows], lengths[rows])
    points = counts.points()
    for index in (0, 40, len(THRESHOLDS) - 1):
        correct = logits[:, index].argmax(axis=1) == labels
        assert points[index].accuracy == pytest.approx(correct.mean())
        assert points[index].recall == pytest.approx(np.mean([correct[labels == label].mean() for label in range(3)]))
        assert points[index].loss == pytest.approx(-log_softmax(logits[:, index], axis=1)[np.arange(30), labels].mean())
        assert points[index].tokens == pytest.approx(read[:, index].sum() / lengths.sum())
    assert points[0].threshold == 0 and points[-1].threshold is None


def test_a_class_without_rows_does_not_count():
    counts = CurveCounts(3)
    counts.update(
        np.tile([1.0, 0.0, 0.0], (2, len(THRESHOLDS), 1)),
        np.ones((2, len(THRESHOLDS)), int),
        np.array([0, 1]),
        np.array([1, 1]),
    )
    assert counts.points()[0].recall == 0.5


def test_the_knee_reads_the_fewest_tokens_within_half_a_point():
    points = [point(0.1, 0.2), point(0.3, 0.895), point(0.4, 0.894), point(0.5, 0.92), point(1.0, 0.9)]
    assert find_knee(points).tokens == 0.3
    assert find_knee([point(0.5, 0.8), point(1.0, 0.9)]).tokens == 1.0


def test_the_knee_keeps_what_reading_removes_from_the_loss():
    """As where a rare class is never the most probable one, so that all points have the same recall."""
    points = [
        point(0.1, 0.5, loss=0.2),
        point(0.5, 0.5, loss=0.16),
        point(0.8, 0.5, loss=0.152),
        point(1.0, 0.5, loss=0.15),
    ]
    assert find_knee(points).tokens == 0.8
    # More reading may also make it worse.
    assert find_knee([point(0.1, 0.5, loss=0.2), point(0.5, 0.5, loss=0.1), point(1.0, 0.5, loss=0.3)]).tokens == 0.1


def curve():
    validation = [point(0.1, 0.5, 0.0), point(0.4, 0.6, 0.1), point(0.6, 0.9, 0.7), point(1.0, 0.9, None)]
    test = [point(0.2, 0.4, 0.0), point(0.5, 0.5, 0.1), point(0.7, 0.8, 0.7), point(1.0, 0.8, None)]
    return TokensCurve.of_splits({"validation": validation, "test": test})


@pytest.mark.parametrize(
    ("budget", "threshold"),
    [(None, 0.7), (1, math.inf), (1.0, math.inf), (0.99, 0.7), (0.6, 0.7), (0.59, 0.1), (0.4, 0.1), (0.01, 0.0)],
)
def test_a_budget_is_kept_by_the_curve_of_validation(budget, threshold):
    assert curve().threshold_of(budget) == threshold


def test_a_bundle_without_a_curve_reads_all_or_as_trained():
    bare = TokensCurve(threshold=0.7, splits={})
    assert (bare.threshold_of(None), bare.threshold_of(1)) == (0.7, math.inf)
    with pytest.raises(InputError, match=r"budget=0\.5: the bundle was exported without the metrics of its run"):
        bare.threshold_of(0.5)


def test_the_curve_survives_json_and_leaves_out_thresholds_that_change_nothing():
    assert TokensCurve.from_manifest(json.loads(json.dumps(curve().to_dict()))) == curve()
    repeated = [point(0.1, 0.5, 0.0), point(0.1, 0.5, 0.1), point(1.0, 0.9, 0.2), point(1.0, 0.9, None)]
    assert [kept.threshold for kept in TokensCurve.of_splits({"validation": repeated}).splits["validation"]] == [
        0.1,
        None,
    ]
