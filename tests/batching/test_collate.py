"""Padding against a plain loop over rows and tokens."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.batching.collate import pad
from seqclf.data.ragged import Ragged


@st.composite
def ragged_and_rows(draw):
    lengths = draw(st.lists(st.integers(1, 20), min_size=1, max_size=25))
    rows = draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=25))
    width = draw(st.integers(1, 4))
    generator = np.random.default_rng(draw(st.integers(0, 999)))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    fields = {
        "token": generator.integers(1, 50, offsets[-1]).astype(np.int32),
        "value": generator.standard_normal((offsets[-1], width)).astype(np.float32),
    }
    return Ragged(offsets, fields), np.array(rows)


@settings(max_examples=150, deadline=None)
@given(ragged_and_rows())
def test_pad_equals_a_plain_loop(case):
    sequences, rows = case
    fields, lengths = pad(sequences, rows)
    longest = max(sequences.lengths[row] for row in rows)
    assert lengths.dtype == np.int64
    assert lengths.tolist() == [sequences.lengths[row] for row in rows]
    for name, tokens in sequences.fields.items():
        expected = np.zeros((len(rows), longest, *tokens.shape[1:]))
        for index, row in enumerate(rows):
            for token in range(sequences.lengths[row]):
                expected[index, token] = tokens[sequences.offsets[row] + token]
        np.testing.assert_array_equal(fields[name], expected)
    assert fields["token"].dtype == np.int64
    assert fields["value"].dtype == np.float32


def test_padding_is_zero_after_a_value_that_is_nan():
    """A mask that multiplies would turn zero times NaN into NaN."""
    values = np.array([[np.nan], [1.0], [2.0]], dtype=np.float32)
    fields, _ = pad(Ragged(np.array([0, 1, 3]), {"value": values}), np.array([0, 1]))
    assert np.isnan(fields["value"][0, 0, 0])
    assert fields["value"][0, 1, 0] == 0.0


def test_several_ids_per_token_are_padded_to_the_most_that_a_token_of_the_batch_has():
    ids = np.array([[3, 1, 2, 0], [4, 0, 0, 0], [0, 0, 0, 0], [5, 6, 0, 0]], np.int32)
    sequences = Ragged(np.array([0, 1, 3, 4]), {"codes": ids})
    fields, lengths = pad(sequences, np.array([1, 2]))
    assert fields["codes"].tolist() == [[[4, 0], [0, 0]], [[5, 6], [0, 0]]] and fields["codes"].dtype == np.int64
    assert lengths.tolist() == [2, 1]
    only_empty = Ragged(np.array([0, 1]), {"codes": np.zeros((1, 4), np.int32)})
    assert pad(only_empty, np.array([0]))[0]["codes"].tolist() == [[[0]]]
