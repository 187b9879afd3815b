"""Sequences scaled by themselves agree with a plain loop, for any amplitude, offset, length and batch mates."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.encoding.encoders import make_encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.schema import Field


def column(rows, width=1):
    kind = pa.list_(pa.float64()) if width == 1 else pa.list_(pa.list_(pa.float64()))
    return pa.record_batch({"x": pa.array(rows, kind)})


def fitted(rows, width=1, **options):
    """An encoder with `scale: sequence`, fit on the rows in two record batches."""
    (encoder,) = make_encoders(
        [Field("x", "number", ("x",), width=width, options={"scale": "sequence", **options})]
    ).values()
    train = column(rows, width)
    encoder.fit(lambda *names: iter([train.slice(0, 1), train.slice(1)]))
    return encoder


def encoded(encoder, rows):
    return encoder.encode(column(rows, encoder.width)).arrays["x"]


def waveforms(count=60, seed=0):
    """Sequences of 1 to 40 tokens whose amplitudes and offsets range over decades."""
    generator = np.random.default_rng(seed)
    return [
        (10 ** generator.uniform(-2, 2) * generator.normal(size=1 + row % 40) + generator.normal(0, 30)).tolist()
        for row in range(count)
    ]


def test_values_and_levels_are_those_of_a_plain_loop():
    rows = waveforms()
    array = encoded(fitted(rows), rows)
    means, deviations = np.array([np.mean(row) for row in rows]), np.array([np.std(row) for row in rows])
    floor = deviations[deviations > 0].min()
    resolution = np.quantile(np.hypot(means, deviations), 0.05)
    features = [np.log(np.maximum(deviations, floor)), np.sign(means) * np.log1p(abs(means) / resolution)]
    lengths = [len(row) for row in rows]
    for channel, feature in enumerate(features, start=1):
        expected = np.repeat((feature - feature.mean()) / feature.std(), lengths)
        np.testing.assert_allclose(array[:, channel], expected, rtol=1e-5, atol=1e-6)
    expected = [
        (value - mean) / (deviation or 1.0)
        for row, mean, deviation in zip(rows, means, deviations, strict=True)
        for value in row
    ]
    np.testing.assert_allclose(array[:, 0], expected, rtol=1e-4, atol=1e-6)


ENCODER = fitted(waveforms())


@settings(max_examples=100)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(2, 300),
    st.floats(-30, 30).map(lambda exponent: 10.0**exponent),
    st.floats(-1e6, 1e6),
)
def test_scaled_values_do_not_change_with_amplitude_and_offset(seed, length, amplitude, offset):
    values = np.random.default_rng(seed).normal(size=length)
    values /= values.std()
    array = encoded(ENCODER, [values.tolist(), (amplitude * (values + offset)).tolist()])
    np.testing.assert_allclose(array[length:, 0], array[:length, 0], rtol=1e-5, atol=1e-5)


EXTREME = {
    "one token": [5.0],
    "constant": [7.25] * 30,
    "constant 0.1": [0.1] * 10_007,
    "constant zero": [0.0] * 3,
    "negative": [-5.0, -6.0, -9.0],
    "float32 limit": [3.4e38, -3.4e38, 1.0],
    "tiny": [1e-140, 2e-140, -1e-140],
    "large offset": (1e9 + 1e-4 * np.random.default_rng(0).normal(size=500)).tolist(),
    "rounding noise": np.where(np.arange(99) % 2, 1e9, np.nextafter(1e9, 2e9)).tolist(),
    "one spike": [0.0] * 999 + [1e30],
}


@pytest.mark.parametrize("train", [*EXTREME, "waveforms"])
def test_every_extreme_sequence_has_finite_features(train):
    encoder = fitted([EXTREME[train]] * 3 if train in EXTREME else waveforms())
    for name, row in EXTREME.items():
        array = encoded(encoder, [row])
        assert np.isfinite(array).all() and np.isfinite(array * np.float32(1e3)).all(), name
        assert (array[:, 1:] == array[0, 1:]).all(), name  # equal in all tokens
        varies = name not in ("one token", "constant", "constant 0.1", "constant zero", "rounding noise")
        assert (array[:, 0] != 0).any() == varies, name
        assert (abs(array[:, 0]) <= np.sqrt(len(row)) * 1.000001).all(), name


def test_a_sequence_is_encoded_alike_alone_and_among_others():
    rows = [*waveforms(), *EXTREME.values()]
    together = encoded(ENCODER, rows)
    alone = np.concatenate([encoded(ENCODER, [row]) for row in rows])
    np.testing.assert_array_equal(together, alone)
    np.testing.assert_array_equal(encoded(ENCODER, rows[::-1])[: len(rows[-1])], encoded(ENCODER, rows[-1:]))


def test_a_sequence_is_encoded_alike_next_to_missing_values():
    complete, incomplete = waveforms(), [[None, 1.0, None, 3.0], [None]]
    encoder = fitted(complete, missing="last")
    together = encoded(encoder, complete + incomplete)
    np.testing.assert_array_equal(together[: -sum(map(len, incomplete))], encoded(encoder, complete))


MAYBE = st.one_of(st.none(), st.floats(-900, 900).map(lambda value: round(value, 2)))
VECTORS = st.lists(st.lists(st.tuples(MAYBE, MAYBE).map(list), min_size=1, max_size=9), min_size=1, max_size=6)


@settings(max_examples=60)
@given(VECTORS, st.sampled_from(["mean", "last", "zero"]), st.booleans())
def test_missing_values_are_left_out_of_mean_and_deviation(rows, missing, mask):
    encoder = fitted(rows, 2, missing=missing, mask=mask, since="tokens")
    array = encoded(encoder, rows)
    assert array.shape == (sum(map(len, rows)), encoder.spec()["width"]) and np.isfinite(array).all()
    token = 0
    for row in rows:
        values = np.array(row, np.float64)
        for channel in range(2):
            part = array[token : token + len(row), channel]
            seen = ~np.isnan(values[:, channel])
            mean = values[seen, channel].mean() if seen.any() else 0.0
            deviation = values[seen, channel].std() if seen.any() else 0.0
            deviation = deviation if deviation > 1e-12 else np.inf
            np.testing.assert_allclose(part[seen], (values[seen, channel] - mean) / deviation, rtol=1e-4, atol=1e-5)
            if missing == "mean":
                assert (part[~seen] == 0).all()
            if mask:
                np.testing.assert_array_equal(array[token : token + len(row), 2 + channel], seen)
        token += len(row)


def test_a_missing_value_becomes_the_last_or_zero_in_units_of_its_sequence():
    rows = [[None, 1.0, 3.0, None], [None, None], [10.0, None, 14.0]]
    last, zero = (encoded(fitted(rows, missing=missing), rows)[:, 0].tolist() for missing in ("last", "zero"))
    assert last == [0, -1, 1, 1, 0, 0, -1, -1, 1]
    # The mean of the last sequence is 6 deviations above 0, but no value of three tokens is beyond sqrt(3).
    assert zero == pytest.approx([-2, -1, 1, -2, 0, 0, -1, -np.sqrt(3), 1], rel=1e-6)


def test_elapsed_times_are_scaled_over_all_training_tokens():
    rows = [[1.0, None, None, 2.0], [5.0, None, 7.0]]
    train = column(rows)
    field = Field("x", "number", ("x",), width=1, options={"missing": "last", "since": "tokens"})
    (standard,) = make_encoders([field]).values()
    standard.fit(lambda *names: iter([train]))
    encoder = fitted(rows, missing="last", since="tokens")
    np.testing.assert_array_equal(encoded(encoder, rows)[:, 1:3], encoded(standard, rows)[:, 1:3])


def test_logs_are_taken_before_sequences_are_scaled():
    logs = np.random.default_rng(0).uniform(0, 5, 50)
    plain, logged = [logs.tolist(), [1.0]], [np.expm1(logs).tolist(), [np.expm1(1.0)]]
    np.testing.assert_allclose(
        encoded(fitted(logged, log=True), logged), encoded(fitted(plain), plain), rtol=1e-4, atol=1e-5
    )


def test_clip_limits_values_but_not_levels():
    rows = [*waveforms(), [0.0] * 99 + [1.0]]
    free, clipped = (encoded(fitted(rows, **more), rows) for more in ({}, {"clip": 1.5}))
    assert abs(free[:, 0]).max() > 9 and abs(free[:, 1:]).max() > 1.5
    np.testing.assert_array_equal(clipped[:, 0], np.clip(free[:, 0], -1.5, 1.5))
    np.testing.assert_array_equal(clipped[:, 1:], free[:, 1:])


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0 + 1e-9 * row, -1.0] for row in range(50)],
        [[0.1 + 0.2, 0.3]] * 3 + [[0.3, 0.3]] * 3,
        [[5.0]] * 9,
        [(values / values.std()).tolist() for values in np.random.default_rng(0).normal(size=(50, 20))],
    ],
    ids=["rounded files", "rounding errors", "one value", "normalised to deviation 1"],
)
def test_rounding_errors_of_the_levels_are_not_amplified(rows):
    array = encoded(fitted(rows), rows)
    assert abs(array[:, 1]).max() < 1e-4
    if len(rows) == 50 and len(rows[0]) == 20:
        return  # the means differ indeed
    assert abs(array[:, 2]).max() < 1e-4


def test_sequences_are_decoded_from_their_levels():
    rows = [*waveforms(), [0.0, 0.0], [-1e6, 2e6], (1e9 + np.arange(9.0)).tolist()]
    encoder = fitted(rows)
    arrays = encoder.encode(column(rows)).arrays
    values = np.concatenate(rows)
    deviations = np.repeat([np.std(row) for row in rows], [len(row) for row in rows])
    error = abs(encoder.original_values(arrays)[:, 0] - values)
    assert (error <= 1e-5 * (deviations + abs(values) + 1)).all()  # the features are float32
    assert encoder.decode({"x": arrays["x"][:3]}) == [f"{value:.4g}" for value in values[:3]]


def test_copies_are_found_by_their_original_values():
    keys = ENCODER.token_keys(pa.array([[1.0, 2.0], [10.0, 20.0], [1.0, 2.0]]))[:, 0].tolist()
    assert keys[:2] == keys[4:] and not set(keys[:2]) & set(keys[2:4])


def test_truncated_sequences_are_scaled_by_the_tokens_they_keep(options, tmp_path):
    rows = [[5.0, 7.0, 1e3 * row] for row in range(20)]
    table = {"x": rows, "label": ["x", "y"] * 10}
    fields = {"x": {"kind": "number", "scale": "sequence"}}
    path = write(tmp_path / "t.parquet", table)
    dataset = prepare(options(train=path, label="label", fields=fields, max_length=2, truncate="keep_first"))
    values = dataset.splits["train"].sequences.fields["x"][:, 0]
    np.testing.assert_allclose(np.asarray(values).reshape(-1, 2), [[-1.0, 1.0]] * (len(values) // 2), rtol=1e-6)


@pytest.mark.parametrize("options", [{}, {"log": True}, {"missing": "mean", "since": "tokens"}])
def test_values_on_one_scale_are_those_of_the_standard_scale(options):
    rows = waveforms()
    (standard,) = make_encoders([Field("x", "number", ("x",), width=1, options=options)]).values()
    standard.fit(lambda *names: iter([column(rows)]))
    encoder = fitted(rows, **options)
    shared = encoder.shared_scale({"x": encoded(encoder, rows)})
    np.testing.assert_allclose(shared, encoded(standard, rows), rtol=1e-4, atol=1e-4)
    assert standard.shared_scale({"x": encoded(standard, rows)}) is None


@pytest.mark.parametrize("options", [{}, {"missing": "last"}, {"missing": "mean", "mask": False, "since": "tokens"}])
def test_levels_are_marked_as_scaled(options):
    encoder = fitted([[[1.0, 2.0]]], 2, **options)
    assert encoder.spec()["scaled"][-4:] == [True] * 4
    assert encoder.spec()["constant"] == [False] * (encoder.spec()["width"] - 4) + [True] * 4
    assert len(encoder.spec()["scaled"]) == encoder.spec()["width"] == encoded(encoder, [[[1.0, 2.0]]]).shape[1]
