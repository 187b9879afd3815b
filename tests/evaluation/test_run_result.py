"""The result of a run is read from metrics.json as it was written."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa

from seqclf.data.storage.store import SplitCounts
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.evaluation.targets import ForcingRow
from seqclf.report.verdict import verdict_of

LABELS = np.arange(40) % 2
OUTPUTS = ScoredRows(np.eye(2)[LABELS] * 3.0, LABELS, LABELS + 3, LABELS < 0)
METRICS = judge_split(OUTPUTS, ["no", "yes"], "yes", Decision(), with_intervals=True)
RESULT = RunResult(splits={"validation": replace(METRICS, used_for=["epoch"]), "test": METRICS}, decision=Decision())


def test_the_last_split_judges():
    assert (RESULT.split, RESULT.metrics, RESULT.positive, RESULT.classes) == ("test", METRICS, "yes", ["no", "yes"])
    assert RESULT.is_independent and RESULT.not_yet == []
    without_test = replace(RESULT, splits={"validation": RESULT.splits["validation"]})
    assert not without_test.is_independent and without_test.not_yet


def test_rows_of_unknown_labels_are_counted_as_wrong_in_the_verdict():
    def told(unknown):
        return replace(RESULT, data={"test": SplitCounts(used=40, refused=unknown, unknown_labels=unknown)})

    assert told(2).not_yet == [] and len(told(40).not_yet) == 1
    assert "40 of 80 rows" in verdict_of(told(40)).result and "0.500" in verdict_of(told(40)).result
    assert verdict_of(told(0)) == verdict_of(RESULT)


def test_unknown_parts_stay_unknown():
    assert RunResult.from_dict(json.loads(json.dumps(RESULT.to_dict()))) == RESULT
    assert RunResult.from_dict({"test": {"recall": 0.5}}) == RunResult.from_dict({})


def test_a_result_without_rows_names_no_row_and_no_group():
    labels, names = np.arange(80) % 2, [f"patient {row // 4}" for row in range(80)]
    logits = 3.0 * np.eye(2)[np.where(np.arange(80) < 8, 1 - labels, labels)]  # two groups are wrong in all rows
    groups, lengths = np.arange(80) // 4, np.full(80, 5)
    outputs = ScoredRows(logits, labels, lengths, lengths > 5, groups, pa.array(names))
    metrics = judge_split(outputs, ["no", "yes"], "yes", Decision(), with_intervals=False)
    row = ForcingRow("yes", "patient 0", 0.1, 500.0, 400.0, False)
    result = RunResult(splits={"test": metrics}, decision=Decision(), forcing=(row,))
    assert "patient" in json.dumps(result.to_dict()), "else the test shows nothing"
    shared = result.without_rows()
    assert "patient" not in json.dumps(shared.to_dict()) and shared.forcing == ()
    assert shared.metrics.accuracy == metrics.accuracy
