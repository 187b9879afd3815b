"""The spread within sequences is that of a plain loop, and travels with the encoder to the noise of training."""

import json

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.encoding.encoders import make_encoders
from seqclf.data.encoding.scales import MIN_WITHIN, fit_within
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError
from seqclf.models.embedding import FieldEmbedding


def column(rows):
    return pa.record_batch({"x": pa.array(rows, pa.list_(pa.float64()))})


def fitted(rows, **options):
    """A number encoder, fit on the rows in two record batches."""
    (encoder,) = make_encoders([Field("x", "number", ("x",), width=1, options=options)]).values()
    train = column(rows)
    encoder.fit(lambda *names: iter([train.slice(0, 3), train.slice(3)]))
    return encoder


def offsets(ratio, count=80):
    """Sequences whose levels differ by `ratio` times their spread."""
    generator = np.random.default_rng(0)
    return [(generator.normal(0, ratio) + generator.normal(size=2 + row % 20)).tolist() for row in range(count)]


def test_the_spread_is_the_pooled_deviation_of_a_plain_loop():
    rows = offsets(5.0)
    rows[4][1] = rows[7][0] = None
    encoder = fitted(rows, missing="mean")
    seen = [np.array([value for value in row if value is not None]) for row in rows]
    scale = np.concatenate(seen).std()
    squares = sum(((row - row.mean()) ** 2).sum() for row in seen)
    expected = np.sqrt(squares / sum(len(row) - 1 for row in seen)) / scale
    assert encoder.within.tolist() == pytest.approx([expected]) and expected < 0.25
    assert encoder.spec()["within"] == [pytest.approx(expected), 1.0]  # value, mask


def test_noise_in_training_is_relative_to_the_spread_within_sequences():
    rows = offsets(9.0)
    spec = fitted(rows).spec()
    module = FieldEmbedding([spec], embedding_size=2, token_dropout=0.0, number_noise=0.5)
    noise = module.layers[0].noise.tolist()
    assert noise == pytest.approx([0.5 * spec["within"][0]]) and noise[0] < 0.07
    module = FieldEmbedding([{**spec, "within": [1.0]}], embedding_size=2, token_dropout=0.0, number_noise=0.5)
    assert module.layers[0].noise.tolist() == [0.5]


def test_spread_is_stored_and_older_states_have_a_spread_of_1():
    encoder = fitted(offsets(9.0))
    state = json.loads(json.dumps(encoder.state()))
    restored = make_encoders([encoder.field])["x"]
    restored.restore(state)
    assert restored.spec() == encoder.spec()
    older = make_encoders([encoder.field])["x"]
    older.restore({key: value for key, value in state.items() if key != "within"})
    assert "within" not in older.spec()
    with pytest.raises(InputError, match="within: must be numbers above 0"):
        older.restore({**state, "within": [0.0]})


def test_channels_without_shape_keep_the_whole_noise_and_others_have_a_minimum():
    lengths = np.array([2, 3])
    constant = np.repeat([-0.1, 0.1], lengths)
    tiny = constant + 1e-4 * np.arange(5)
    wide = np.array([-5.0, 5.0, 3.0, -3.0, 0.0])
    unknown = np.full(5, np.nan)
    values = np.stack([constant, tiny, wide, unknown], axis=1)
    assert fit_within([(values, lengths)], 4).tolist() == [1.0, MIN_WITHIN, 1.0, 1.0]
    assert fit_within([(np.empty((0, 4)), np.empty(0, np.int64))], 4).tolist() == [1.0] * 4
