"""Ragged sequences are cut and stored without loss."""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.store import SplitWriter, cut, open_split

ROWS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=12)


def ragged(rows):
    """(lengths, fields): the steps as one category and one number field of two channels."""
    steps = np.array([step for row in rows for step in row], np.int32)
    return np.array([len(row) for row in rows], np.int64), {
        "a": steps,
        "b": np.stack([steps, -steps], 1).astype(np.float32) / 2,
    }


def unrolled(sequences, name):
    return [
        sequences.fields[name][start:stop].tolist()
        for start, stop in zip(sequences.offsets, sequences.offsets[1:], strict=False)
    ]


@given(ROWS, st.data())
def test_cut_keeps_the_chosen_rows_and_their_first_or_last_steps(rows, data):
    keep = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1))))
    limit = data.draw(st.none() | st.integers(1, 10))
    side = data.draw(st.sampled_from(["error", "keep_first", "keep_last"]))
    found = cut(*ragged(rows), np.array(keep, np.int64), limit, side)
    expected = [rows[row] for row in keep]
    if limit is not None:
        expected = [row[-limit:] if side == "keep_last" else row[:limit] for row in expected]
    assert unrolled(found, "a") == expected
    assert unrolled(found, "b") == [[[step / 2, -step / 2] for step in row] for row in expected]
    assert found.lengths.tolist() == [len(row) for row in expected] and len(found) == len(expected)


@settings(max_examples=30, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_what_is_written_in_batches_is_read_back_as_one(batches):
    with tempfile.TemporaryDirectory() as folder:
        with SplitWriter(Path(folder) / "train") as writer:
            for rows in batches:
                sequences = cut(*ragged(rows), np.arange(len(rows)), None, "error")
                ids = pa.array([f"é{len(row)}" for row in rows])
                writer.append(sequences, sequences.lengths % 3, ids, np.arange(len(rows)))
        split = open_split(Path(folder) / "train")
        rows = [row for batch in batches for row in batch]
        assert unrolled(split.sequences, "a") == rows
        assert split.sequences.fields["a"].dtype == np.int32 and split.sequences.fields["b"].dtype == np.float32
        assert split.labels.tolist() == [len(row) % 3 for row in rows] and split.labels.dtype == np.int64
        assert split.ids.to_pylist() == [f"é{len(row)}" for row in rows]
        assert split.rows.tolist() == [row for batch in batches for row in range(len(batch))]


def written(folder, rows=((1, 2), (3,))):
    with SplitWriter(folder) as writer:
        sequences = cut(*ragged(rows), np.arange(len(rows)), None, "error")
        writer.append(sequences, np.zeros(len(rows)), pa.array(["x"] * len(rows)), np.arange(len(rows)))
    return folder


@pytest.mark.parametrize("name", ["field.a", "field.b", "lengths", "labels", "rows"])
def test_a_shortened_file_does_not_open(tmp_path, name):
    path = written(tmp_path / "train") / f"{name}.bin"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="different lengths"):
        open_split(tmp_path / "train")


def test_an_unfinished_split_does_not_open(tmp_path):
    with pytest.raises(RuntimeError), SplitWriter(tmp_path / "train"):
        raise RuntimeError
    with pytest.raises(FileNotFoundError):
        open_split(tmp_path / "train")
