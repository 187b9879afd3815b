"""Shuffled copies of a split: the same tokens in each row, in an order that only the seed decides."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.ragged import Ragged
from seqclf.data.storage import shuffled
from seqclf.data.storage.shuffled import shuffle_split
from seqclf.data.storage.store import Split


def make_split(lengths):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    number = np.arange(offsets[-1], dtype=np.int32)
    fields = {"code": number, "amount": np.stack([number, -number], axis=1).astype(np.float32)}
    rows = len(lengths)
    return Split(Ragged(offsets, fields), np.arange(rows) % 2, pa.array(map(str, range(rows))), np.arange(1, rows + 1))


@pytest.fixture
def split():
    return make_split(np.random.default_rng(0).integers(1, 30, 200))


def test_each_row_keeps_its_tokens_in_another_order(split, tmp_path):
    copy = shuffle_split(split, tmp_path / "copy", seed=0)
    (offsets, fields, _), before = copy.sequences, split.sequences.fields
    np.testing.assert_array_equal(offsets, split.sequences.offsets)
    moved = 0
    for start, stop in pairwise(offsets):
        np.testing.assert_array_equal(np.sort(fields["code"][start:stop]), before["code"][start:stop])
        moved += stop - start > 5 and (fields["code"][start:stop] != before["code"][start:stop]).any()
    assert moved == (split.sequences.lengths > 5).sum()
    np.testing.assert_array_equal(fields["amount"], np.stack([fields["code"], -fields["code"]], axis=1))
    assert fields["amount"].dtype == np.float32 and copy.labels is split.labels


def test_every_position_is_equally_likely(tmp_path):
    split = make_split(np.full(4000, 4))
    copy = shuffle_split(split, tmp_path / "copy", seed=3).sequences.fields["code"].reshape(-1, 4)
    counts = np.stack([np.bincount(place, minlength=4) for place in (copy % 4).T])
    assert abs(counts - 1000).max() < 5 * np.sqrt(4000 * 0.25 * 0.75)


def test_the_order_depends_on_the_seed_and_not_on_the_chunks(split, tmp_path, monkeypatch):
    codes = [
        np.array(shuffle_split(split, tmp_path / f"{number}", seed).sequences.fields["code"])
        for number, seed in enumerate((0, 0, 1))
    ]
    monkeypatch.setattr(shuffled, "CHUNK_TOKENS", 7)  # less than many rows have
    in_chunks = shuffle_split(split, tmp_path / "chunks", 0).sequences.fields["code"]
    np.testing.assert_array_equal(codes[0], codes[1])
    np.testing.assert_array_equal(codes[0], in_chunks)
    assert (codes[0] != codes[2]).any()
