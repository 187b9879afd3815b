"""predictions.parquet holds each evaluated row as the metrics counted it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seqclf.runs.row_outputs as predictions_module
from seqclf import InputError
from seqclf.data.schema.schema import typed_labels
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.scores import ScoredRows
from seqclf.runs.row_outputs import write_predictions

CLASSES = ["0", "1"]


def random_rows(rows, classes=2, seed=0, with_groups=True):
    generator = np.random.default_rng(seed)
    labels, lengths = generator.integers(0, classes, rows), generator.integers(1, 9, rows)
    names = pa.array([None if row % 3 == 0 else f"g{row % 5}" for row in range(rows)], pa.string())
    ids = pa.array([f"{seed}-{row}" for row in range(rows)], pa.string())
    logits = generator.normal(size=(rows, classes)).astype(np.float32)
    named = names if with_groups else None
    return ScoredRows(logits, labels, lengths, np.zeros(rows, bool), group_names=named, ids=ids)


def strange_of(outputs):
    numbers = np.arange(len(outputs.labels), dtype=np.float32)
    return {"unknown": numbers / 64, "far": 2 * numbers}


def written(path, parts, decision, classes=CLASSES, label_type="integer"):
    strange = {name: strange_of(outputs) for name, outputs in parts.items()}
    write_predictions(path, parts, decision, classes, typed_labels(classes, label_type), strange)
    return pq.read_table(path)


@pytest.mark.parametrize("row_group", [1, 7, 1000])
def test_rows_are_those_of_the_outputs_at_any_size_of_a_row_group(tmp_path, monkeypatch, row_group):
    monkeypatch.setattr(predictions_module, "GROUP_PROBABILITIES", 2 * row_group)
    decision = Decision(positive="1", temperature=2.0).with_margin("min_recall", CLASSES, -0.5, "1")
    parts = {"validation": random_rows(20), "threshold": random_rows(0), "test": random_rows(31, seed=1)}
    table = written(tmp_path / "p.parquet", parts, decision)
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == sum(-(-rows // row_group) for rows in (20, 31))
    expected = []
    for name, rows in parts.items():
        chosen, probabilities = decision.choose(rows.logits), decision.probabilities(rows.logits)
        expected += [
            {
                "id": rows.ids[row].as_py(),
                "group": rows.group_names[row].as_py(),
                "split": name,
                "label": int(rows.labels[row]),
                "prediction": int(chosen[row]),
                "probability": probabilities[row, chosen[row]],
                "probability_0": probabilities[row, 0],
                "probability_1": probabilities[row, 1],
                "unknown": row / 64,
                "far": 2.0 * row,
                "alert": bool(chosen[row]),
                "length": int(rows.lengths[row]),
            }
            for row in range(len(rows.labels))
        ]
    assert table.to_pylist() == expected


def test_without_positive_label_and_groups_the_columns_are_null(tmp_path):
    parts = {"test": random_rows(9, classes=3, with_groups=False)}
    table = written(tmp_path / "p.parquet", parts, Decision(), ["a", "b", "c"], "text")
    assert table["alert"].null_count == table["group"].null_count == 9
    assert table.schema.names[6:9] == ["probability_a", "probability_b", "probability_c"]


def test_a_failing_disk_is_named_and_leaves_no_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as raised:
        written(tmp_path / "file" / "p.parquet", {"test": random_rows(3)}, Decision(positive="1"))
    assert raised.value.where == str(tmp_path / "file" / "p.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
