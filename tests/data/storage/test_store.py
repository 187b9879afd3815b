"""Ragged sequences are stored and read back without loss."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.data.storage.store import Split, SplitWriter, open_split

ROWS = st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=12)


def ragged(rows):
    """(lengths, fields) with the tokens as a category field and as a number field of two channels."""
    tokens = np.array([token for row in rows for token in row], np.int32)
    return np.array([len(row) for row in rows], np.int64), {
        "a": tokens,
        "b": np.stack([tokens, -tokens], 1).astype(np.float32) / 2,
    }


@settings(max_examples=30, deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=4))
def test_batches_are_read_back_as_one_split(batches):
    with tempfile.TemporaryDirectory() as folder:
        with SplitWriter(Path(folder) / "train") as writer:
            for rows in batches:
                sequences = NO_TRUNCATION.cut_tokens(*ragged(rows))
                ids = pa.array([f"é{len(row)}" for row in rows])
                writer.append(Split(sequences, sequences.lengths % 3, ids, np.arange(len(rows))))
        split = open_split(Path(folder) / "train")
        rows = [row for batch in batches for row in batch]
        offsets, fields, _ = split.sequences
        assert [fields["a"][start:stop].tolist() for start, stop in pairwise(offsets)] == rows
        assert split.sequences.fields["a"].dtype == np.int32 and split.sequences.fields["b"].dtype == np.float32
        assert split.labels.tolist() == [len(row) % 3 for row in rows] and split.labels.dtype == np.int64
        assert split.ids.to_pylist() == [f"é{len(row)}" for row in rows]
        assert split.row_numbers.tolist() == [row for batch in batches for row in range(len(batch))]


@pytest.mark.parametrize("name", ["field.a", "field.b", "lengths", "labels", "rows"])
def test_a_shortened_file_does_not_open(tmp_path, name):
    with SplitWriter(tmp_path / "train") as writer:
        sequences = NO_TRUNCATION.cut_tokens(*ragged([[1, 2], [3]]))
        writer.append(Split(sequences, np.zeros(2), pa.array(["x", "y"]), np.arange(2)))
    path = tmp_path / "train" / f"{name}.bin"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match="different lengths"):
        open_split(tmp_path / "train")


def test_an_unfinished_split_does_not_open(tmp_path):
    with pytest.raises(RuntimeError), SplitWriter(tmp_path / "train"):
        raise RuntimeError
    with pytest.raises(FileNotFoundError):
        open_split(tmp_path / "train")
