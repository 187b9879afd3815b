"""Unknown values and far numbers of rows: exact numbers, any size of a block, and fields that have no such measure."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

import seqclf.data.encoding.row_checks as strange_module
from seqclf.data.encoding.encoders import encode, fit_encoders, make_encoders
from seqclf.data.encoding.row_checks import StrangeMeasures
from seqclf.data.ragged import Ragged
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION


def fitted(fields, train):
    encoders = make_encoders(fields)
    batch = pa.record_batch(train)
    staged = pa.record_batch({name: encoder.stage(batch.column(name)) for name, encoder in encoders.items()})
    fit_encoders(encoders, lambda *names: iter([staged.select(list(names))]))
    return encoders


def measured(fields, train, rows):
    encoders = fitted(fields, train)
    found = StrangeMeasures(encoders).measure(encode(encoders, pa.record_batch(rows), NO_TRUNCATION).sequences)
    assert StrangeMeasures(encoders).names == list(found.columns)
    return found


def category(name, **options):
    return Field(name, "category", (name,), options=options)


def test_the_fraction_of_tokens_with_an_unknown_value_in_any_field():
    train = {"shop": [["a", "b"]], "kind": [["x", "y"]]}
    rows = {"shop": [["a", "Z", "Z", "b"], ["b"]], "kind": [["x", "Q", "y", "x"], ["Q"]]}
    found = measured([category("shop"), category("kind")], train, rows)
    assert found.columns["unknown"].tolist() == [0.5, 1.0] and found.columns["unknown"].dtype == np.float32
    assert found.unknown_tokens == 3 and list(found.columns) == ["unknown"]


def test_a_set_counts_as_one_token_and_its_padding_is_not_unknown():
    field = Field("codes", "set", ("codes",), options={"missing": "empty"})
    rows = {"codes": pa.array([[["I10", "E11"], ["I10"], []], [["Z", "Z"], ["I10", "Q"], []]])}
    found = measured([field], {"codes": pa.array([[["I10", "E11"], ["I10"]]])}, rows)
    np.testing.assert_allclose(found.columns["unknown"], [0, 2 / 3], rtol=1e-6)


def test_words_that_training_did_not_have():
    field = Field("text", "text", ("text",), options={"min_count": 1})
    found = measured([field], {"text": ["free money now"]}, {"text": ["Free lunch now !", "money"]})
    assert found.columns["unknown"].tolist() == [0.5, 0.0]


def test_the_largest_deviation_of_any_number_in_standard_deviations_of_training():
    fields = [Field("x", "number", ("x",), width=1), Field("y", "number", ("y",), width=1, options={"scale": "robust"})]
    train = {"x": [[1.0, 3.0]], "y": [[0.0, 4.0]]}  # mean 2, deviation 1; median 2, quartiles 1 and 3
    rows = {"x": [[2.0, 5.0], [1.0, 2.0]], "y": [[2.0, 2.0], [22.0, 2.0]]}
    found = measured(fields, train, rows)
    np.testing.assert_allclose(found.columns["far"], [3.0, 20 / (2 / 1.349)], rtol=1e-6)
    assert found.columns["far"].dtype == np.float32 and found.far_tokens == 1 and list(found.columns) == ["far"]


def test_masks_are_no_deviations_and_clipped_numbers_count_up_to_the_limit():
    field = Field("x", "number", ("x",), width=1, options={"missing": "mean", "clip": 5})
    found = measured([field], {"x": [[1.0, 3.0]]}, {"x": [[2.0, None], [99.0, 2.0]]})
    assert found.columns["far"].tolist() == [0.0, 5.0]


def test_with_a_scale_for_each_sequence_its_level_is_compared():
    field = Field("x", "number", ("x",), width=1, options={"scale": "sequence"})
    generator = np.random.default_rng(0)
    train = [generator.normal(5, 1, 20).tolist() for _ in range(50)]
    found = measured([field], {"x": train}, {"x": [train[0], [1000 * value for value in train[0]]]})
    assert found.columns["far"][0] < 5 < 10 < found.columns["far"][1]


@pytest.mark.parametrize(
    ("field", "train"),
    [
        (category("a", hash_size=8), [["u", "v"]]),
        (Field("a", "number", ("a",), width=1, options={"scale": "none"}), [[1.0, 2.0]]),
    ],
)
def test_hashed_values_and_unscaled_numbers_have_no_measure(field, train):
    assert StrangeMeasures(fitted([field], {"a": train})).names == []


@pytest.mark.parametrize("block", [1, 3, 10**6])
def test_rows_of_any_block_and_rows_without_tokens(monkeypatch, block):
    monkeypatch.setattr(strange_module, "BLOCK_TOKENS", block)
    encoders = fitted([category("c"), Field("x", "number", ("x",), width=1)], {"c": [["a", "b"]], "x": [[-1.0, 1.0]]})
    generator = np.random.default_rng(0)
    offsets = np.array([0, 0, 4, 9, 9, 10, 17, 17])
    ids, numbers = generator.integers(0, 3, 17), (30 * generator.normal(size=(17, 1))).astype(np.float32)
    found = StrangeMeasures(encoders).measure(Ragged(offsets, {"c": ids, "x": numbers}))
    for row, (start, stop) in enumerate(pairwise(offsets)):
        unknown, far = ids[start:stop] == 0, np.abs(numbers[start:stop])
        assert found.columns["unknown"][row] == np.float32(unknown.mean() if len(unknown) else 0)
        assert found.columns["far"][row] == far.max(initial=0)
    assert found.unknown_tokens == (ids == 0).sum() and found.far_tokens == (np.abs(numbers) > 10).sum()
