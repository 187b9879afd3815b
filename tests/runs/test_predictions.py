"""predictions.parquet holds each evaluated row as the metrics counted it."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import seqclf.runs.predictions as predictions_module
from seqclf import InputError
from seqclf.data.ragged import Ragged
from seqclf.data.schema.schema import typed_labels
from seqclf.data.storage.store import Split
from seqclf.evaluation.decisions.decision import Decision
from seqclf.evaluation.results import SplitOutputs
from seqclf.runs.predictions import write_predictions

CLASSES = ["0", "1"]


def random_rows(rows, classes=2, seed=0, with_groups=True):
    """A split of random labels, and logits for its rows."""
    generator = np.random.default_rng(seed)
    labels, lengths = generator.integers(0, classes, rows), generator.integers(1, 9, rows)
    names = pa.array([None if row % 3 == 0 else f"g{row % 5}" for row in range(rows)], pa.string())
    ids = pa.array([f"{seed}-{row}" for row in range(rows)], pa.string())
    split = Split(
        *(Ragged(np.arange(rows + 1), {}), labels, ids, np.arange(rows)), group_names=names if with_groups else None
    )
    logits = generator.normal(size=(rows, classes)).astype(np.float32)
    return split, SplitOutputs(logits, labels, lengths, np.zeros(rows, bool))


def written(path, parts, decision, classes=CLASSES, label_type="integer"):
    splits, outputs = ({name: part[place] for name, part in parts.items()} for place in (0, 1))
    decisions = dict.fromkeys(outputs, decision)
    write_predictions(path, splits, outputs, decisions, classes, typed_labels(classes, label_type))
    return pq.read_table(path)


@pytest.mark.parametrize("row_group", [1, 7, 1000])
def test_rows_are_those_of_the_outputs_at_any_size_of_a_row_group(tmp_path, monkeypatch, row_group):
    monkeypatch.setattr(predictions_module, "GROUP_PROBABILITIES", 2 * row_group)
    decision = Decision(positive="1", temperature=2.0).with_margin("min_recall", CLASSES, -0.5, "1")
    parts = {"validation": random_rows(20), "threshold": random_rows(0), "test": random_rows(31, seed=1)}
    table = written(tmp_path / "p.parquet", parts, decision)
    assert pq.ParquetFile(tmp_path / "p.parquet").num_row_groups == sum(-(-rows // row_group) for rows in (20, 31))
    expected = []
    for name, (split, rows) in parts.items():
        chosen, probabilities = decision.choose(rows.logits), decision.probabilities(rows.logits)
        expected += [
            {
                "id": split.ids[row].as_py(),
                "group": split.group_names[row].as_py(),
                "split": name,
                "label": int(rows.labels[row]),
                "prediction": int(chosen[row]),
                "probability": probabilities[row, chosen[row]],
                "probability_0": probabilities[row, 0],
                "probability_1": probabilities[row, 1],
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
