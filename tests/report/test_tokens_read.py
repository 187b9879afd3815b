"""The table of tokens read names budgets that give its points."""

import numpy as np

from seqclf.evaluation.tokens_curve import CurvePoint, TokensCurve
from seqclf.report.sections.tokens_read import _table


def test_each_budget_of_the_table_gives_its_row():
    shares = np.sort(np.random.default_rng(0).random(40))
    points = [
        CurvePoint(threshold=float(index), tokens=float(share), recall=0.5 + share / 2, accuracy=0.5, loss=1 - share)
        for index, share in enumerate(shares)
    ]
    points.append(CurvePoint(threshold=None, tokens=1.0, recall=1.0, accuracy=0.5, loss=0.0))
    curve = TokensCurve.of_splits({"validation": points})
    by_recall = {f"{point.recall:.4f}": point.threshold for point in points}
    for budget, _, recall, _ in _table(curve).rows:
        threshold = curve.threshold_of(float(str(budget).removesuffix(" (the bundle's)")))
        expected = by_recall[str(recall)]
        assert threshold == (float("inf") if expected is None else expected)
