"""Example rows, token rates and value distributions are those of the training rows."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.prepare import prepare
from seqclf.survey.lengths import measure_lengths
from seqclf.survey.values import example_rows, measure_channel, measure_token_rates, measure_values, typical_scores


@pytest.fixture(scope="module")
def dataset(options, tmp_path_factory):
    """Rows of "bad" hold fuel and large amounts; both classes hold food. Every tenth row has 30 tokens, cut to 8."""
    generator = np.random.default_rng(0)
    rows = []
    for row in range(200):
        bad = row % 2 == 0
        length = 30 if row % 10 == 0 else 4
        shops = generator.choice(["food", "fuel" if bad else "toys", "books"], length).tolist()
        amounts = (generator.normal(size=length) + 100 * bad).tolist()
        seconds = np.cumsum(np.full(length, 60.0)).tolist()
        rows.append({"shop": shops, "amount": amounts, "at": seconds, "label": "bad" if bad else "good"})
    path = tmp_path_factory.mktemp("content") / "t.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    fields = {"shop": "category", "amount": "number", "at": "time"}
    return prepare(options(train=path, label="label", fields=fields, max_length=8, truncate="keep_first"))


def test_examples_are_rows_of_their_class(dataset):
    examples = example_rows(dataset)
    assert {row.label for row in examples} == {"bad", "good"} and len(examples) == 6
    for row in examples:
        assert ("toys" not in row.text) if row.label == "bad" else ("fuel" not in row.text)
        assert row.length in (4, 30)
    assert example_rows(dataset) == examples, "the same ones in every survey"


def test_rates_are_shares_of_the_tokens_of_a_class(dataset):
    rates = measure_token_rates(dataset, "shop", dataset.encoders["shop"])
    split = dataset.splits["train"]
    tokens = np.array(dataset.encoders["shop"].decode({"shop": split.sequences.fields["shop"]}))
    labels = np.array(dataset.classes)[np.repeat(split.labels, split.sequences.lengths)]
    assert {rate.value for rate in rates.frequent} == {"food", "fuel", "toys", "books"}
    for rate in rates.frequent:
        assert rate.share == pytest.approx((tokens == rate.value).mean())
        for label, share in rate.rates.items():
            assert share == pytest.approx((tokens[labels == label] == rate.value).mean())
    assert [rate.value for rate in rates.typical["bad"]] == ["fuel"]
    assert [rate.value for rate in rates.typical["good"]] == ["toys"]


def test_values_that_all_classes_share_are_typical_of_none():
    """Of 2,000 values that do not depend on the class, few pass three standard errors."""
    generator = np.random.default_rng(0)
    counts = generator.poisson(50, size=(2, 2000))
    assert (typical_scores(counts) >= 3).mean() < 0.004


def test_quantiles_are_those_of_numpy_in_units_of_the_data(dataset):
    (distribution,) = measure_values(dataset, "amount", dataset.encoders["amount"]).values()
    assert distribution.by_class["bad"].p50 == pytest.approx(100, abs=1)
    assert distribution.by_class["good"].p95 == pytest.approx(1.6, abs=0.5)
    assert sum(distribution.counts) == distribution.all_rows.values == dataset.report["train"].tokens
    assert measure_values(dataset, "shop", dataset.encoders["shop"]) is None


def test_lengths_are_those_before_the_cut(dataset):
    lengths = measure_lengths(dataset)
    assert lengths.all_rows.max == 30 and max(dataset.splits["train"].sequences.lengths) == 8


@pytest.mark.parametrize("values", [[], [np.nan], [3.0, 3.0], [1.0, 2.0, 2.0, np.nan], [0.0] * 999 + [1e12]])
def test_any_values_have_a_distribution(values):
    values = np.array(values)
    distribution = measure_channel(values, {"a": np.ones(len(values), bool)})
    present = values[np.isfinite(values)]
    assert distribution.all_rows.values == len(present)
    assert sum(distribution.counts) == (len(present) if len(np.unique(present)) > 1 else 0)
    json.dumps(distribution.to_dict(), allow_nan=False)
