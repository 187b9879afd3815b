"""Labels in a table of their own are those a dictionary would find."""

import numpy as np
import pyarrow as pa
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source
from seqclf.data.schema.rows import joined_key
from seqclf.errors import InputError


def test_look_up_agrees_with_a_dictionary(tmp_path):
    generator = np.random.default_rng(0)
    ids = [f"{value:x}" for value in generator.choice(10_000, 500, replace=False)] + ["ü", "日本", ""]
    labels = [str(value % 3) for value in range(len(ids))]
    searched = [f"{value:x}" for value in generator.integers(0, 10_000, 300)] + ["ü", "日本", "u", ""]
    label_of = {id: label for id, label in zip(ids, labels, strict=True) if id}  # nothing is no id
    path = write(tmp_path / "labels.parquet", {"id": ids * 2, "y": labels * 2})  # the same label twice is none too many
    found = LabelTable(Source(str(path), "data.labels"), ("id",), "y").look_up(pa.array(searched))["label"]
    assert found.to_pylist() == [label_of.get(id) for id in searched]


def test_two_labels_of_one_id_are_refused(tmp_path):
    write(tmp_path / "a.csv", {"id": ["x", "b"], "y": [2, 1]})
    write(tmp_path / "b.csv", {"id": ["b", "x"], "y": [2, 2]})
    with pytest.raises(InputError, match="'b' has two values of y, 1 and 2; keep one"):
        LabelTable(Source(str(tmp_path / "*.csv"), "data.labels"), ("id",), "y")


@pytest.fixture
def files(tmp_path):
    rows = {"card": [0, 0, 1, 2, 2, 3, 4, 5], "shop": list("abcdefgh")}
    events = write(
        tmp_path / "events.parquet", {**rows, "card": [c + 6 * (p // 8) for p, c in enumerate(rows["card"])]}
    )
    labels = {"card": [0, 1, 2, 3, 4, 9], "fraud": ["y", "n", "y", "n", "y", "n"], "when": [5, 4, 3, 2, 1, 0]}
    return {"train": events, "labels": write(tmp_path / "labels.csv", labels)}


def labels_by_id(dataset):
    rows = [(split.ids.to_pylist(), split.labels) for split in dataset.splits.values()]
    return {id: dataset.classes[label] for ids, labels in rows for id, label in zip(ids, labels, strict=True)}


def test_groups_without_a_label_are_refused(options, files):
    settings = {"label": "fraud", "group_by": "card", "fields": {"shop": "category"}, "max_bad_share": 0.5}
    dataset = prepare(options(**files, **settings, split={"validation": 0.4}))
    assert labels_by_id(dataset) == {"0": "y", "1": "n", "2": "y", "3": "n", "4": "y"}
    assert '"row": 8' in (dataset.folder / "quarantine.jsonl").read_text()


def test_the_table_of_labels_may_say_how_to_split(options, files):
    settings = {"label": "fraud", "group_by": "card", "fields": {"shop": "category"}, "max_bad_share": 0.5}
    dataset = prepare(options(**files, **settings, split={"by": "time", "column": "when", "validation": 0.4}))
    assert dataset.splits["validation"].ids.to_pylist() == ["0", "1"]


def test_rows_of_sequences_are_joined_by_their_id(options, tmp_path):
    rows = {"key": [f"k{row}" for row in range(10)], "x": [[row, 1] for row in range(10)]}
    labels = {"key": [f"k{row}" for row in reversed(range(10))], "y": ["a", "b"] * 5}
    dataset = prepare(
        options(
            train=write(tmp_path / "t.parquet", rows), labels=write(tmp_path / "l.csv", labels), label="y", id="key"
        )
    )
    assert labels_by_id(dataset) == dict(zip(*labels.values(), strict=True))


def test_a_key_with_the_separator_in_it_is_no_other_key(tmp_path):
    columns = {"one": ["u | v", "u", None], "two": ["w", "v | w", "x"], "y": ["1", "2", "3"]}
    table = LabelTable(Source(str(write(tmp_path / "l.parquet", columns)), "data.labels"), ("one", "two"), "y")
    keys = joined_key([pa.array(columns["one"]), pa.array(columns["two"])])
    assert len(set(keys.to_pylist())) == 3 and keys[2].as_py() is None
    assert table.look_up(keys)["label"].to_pylist() == ["1", "2", None]


def test_a_row_without_an_id_gets_no_label(options, tmp_path):
    """Not even that of a row of the table which has no id either."""
    ids = [f"r{row}" for row in range(18)]
    train = write(tmp_path / "train.parquet", {"id": [*ids, None, None], "x": [[1, 2]] * 20})
    labels = write(tmp_path / "labels.parquet", {"id": [*ids, None, ""], "y": ["a", "b"] * 10})
    dataset = prepare(options(train=train, labels=labels, label="y", id="id", fields={"x": "category"}))
    assert sum(counts.used for counts in dataset.report.values()) == 18
    assert dataset.report["train"].refused == 2
