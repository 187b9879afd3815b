"""Spreads agree with plain loops, and flattening is notable for decades and offsets only, not for ordinary data."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.data.prepare import prepare
from seqclf.survey.fields import ChannelSpread, measure_field, measure_flattening, measure_spread

MAYBE = st.one_of(st.just(np.nan), st.floats(-1e3, 1e3).map(lambda value: round(value, 2)))


@given(st.lists(st.lists(MAYBE, min_size=1, max_size=6), min_size=1, max_size=8))
def test_spread_is_that_of_a_plain_loop(rows):
    spread = measure_spread(np.concatenate(rows), np.array([len(row) for row in rows]))
    present = [[value for value in row if not np.isnan(value)] for row in rows]
    values = [value for row in present for value in row]
    if not values:
        assert spread == ChannelSpread()
        return
    assert (spread.lowest, spread.highest) == (min(values), max(values))
    assert spread.between == pytest.approx(np.std([np.mean(row) for row in present if row]), abs=1e-9)
    deviations = [np.std(row) for row in present if len(row) > 1]
    expected = np.quantile(deviations, [0.05, 0.5, 0.95]) if deviations else [None] * 3
    assert [spread.within_p5, spread.within, spread.within_p95] == pytest.approx(list(expected), abs=1e-9)


def test_the_ratio_of_deviations_needs_sequences_that_vary():
    assert measure_spread(np.array([1.0, 1.0, 2.0]), np.array([2, 1])).within_ratio is None
    assert measure_spread(np.array([1.0, 3.0, 1.0, 21.0]), np.array([2, 2])).within_ratio > 5


def flattening(family, seed, count=200):
    """`family(generator, length)`: one sequence. Lengths are drawn from 2 to 150."""
    generator = np.random.default_rng(seed)
    rows = [family(generator, int(generator.integers(2, 150))) for _ in range(count)]
    values = np.concatenate(rows).astype(np.float64).reshape(sum(map(len, rows)), -1)
    deviation = values.std(axis=0)
    scaled = ((values - values.mean(axis=0)) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    return measure_flattening(scaled, np.ones(scaled.shape, bool), np.array([len(row) for row in rows]))


FLATTENED = {
    "amplitudes over decades": lambda generator, length: 10 ** generator.uniform(-2, 2) * generator.normal(size=length),
    "waves over decades": lambda generator, length: 10 ** generator.uniform(0, 4) * np.sin(np.arange(length) / 9),
    "large offsets": lambda generator, length: generator.normal(generator.normal(0, 30), 1, length),
    "prices": lambda generator, length: (
        10 ** generator.uniform(0, 4) * np.exp(generator.normal(0, 0.02, length).cumsum())
    ),
    "three channels": lambda generator, length: 10 ** generator.uniform(-2, 2) * generator.normal(size=(length, 3)),
    "two to seven tokens": lambda generator, length: (
        10 ** generator.uniform(-2, 2) * generator.normal(size=2 + length % 6)
    ),
}
ORDINARY = {
    "normal": lambda generator, length: generator.normal(5, 2, length),
    "two to four tokens": lambda generator, length: generator.normal(5, 2, 2 + length % 3),
    "lognormal": lambda generator, length: generator.lognormal(0, 3, length),
    "cauchy": lambda generator, length: generator.standard_cauchy(length),
    "pareto": lambda generator, length: generator.pareto(0.7, length),
    "many decades within sequences": lambda generator, length: generator.lognormal(0, 8, length),
    "rare events": lambda generator, length: (generator.random(length) < 0.02) * generator.lognormal(3, 1),
    "counts": lambda generator, length: generator.poisson(0.3, length),
    "random walks": lambda generator, length: generator.normal(size=length).cumsum(),
    "waves of similar amplitude": lambda generator, length: generator.uniform(0.5, 2) * np.sin(np.arange(length) / 9),
    "offsets of two deviations": lambda generator, length: generator.normal(generator.normal(0, 2), 1, length),
    "amounts of customers": lambda generator, length: generator.lognormal(generator.normal(0, 0.5), 0.7, length),
    "one token": lambda generator, length: 10 ** generator.uniform(-2, 2) * np.ones(1),
    "constants": lambda generator, length: np.full(length, 10 ** generator.uniform(-2, 2)),
    "flags": lambda generator, length: generator.random(length) < generator.choice([0.001, 0.5]),
    "one constant": lambda generator, length: np.ones(length),
}


@pytest.mark.parametrize("family", FLATTENED)
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_one_scale_flattens_amplitudes_over_decades_and_large_offsets(family, seed):
    assert flattening(FLATTENED[family], seed).is_notable


@pytest.mark.parametrize("family", ORDINARY)
@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_one_scale_does_not_flatten_ordinary_data(family, seed):
    measured = flattening(ORDINARY[family], seed)
    assert measured is None or not measured.is_notable


def test_a_few_odd_sequences_are_not_notable():
    assert not flattening(FLATTENED["large offsets"], 0, count=15).is_notable


@pytest.mark.parametrize("scale", ["standard", "robust", "sequence", "none"])
def test_fields_are_measured_in_units_of_the_data(options, tmp_path, scale):
    generator = np.random.default_rng(0)
    rows = [
        {
            "x": [
                [float(value), None if value > 50 else float(value) * 1e-3]
                for value in generator.normal(row, 1, 2 + row % 9)
            ],
            "y": "ab"[row % 2],
        }
        for row in range(60)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    fields = {"x": {"kind": "number", "missing": "last", "scale": scale}}
    dataset = prepare(options(train=tmp_path / "t.parquet", label="y", fields=fields))
    statistics = measure_field(dataset, "x", dataset.encoders["x"])
    train = [rows[number - 1]["x"] for number in dataset.splits["train"].row_numbers]
    lengths = np.array([len(row) for row in train])
    values = np.array([token for row in train for token in row], np.float64)
    for channel, measured in enumerate(statistics.spread.values()):
        expected = measure_spread(values[:, channel], lengths)
        for name, value in expected.to_dict().items():
            assert getattr(measured, name) == pytest.approx(value, rel=1e-4, abs=1e-5), name
    assert (statistics.flattened is None) == (scale in ("sequence", "none"))
    assert type(statistics).from_dict(statistics.to_dict()) == statistics
