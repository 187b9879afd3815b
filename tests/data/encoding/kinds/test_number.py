"""Scaled numbers agree with a plain loop over each channel, with and without missing values."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.encoding.encoders import encode, encode_staged, fit_encoders, make_encoders
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION

MAYBE = st.one_of(st.none(), st.floats(-90, 90).map(lambda value: round(value, 2)))
ROWS = st.lists(st.lists(MAYBE, min_size=1, max_size=8), min_size=1, max_size=8).filter(
    lambda rows: any(value is not None for row in rows for value in row)
)


def encoded(rows, options, others=None, others_fields=(), width=1):
    """The array of the field `x`, fit on the same rows. Staged, canonical and restored encoding must agree."""
    kind = pa.list_(pa.float64()) if width == 1 else pa.list_(pa.list_(pa.float64()))
    batch = pa.record_batch({"x": pa.array(rows, kind), **(others or {})})
    encoders = make_encoders([*others_fields, Field("x", "number", ("x",), width=width, options=options)])
    staged = pa.record_batch({name: encoder.stage(batch.column(name)) for name, encoder in encoders.items()})
    fit_encoders(encoders, lambda *names: iter([staged.slice(0, 1), staged.slice(1)]))
    array = encode_staged(encoders, staged, NO_TRUNCATION).sequences.fields["x"]
    np.testing.assert_array_equal(encode(encoders, batch, NO_TRUNCATION).sequences.fields["x"], array)
    assert array.shape[1] == encoders["x"].spec()["width"]
    restored = make_encoders([*others_fields, Field("x", "number", ("x",), width=width, options=options)])
    for name, encoder in restored.items():
        encoder.restore(json.loads(json.dumps(encoders[name].state(), allow_nan=False)))
    np.testing.assert_array_equal(encode(restored, batch, NO_TRUNCATION).sequences.fields["x"], array)
    return array


@given(ROWS, st.sampled_from(["mean", "last", "zero"]))
def test_missing_values_are_filled_masked_and_dated(rows, missing):
    scaled_values = encoded(rows, {"missing": missing, "since": "tokens"})
    seen = np.array([value for row in rows for value in row if value is not None])
    mean, deviation = seen.mean(), seen.std()
    deviation = deviation if seen.min() < seen.max() else 1.0
    values, ages, index = [], [], 0
    for row in rows:
        last, seen_at = None, 0
        for token, value in enumerate(row):
            ages.append(np.log1p(token - seen_at))
            if value is not None:
                values.append((value - mean) / deviation)
                last, seen_at = values[-1], token
            else:
                fallback = {"mean": 0.0, "last": last if last is not None else 0.0, "zero": -mean / deviation}
                values.append(fallback[missing])
            assert scaled_values[index, 1] == (value is not None)
            index += 1
    np.testing.assert_allclose(scaled_values[:, 0], values, rtol=1e-4, atol=1e-5)
    ages = np.array(ages)
    spread = ages.std() if ages.std() > 1e-12 else 1.0
    np.testing.assert_allclose(scaled_values[:, 2], (ages - ages.mean()) / spread, rtol=1e-4, atol=1e-5)


def test_since_measures_the_seconds_of_a_time_field():
    clock = Field("when", "time", ("when",), width=1)
    when = pa.array([[0.0, 10.0, 40.0], [5.0]], pa.list_(pa.float64()))
    options = {"missing": "mean", "since": "when", "scale": "none"}
    scaled_values = encoded([[1.0, None, None], [None]], options, {"when": when}, [clock])
    np.testing.assert_allclose(scaled_values[:, 2], np.log1p([0, 10, 40, 0]), rtol=1e-6)


@pytest.mark.parametrize("width", [1, 3])
def test_robust_scales_are_median_and_quartiles(width):
    generator = np.random.default_rng(0)
    values = generator.standard_cauchy((200, width)) * 3 + 7
    rows = [values[:, 0].tolist()] if width == 1 else [values.tolist()]
    scaled_values = encoded(rows, {"scale": "robust"}, width=width)
    low, middle, high = np.quantile(values, (0.25, 0.5, 0.75), axis=0)
    np.testing.assert_allclose(scaled_values, (values - middle) / ((high - low) / 1.349), rtol=1e-4, atol=1e-4)


def test_logs_keep_the_sign_and_unmasked_fields_have_no_mask():
    scaled_values = encoded([[0.0, 9.0, -9.0]], {"log": True, "scale": "none"})
    np.testing.assert_allclose(scaled_values[:, 0], [0, np.log(10), -np.log(10)], rtol=1e-6)
    assert encoded([[0.0, None]], {"missing": "mean", "mask": False}).shape == (2, 1)


def test_clip_limits_values_but_not_mask_and_elapsed_time():
    rows = [[1.0, None, 2.0, 3.0, 4.0, -735.0], [5.0, 9000.0]]
    free, clipped = (
        encoded(rows, {"scale": "robust", "missing": "last", "since": "tokens", **more}) for more in ({}, {"clip": 1.5})
    )
    assert abs(free[:, 0]).max() > 100
    np.testing.assert_allclose(clipped[:, 0], np.clip(free[:, 0], -1.5, 1.5))
    np.testing.assert_array_equal(clipped[:, 1:], free[:, 1:])


def test_a_filled_zero_is_clipped_like_one_that_was_seen():
    scaled_values = encoded(
        [[0.0, None, 98.0, 100.0, 102.0, 101.0, 99.0]], {"scale": "robust", "missing": "zero", "clip": 5}
    )
    assert scaled_values[0, 0] == scaled_values[1, 0] == -5.0


def test_a_clipped_value_is_decoded_as_beyond_the_limit():
    options = {"scale": "robust", "missing": "zero", "clip": 1.0}
    encoder = make_encoders([Field("x", "number", ("x",), width=1, options=options)])["x"]
    batch = pa.record_batch({"x": pa.array([[-735.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9000.0]])})
    encoder.fit(lambda *names: iter([batch]))
    low, *inside, high = encoder.decode(encoder.encode(batch).arrays)
    assert low.startswith("≤") and high.startswith("≥")
    assert inside[2] == "3" and not any(mark in "".join(inside[1:4]) for mark in "≤≥")


def test_a_number_that_replaces_a_missing_value_is_decoded_in_parentheses():
    encoder = make_encoders([Field("x", "number", ("x",), width=1, options={"missing": "last"})])["x"]
    batch = pa.record_batch({"x": pa.array([[1.0, None, 3.0]])})
    encoder.fit(lambda *names: iter([batch]))
    assert encoder.decode(encoder.encode(batch).arrays) == ["1", "(1)", "3"]


@settings(max_examples=30)
@given(st.floats(-1e150, 1e150), st.integers(2, 50), st.sampled_from(["standard", "robust"]))
def test_a_constant_of_any_magnitude_becomes_zero(value, count, scale):
    assert (encoded([[value, value], [value] * count], {"scale": scale}) == 0).all()


NOISE = np.random.default_rng(0).standard_normal(400)


@pytest.mark.parametrize("scale", ["standard", "robust"])
@pytest.mark.parametrize("unit", [1e-30, 1e-13, 1e-6, 1e6, 1e30])
def test_scaled_values_do_not_depend_on_the_unit(unit, scale):
    expected = encoded([NOISE.tolist()], {"scale": scale})
    np.testing.assert_allclose(encoded([(NOISE * unit).tolist()], {"scale": scale}), expected, rtol=1e-5, atol=1e-6)


def test_small_changes_of_a_large_value_are_kept():
    scaled_values = encoded([(101_325 + 1e-7 * NOISE).tolist()], {})[:, 0]
    assert np.corrcoef(scaled_values, NOISE)[0, 1] > 0.999 and abs(scaled_values.std() - 1) < 0.01


@pytest.mark.parametrize(("extreme", "is_named"), [(None, False), (-999.0, False), (1e6, True), (-1e38, True)])
def test_values_far_from_the_others_are_named(extreme, is_named, capsys):
    values = [*NOISE.tolist(), *([] if extreme is None else [extreme] * 20)]
    encoded([values], {})
    assert ("field x: a value is more than 10,000 deviations from the others" in capsys.readouterr().err) == is_named


def test_extreme_numbers_at_prediction_stay_finite_in_the_model():
    encoder = make_encoders([Field("x", "number", ("x",), width=1, options={})])["x"]
    encoder.fit(lambda *names: iter([pa.record_batch({"x": pa.array([NOISE.tolist()])})]))
    scaled_values = encoder.encode(pa.record_batch({"x": pa.array([[1e38, -1e308]])})).arrays["x"]
    assert np.isfinite(scaled_values).all() and np.isfinite(scaled_values * np.float32(1e3)).all()


@pytest.mark.parametrize(
    ("options", "scaled", "masked"),
    [
        ({}, [True, True], None),
        ({"missing": "last", "since": "tokens"}, [True, True, False, False, True, True], 2),
        ({"missing": "mean", "mask": False, "since": "tokens"}, [True] * 4, None),
        ({"scale": "none", "missing": "zero", "since": "tokens"}, [False] * 6, 2),
    ],
    ids=str,
)
def test_a_spec_tells_which_channels_are_scaled_and_where_the_masks_are(options, scaled, masked):
    (scaler,) = make_encoders([Field("x", "number", ("x",), width=2, options=options)]).values()
    assert scaler.spec()["scaled"] == scaled and scaler.spec().get("masked") == masked
    assert scaler.spec()["width"] == len(scaled)
