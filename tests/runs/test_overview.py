"""The terminal shows the rows that were dropped, and a table of scores that fits."""

import numpy as np
import pytest
from rich.cells import cell_len
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.documents.terminal import console, show_table
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import ModelResult, RunResult
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.split_result import judge_split
from seqclf.report.score_tables import short_score_table
from seqclf.runs.overview import show_dataset


def test_dropped_rows_are_counted_with_the_splits(options, tmp_path):
    train = {"x": [[row, 1] for row in range(24)], "y": ["p", "q"] * 12}
    test = {"x": [[0, 1], [90, 1], [91, 1], [3, 1]], "y": ["p", "q", "p", "q"]}
    files = {name: write(tmp_path / f"{name}.parquet", rows) for name, rows in (("train", train), ("test", test))}
    with console.capture() as captured:
        show_dataset(prepare(options(**files, label="y", fields={"x": "category"}, split={"on_leak": "drop"})))
    assert "  test: dropped 2 rows that share a sequence or an id with another split" in captured.get().splitlines()


def scored(labels, positive):
    generator = np.random.default_rng(0)
    truth = np.arange(60) % len(labels)
    outputs = ScoredRows(generator.normal(size=(60, len(labels))), truth, truth + 1, truth < 0)
    judged = judge_split(outputs, labels, positive, Decision(), with_intervals=True)
    baseline = ModelResult.from_dict(
        {"name": "order-blind", "kind": "logistic regression", "comparisons": [], **judged.to_dict()}
    )
    splits = dict.fromkeys(("train", "validation", "test"), judged)
    return RunResult(splits=splits, decision=Decision(), baseline=baseline)


@pytest.mark.parametrize("positive", [None, "非常に長いラベル" * 5])
@pytest.mark.parametrize("width", [70, 200])
def test_the_table_of_scores_fits_the_terminal_with_every_number_whole(positive, width, monkeypatch):
    result = scored([positive or "3", "other"], positive)
    monkeypatch.setattr(console, "_width", width)
    table = short_score_table(result)
    with console.capture() as captured:
        show_table(table)
    lines = captured.get().splitlines()
    assert max(map(cell_len, lines)) <= width
    judged = [[cell for cell in row[1:4] if cell in captured.get()] for row in table.rows]
    assert judged == [list(row[1:4]) for row in table.rows], "the scores of the model and of the baseline are whole"
    assert [row[0] for row in table.rows][::2] == ["macro recall", "accuracy"]
