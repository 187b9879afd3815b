"""The section of scores over time."""

import numpy as np
import pytest

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.metrics import confusion_metrics, label_metrics
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.slices import Slice
from seqclf.evaluation.split_result import judge_split
from seqclf.report.breakdowns import periods_section
from seqclf.report.reported import Reported

LABELS = np.arange(20) % 2


def reported(count, positive):
    rows = ScoredRows(np.eye(2)[LABELS], LABELS, LABELS + 1, LABELS < 0)
    judged = judge_split(rows, ["no", "yes"], positive, Decision(), with_intervals=False)
    result = RunResult(splits={"test": judged}, decision=Decision())
    none = confusion_metrics(np.zeros((2, 2), np.int64), ["no", "yes"])
    unranked = dict.fromkeys(RANKING_METRICS)
    block = None if positive is None else label_metrics(none, positive, unranked)
    numbers = {
        "shortest": 1,
        "longest": 2,
        "accuracy": 0.9,
        "recall": 0.5,
        "f1": 0.5,
        "mean_score": 0.2,
        "positive": block,
    }
    return Reported(result=result, periods=[Slice(title=f"2024-{n:03}", rows=n + 1, **numbers) for n in range(count)])


@pytest.mark.parametrize(("positive", "columns"), [("yes", 6), (None, 5)])
def test_each_period_is_a_row_beside_a_picture(positive, columns):
    figure, table = periods_section(reported(60, positive)).blocks
    assert len(table.rows) == 60 and len(table.columns) == len(table.rows[0]) == columns
    recall = "0.5000" if positive is None else "-"  # no row of the label
    assert table.rows[0][:3] == ["2024-000", "1", recall] and "<svg" in figure.drawing and "2024-000" in figure.drawing


def test_a_report_without_periods_has_no_such_section():
    assert periods_section(reported(0, "yes")) is None
