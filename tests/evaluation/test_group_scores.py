"""The worst groups of a split, and what the report and the card say of groups."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.design_effect import group_codes
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import SplitResult, judge_split
from seqclf.report.verdict import group_sentence, row_counts

ROWS = 240
NAMES = np.repeat([f"p{number}" for number in range(12)], 20)


def outputs(names=NAMES, keys=None):
    """Rows of 12 patients, of whom p3 is right half of the time and all others always."""
    labels = np.arange(ROWS) % 2
    wrong = (names == "p3") & (np.arange(ROWS) % 4 < 2)
    predicted = np.where(wrong, 1 - labels, labels)
    keys = np.unique(names, return_inverse=True)[1] if keys is None else keys
    lengths = np.full(ROWS, 5)
    named = None if names is None else pa.array(names)
    return ScoredRows(3.0 * np.eye(2)[predicted], labels, lengths, lengths < 0, keys, named)


def metrics_of(rows, positive="yes"):
    return judge_split(rows, ["no", "yes"], positive, Decision(), with_intervals=True)


@pytest.mark.parametrize("positive", [None, "yes"])
def test_the_worst_group_comes_first(positive):
    metrics = metrics_of(outputs(), positive)
    groups = SplitResult.from_dict(metrics.to_dict()).groups
    assert (groups.unit, groups.count, groups.effective) == ("group", 12, pytest.approx(12))
    assert (groups.worst[0].title, groups.worst[0].rows, groups.worst[0].accuracy) == ("p3", 20, 0.5)
    assert groups.worst[1].accuracy == 1 and (positive is None or groups.worst[0].positive.recall == 0.5)
    assert "12 groups" in row_counts(metrics, "test")


def test_a_small_group_that_is_wrong_by_chance_is_not_the_worst():
    labels, group = np.zeros(41, int), np.repeat([0, 1], [1, 40])
    predicted = np.r_[1, np.arange(40) % 2]
    named = pa.array(["small"] + ["large"] * 40)
    rows = ScoredRows(3.0 * np.eye(2)[predicted], labels, labels, labels < 0, group, named)
    assert [entry.title for entry in metrics_of(rows, None).groups.worst] == ["large", "small"]


def test_rows_without_a_group_are_counted_and_not_named():
    names = np.where(np.arange(ROWS) < 20, None, NAMES)
    keys = np.where(np.arange(ROWS) < 20, 1000 + np.arange(ROWS), np.unique(NAMES, return_inverse=True)[1])
    groups = metrics_of(outputs(NAMES, keys)._replace(group_names=pa.array(names))).groups
    assert groups.count == 31 and {entry.title for entry in groups.worst} <= {f"p{number}" for number in range(1, 12)}


def test_equal_sequences_are_counted_and_not_named():
    groups = metrics_of(outputs()._replace(group_names=None)).groups
    assert groups.unit == "sequence" and groups.worst == [] and "12" in group_sentence(groups)


def test_rows_that_stand_alone_have_no_groups():
    metrics = metrics_of(outputs(keys=np.arange(ROWS)))
    assert metrics.groups is None and "groups" not in metrics.to_dict()
    assert group_codes(np.arange(ROWS)) is None


def test_intervals_are_wider_where_rows_come_in_groups():
    alone, grouped = (metrics_of(outputs(keys=keys)).intervals for keys in (np.arange(ROWS), None))
    assert grouped.accuracy[0] < alone.accuracy[0] - 0.02
