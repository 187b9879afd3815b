"""The section of scores over time."""

from types import SimpleNamespace

import pytest

from seqclf.evaluation.over_time import PeriodScores
from seqclf.report.sections.breakdowns import periods_section


def periods(count, share=0.1):
    return [
        PeriodScores(period=f"2024-{n:03}", rows=n, accuracy=0.9, recall=n / count or None, share=share, mean_score=0.2)
        for n in range(count)
    ]


@pytest.mark.parametrize(("positive", "columns"), [("yes", 6), (None, 5)])
def test_each_period_is_a_row_beside_a_picture(positive, columns):
    shown = periods(60, None if positive is None else 0.1)
    figure, table = periods_section(SimpleNamespace(periods=shown, positive=positive)).blocks
    assert len(table.rows) == 60 and len(table.columns) == len(table.rows[0]) == columns
    assert table.rows[0][:3] == ["2024-000", "0", "-"] and "<svg" in figure.drawing and "2024-000" in figure.drawing


def test_a_report_without_periods_has_no_such_section():
    assert periods_section(SimpleNamespace(periods=(), positive=None)) is None
