"""Sentinels are found where a conventional number lies alone, and not among ordinary values."""

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.encoding.encoders import make_encoders
from seqclf.data.encoding.sentinels import Sentinel, find_sentinels
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError

COUNT, LENGTH = 1000, 5
PRICES = np.array([0.99, 1.99, 4.99, 9.99, 19.99, 29.99, 49.99, 99.99, 149.99, 199.99, 499.99, 999.99])
POINTS = np.array([9, 19, 49, 99, 199, 499, 999, 1999, 4999, 9999])


def drawn(generator, values):
    """(COUNT,) draws of `values`. The last values are rare in some draws."""
    weights = np.geomspace(1, 10 ** -generator.uniform(0, 2.5), len(values))
    return generator.choice(values, COUNT, p=weights / weights.sum())


def saturated(generator, low, high):
    middle, span = (low + high) / 2, high - low
    return np.clip(np.round(generator.normal(middle, span * 10 ** generator.uniform(-1, 0.5), COUNT)), low, high)


def spikes(generator):
    is_spike = generator.random(COUNT) < 0.03
    return np.where(is_spike, generator.choice([-32768, 32767], COUNT), np.round(generator.normal(0, 300, COUNT)))


ORDINARY = {
    "normal": lambda g: g.normal(g.uniform(-5, 5), 10 ** g.uniform(-2, 3), COUNT),
    "lognormal": lambda g: np.round(g.lognormal(3, 2, COUNT), 2),
    "cauchy": lambda g: g.standard_cauchy(COUNT) * 10 ** g.uniform(0, 3),
    "pareto clipped at 9999": lambda g: np.clip(np.round(g.pareto(0.5, COUNT) * 3), 0, 9999),
    "lognormal clipped at 99": lambda g: np.clip(np.round(g.lognormal(2, 1.3, COUNT)), 0, 99),
    "counts with many zeros": lambda g: (g.random(COUNT) < 0.2) * g.poisson(g.uniform(0.5, 300), COUNT),
    "prices": lambda g: drawn(g, PRICES),
    "price points": lambda g: drawn(g, POINTS),
    "prices clipped at 999.99": lambda g: np.minimum(np.round(g.gamma(2, 10 ** g.uniform(1, 3), COUNT), 2), 999.99),
    "12 bits saturated": lambda g: saturated(g, 0, 4095),
    "16 bits saturated": lambda g: saturated(g, -32768, 32767),
    "16 bits with spikes": spikes,
    "integers from -1": lambda g: g.integers(-1, g.integers(1, 200), COUNT),
    "integers to 99": lambda g: g.integers(0, 100, COUNT),
    "percents up to 99": lambda g: np.minimum(99, 100 - g.poisson(g.uniform(1, 30), COUNT)),
    "signs": lambda g: g.choice([-1, 0, 1], COUNT, p=g.dirichlet([1, 1, 1])),
    "clipped to -1 and 1": lambda g: np.clip(g.normal(0, g.uniform(0.2, 3), COUNT), -1, 1),
    "returns": lambda g: np.where(g.random(COUNT) < 0.1, -1, g.lognormal(0, 0.5, COUNT) - 1),
    "round amounts": lambda g: drawn(g, 10.0 ** np.arange(7)),
}


def found(values, length=LENGTH, batches=1):
    values = np.asarray(values, np.float64)[:, None]
    parts = [(part, np.full(len(part) // length, length)) for part in np.split(values, batches)]
    return find_sentinels(lambda: iter(parts), 1)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(ORDINARY)))
def test_ordinary_values_are_no_sentinels(seed, kind):
    assert found(ORDINARY[kind](np.random.default_rng(seed))) == []


HIDDEN = [
    (-999, lambda g: g.normal(50, 10, COUNT)),
    (9999, lambda g: g.normal(10, 10, COUNT)),
    (-1, lambda g: np.round(g.lognormal(3, 1.5, COUNT), 2)),
    (-1, lambda g: g.integers(18, 90, COUNT)),
    (999, lambda g: g.integers(18, 90, COUNT)),
    (1e30, lambda g: g.normal(0, 1, COUNT)),
    (-99.9, lambda g: g.gamma(2, 2, COUNT)),
    (99, lambda g: g.integers(1, 6, COUNT)),
    (float(np.float32(-999.9)), lambda g: g.normal(0, 1, COUNT)),
]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(HIDDEN), st.floats(0.05, 0.7), st.sampled_from([1, 4]))
def test_hidden_sentinels_are_found_and_counted(seed, hidden, share, batches):
    value, draw = hidden
    generator = np.random.default_rng(seed)
    values = np.asarray(draw(generator), np.float64)
    values[generator.random(COUNT) < share] = value
    equal = values.reshape(-1, LENGTH) == value
    assert found(values, batches=batches) == [Sentinel(0, value, int(equal.sum()), int(equal.any(axis=1).sum()))]


def test_two_sentinels_of_one_side_are_found():
    values = np.random.default_rng(0).normal(20, 5, COUNT)
    values[::10], values[1::10] = -999, -9999
    assert [sentinel.value for sentinel in found(values)] == [-9999, -999]


def test_a_number_of_one_row_is_no_sentinel():
    values = np.random.default_rng(0).normal(20, 5, COUNT)
    values[:LENGTH] = -999
    assert found(values) == []


@pytest.mark.parametrize("options", [{}, {"scale": "none"}, {"log": True, "clip": 3}, {"scale": "sequence"}])
def test_an_encoder_restores_the_sentinels_of_its_channels(options):
    values = np.random.default_rng(0).normal(20, 5, (COUNT, 2))
    values[::10, 1] = -999
    rows = pa.record_batch({"x": pa.array(values.reshape(-1, LENGTH, 2).tolist())})
    field = Field("x", "number", ("x",), width=2, options=options)
    encoder, restored = make_encoders([field])["x"], make_encoders([field])["x"]
    encoder.fit(lambda *names: iter([rows]))
    state = json.loads(json.dumps(encoder.state()))
    restored.restore(state)
    assert restored.sentinels == encoder.sentinels == [Sentinel(1, -999.0, 100, 100)]
    with pytest.raises(InputError, match=r"sentinels\[0\].channel"):
        restored.restore({**state, "sentinels": [{**state["sentinels"][0], "channel": 2}]})
