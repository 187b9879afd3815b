"""Scores by the period of the rows."""

import numpy as np
import pytest

from seqclf.evaluation.over_time import check_times, scores_by_period


def at(text):
    return float(np.datetime64(text, "s").astype(np.int64))


TIMES = np.array(
    [at("2023-12-31T23:59:59"), at("2024-01-01T00:00:00"), at("2024-01-07T12:00:00"), at("2024-02-29T01:00:00")]
)
LABELS, PREDICTED = np.array([1, 1, 0, 1]), np.array([1, 0, 0, 1])
PROBABILITIES = np.array([[0.2, 0.8], [0.6, 0.4], [0.9, 0.1], [0.3, 0.7]])


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
    found = scores_by_period(TIMES, by, LABELS, PREDICTED, PROBABILITIES, ["no", "yes"], "yes")
    assert [part.period for part in found] == periods and sum(part.rows for part in found) == len(TIMES)


def test_the_scores_of_a_period_are_those_of_its_rows():
    december, january, february = scores_by_period(
        TIMES, "month", LABELS, PREDICTED, PROBABILITIES, ["no", "yes"], "yes"
    )
    assert (december.recall, january.recall, february.recall) == (1.0, 0.0, 1.0)
    assert (january.accuracy, january.share, january.mean_score) == (0.5, 0.5, 0.25)


def test_without_a_positive_label_recall_is_the_mean_of_the_classes_that_occur():
    labels, predicted = np.array([0, 0, 2, 2]), np.array([0, 1, 2, 2])
    (found,) = scores_by_period(np.full(4, 60.0), "day", labels, predicted, np.full((4, 3), 1 / 3), list("abc"), None)
    assert found.recall == pytest.approx(0.75) and found.share is None and "share" not in found.to_dict()


def test_rows_without_a_time_are_left_out():
    times = np.array([np.nan, 0.0, np.inf, 1.0])
    (found,) = scores_by_period(times, "year", LABELS, PREDICTED, PROBABILITIES, ["no", "yes"], "yes")
    assert found.rows == 2


def test_rows_without_a_time_are_counted(capsys):
    check_times(TIMES, "by=month", "day")
    check_times(np.array([np.nan, 0.0, np.nan]), "by=month", "day")
    assert "2 of 3" in capsys.readouterr().err
