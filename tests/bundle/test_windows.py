"""Windows: lists, tables and files give the same ones, and each is predicted and explained by itself."""

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.bundle import model, windows
from seqclf.bundle.predictions import Counts, row_ids
from seqclf.data.reading.sources import Source

REFUSED = [[], None, list(range(21))]  # more than data.max_length=20


@pytest.fixture
def file(exported, tmp_path):
    sequences = exported("events").sequences
    rows = [*sequences[:9], *REFUSED, *sequences[9:]]
    pq.write_table(pa.table({"events": pa.array(rows, pa.list_(pa.int64()))}), tmp_path / "new.parquet")
    return Source(str(tmp_path / "new.parquet"), "input"), rows


def window_list(classifier, source, monkeypatch, rows=10):
    monkeypatch.setattr(model, "WINDOW_ROWS", rows)
    return list(classifier.windows(source))


def table_of(results):
    return pa.Table.from_batches([result.table for result in results])


def test_predictions_of_windows_ignore_order_repetition_and_pickling(classifier, file, monkeypatch):
    loaded = classifier("events")
    parts = window_list(loaded, file[0], monkeypatch)
    assert [part.first_row for part in parts] == [1, 11, 21, 31, 41]
    expected = [loaded.predict_batch(part.columns, part.first_row) for part in parts]
    for part, before in reversed([*zip(pickle.loads(pickle.dumps(parts)), expected, strict=True)]):
        result = pickle.loads(pickle.dumps(loaded.predict_batch(part.columns, part.first_row)))
        assert result.table.equals(before.table) and result.counts == before.counts
        assert loaded.predict_batch(part.columns, part.first_row).table.equals(result.table)
        assert part.rows.row_numbers[0] == part.first_row and part.rows.file == file[0].path
    assert table_of(expected).column("id").to_pylist() == list(range(1, 44))


def test_counts_are_those_of_the_rows(classifier, file):
    loaded, (source, rows) = classifier("events"), file
    (result,) = loaded.predict_windows(source)
    tokens = sum(len(row) for row in rows if row not in REFUSED)
    # The sequence that is too long could be encoded; it is refused after that.
    expected = Counts(43, 3, tokens, tokens + 21, result.counts.unknown, 0)
    assert result.counts == expected and result.counts.unknown >= 12  # 9 to 20 are not in the training rows


def test_lists_tables_and_files_give_the_same_predictions(classifier, file, monkeypatch):
    loaded, (source, rows) = classifier("events"), file
    monkeypatch.setattr(model, "WINDOW_ROWS", 10)
    of_list = loaded.predict(rows)
    table = loaded.predict(pq.read_table(source.path))
    of_file = table_of(loaded.predict_windows(source))
    assert table.equals(of_file.drop_columns("id"))
    names = [f"probability_{label}" for label in loaded.classes]
    for row, entry in zip(of_file.to_pylist(), of_list, strict=True):
        assert (row["prediction"], row["probability"]) == (entry["prediction"], entry["probability"])
        assert [row[name] for name in names] == list((entry["probabilities"] or dict.fromkeys(names)).values())
        assert (row["error"] is None) == (entry["error"] is None)
    np.testing.assert_array_equal(loaded.predict_proba(rows), loaded.predict_proba(pq.read_table(source.path)))


def test_ids_are_those_of_the_columns_or_numbers_from_the_first_row():
    assert row_ids(pa.record_batch({"id": ["b", "a"], "x": [1, 2]}), 5).to_pylist() == ["b", "a"]
    assert row_ids(pa.record_batch({"x": [1, 2]}), 5).to_pylist() == [5, 6]


def test_a_stream_of_record_batches_is_opened_once(classifier, exported, monkeypatch):
    """An engine such as Spark hands small record batches, and opening a source costs more than predicting one."""
    opened = []

    class Counted(windows.SourceReader):
        def __enter__(self):
            opened.append(self)
            return super().__enter__()

    monkeypatch.setattr(windows, "SourceReader", Counted)
    table = pa.table({"events": exported("events").sequences})
    reader = table.to_reader(3)
    assert classifier("events").predict(reader).read_all().num_rows == len(table) and len(opened) == 1
