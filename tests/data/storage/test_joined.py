"""Joined splits: the rows of all of them, in their order."""

import numpy as np
import pyarrow as pa

from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.data.write_store import join_splits


def make_split(lengths, name):
    offsets, rows = np.concatenate([[0], np.cumsum(lengths)]), len(lengths)
    number = np.random.default_rng(rows).integers(0, 100, offsets[-1])
    fields = {"code": number.astype(np.int32), "amount": np.stack([number, -number], axis=1).astype(np.float32)}
    ids = pa.array([f"{name}{row}" for row in range(rows)])
    static = {"age": np.arange(rows, dtype=np.float32)}
    return Split(Ragged(offsets, fields, static), np.arange(rows) % 2, ids, np.arange(1, rows + 1))


def test_joined_splits_hold_the_rows_of_each_in_order(tmp_path):
    splits = [make_split([3, 1, 4], "a"), make_split([2, 6], "b"), make_split([5], "c")]
    joined = join_splits(splits, tmp_path / "joined")
    assert joined.ids.to_pylist() == ["a0", "a1", "a2", "b0", "b1", "c0"]
    row = 0
    for split in splits:
        for number in range(len(split.labels)):
            start, stop = joined.sequences.offsets[row : row + 2]
            first, last = split.sequences.offsets[number : number + 2]
            for name, tokens in split.sequences.fields.items():
                np.testing.assert_array_equal(joined.sequences.fields[name][start:stop], tokens[first:last])
            assert joined.sequences.static["age"][row] == split.sequences.static["age"][number]
            assert joined.labels[row] == split.labels[number]
            row += 1
    assert row == len(joined.labels) == len(joined.sequences)
