"""Metrics by length, of truncated rows, and by period."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, average_precision_score

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.slices import BUCKETS, JudgedRows, check_times, length_buckets, slices_by_period
from seqclf.evaluation.split_result import judge_split


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200))
def test_every_length_is_in_one_bucket_and_no_bucket_is_empty(lengths):
    buckets = length_buckets(np.array(lengths))
    assert len(buckets) <= BUCKETS
    for length in lengths:
        assert sum(low <= length <= high for low, high in buckets) == 1
    for low, high in buckets:
        assert any(low <= length <= high for length in lengths)


def test_buckets_hold_equally_many_rows():
    lengths = np.random.default_rng(0).permutation(1000)
    assert [((lengths >= low) & (lengths <= high)).sum() for low, high in length_buckets(lengths)] == [200] * 5


def test_slice_metrics_equal_those_of_the_rows_alone():
    generator = np.random.default_rng(0)
    lengths, labels = generator.integers(1, 50, 400), generator.integers(0, 2, 400)
    margin = generator.normal(size=400)
    decision = Decision().with_margin("threshold", ["no", "yes"], -0.5, "yes")
    rows = ScoredRows(np.stack([0 * margin, margin], axis=1), labels, lengths, lengths > 40)
    result = judge_split(rows, ["no", "yes"], "yes", decision, with_intervals=False)
    assert sum(part.rows for part in result.by_length) == 400 and result.truncated.rows == (lengths > 40).sum()
    for part in (*result.by_length, result.truncated):
        inside = (lengths >= part.shortest) & (lengths <= part.longest)
        assert part.accuracy == pytest.approx(accuracy_score(labels[inside], margin[inside] >= -0.5))
        expected = average_precision_score(labels[inside], margin[inside])
        assert part.positive.average_precision == pytest.approx(expected)
        assert part.mean_score == pytest.approx((1 / (1 + np.exp(-margin[inside]))).mean())


def at(text):
    return float(np.datetime64(text, "s").astype(np.int64))


TIMES = np.array(
    [at("2023-12-31T23:59:59"), at("2024-01-01T00:00:00"), at("2024-01-07T12:00:00"), at("2024-02-29T01:00:00")]
)
LABELS = np.array([1, 1, 0, 1])
LOGITS = np.log([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1], [0.3, 0.7]])
JUDGED = JudgedRows(ScoredRows(LOGITS, LABELS, LABELS + 1, LABELS < 0), Decision(), ["no", "yes"], "yes")


@pytest.mark.parametrize(
    ("by", "periods"),
    [
        ("day", ["2023-12-31", "2024-01-01", "2024-01-07", "2024-02-29"]),
        ("week", ["2023-12-25", "2024-01-01", "2024-02-26"]),
        ("month", ["2023-12", "2024-01", "2024-02"]),
        ("year", ["2023", "2024"]),
    ],
)
def test_rows_are_counted_in_their_period(by, periods):
    found = slices_by_period(JUDGED, TIMES, by)
    assert [part.title for part in found] == periods and sum(part.rows for part in found) == len(TIMES)


def test_the_scores_of_a_period_are_those_of_its_rows():
    found = slices_by_period(JUDGED, TIMES, "month")
    assert [part.positive.recall for part in found] == [1.0, 0.0, 1.0]
    assert (found[1].accuracy, found[1].positive.rows, found[1].mean_score) == (0.5, 1, pytest.approx(0.25))


def test_without_a_positive_label_recall_is_the_mean_of_the_classes_that_occur():
    labels = np.array([0, 0, 2, 2])
    rows = ScoredRows(3.0 * np.eye(3)[[0, 1, 2, 2]], labels, labels + 1, labels < 0)
    (found,) = slices_by_period(JudgedRows(rows, Decision(), list("abc"), None), np.full(4, 60.0), "day")
    assert found.recall == pytest.approx(0.75) and "positive" not in found.to_dict()


def test_rows_without_a_time_are_left_out():
    (found,) = slices_by_period(JUDGED, np.array([np.nan, 0.0, np.inf, 1.0]), "year")
    assert found.rows == 2


def test_rows_without_a_time_are_counted(capsys):
    check_times(TIMES, "by=month", "day")
    check_times(np.array([np.nan, 0.0, np.nan]), "by=month", "day")
    assert "2 of 3" in capsys.readouterr().err
