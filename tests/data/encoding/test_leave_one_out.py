"""Removal of a token from encoded sequences: the same as encoding the rows without it."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.encoding.encoders import encode, fit_encoders, make_encoders, removal_traces
from seqclf.data.encoding.leave_one_out import remove_tokens
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION

AT = Field("at", "time", ("at",), width=1, options={"cycles": ["hour"]})
SHOP = Field("shop", "category", ("shop",))


def amount(**options):
    return Field("amount", "number", ("amount",), width=1, options=options)


CASES = {
    "refuse": [amount()],
    "last": [amount(missing="last")],
    "last, by shop": [amount(missing="last", by="shop"), SHOP],
    "zero": [amount(missing="zero")],
    "since tokens": [amount(missing="last", since="tokens")],
    "since seconds": [AT, amount(missing="mean", since="at", scale="robust")],
    "clipped, all kinds": [AT, SHOP, amount(missing="last", since="at", log=True, clip=1)],
    **{
        f"no mask, {missing}, since {since}": [AT, amount(missing=missing, since=since, mask=False)]
        for missing in ("mean", "last", "zero")
        for since in ("tokens", "at")
    },
    "no mask, last": [amount(missing="last", mask=False)],
    "no mask, mean": [amount(missing="mean", mask=False)],
    "no mask, zero": [amount(missing="zero", mask=False)],
    "sets": [Field("codes", "set", ("codes",))],
}


def rows_of(generator, may_miss):
    rows = []
    for length in (2, 7, 3, 12, 5):
        numbers = generator.lognormal(size=length).tolist()
        rows.append(
            {
                "at": (1.7e9 + np.cumsum(generator.exponential(3600, length))).tolist(),
                "shop": generator.choice(["a", "b", "c"], length).tolist(),
                "amount": [None if may_miss and generator.random() < 0.5 else number for number in numbers],
                "codes": [generator.choice(["x", "y"], generator.integers(0, 3)).tolist() for _ in range(length)],
            }
        )
    return rows


@pytest.mark.parametrize("case", CASES)
def test_a_removed_token_leaves_the_encoded_rest_as_if_it_had_never_been_there(case):
    fields = CASES[case]
    rows = rows_of(np.random.default_rng(3), may_miss=case != "refuse")
    encoders = make_encoders(fields)
    types = {name: encoder.canonical_type for name, encoder in encoders.items()}

    def columns(rows):
        return pa.record_batch({name: pa.array([row[name] for row in rows], kind) for name, kind in types.items()})

    staged = pa.record_batch({name: encoder.stage(columns(rows).column(name)) for name, encoder in encoders.items()})
    fit_encoders(encoders, lambda *names: iter([staged.select(list(names))]))
    sequences = encode(encoders, columns(rows), NO_TRUNCATION).sequences
    traces = removal_traces(encoders, columns(rows), NO_TRUNCATION)
    copies = [(row, position) for row, values in enumerate(rows) for position in range(len(values["at"]))]
    removal = remove_tokens(sequences.offsets, *(np.array(column) for column in zip(*copies, strict=True)))
    shortened = [
        {name: values[:position] + values[position + 1 :] for name, values in rows[row].items()}
        for row, position in copies
    ]
    expected = encode(encoders, columns(shortened), NO_TRUNCATION).sequences
    assert removal.lengths.tolist() == expected.lengths.tolist()
    for name, encoder in encoders.items():
        left = encoder.without_tokens({**sequences.fields, **traces}, removal)
        width = left.shape[-1] if left.ndim > 1 and left.dtype.kind == "i" else None  # sets: of the largest
        assert left.dtype == sequences.fields[name].dtype
        if width is None:
            np.testing.assert_allclose(left, expected.fields[name], atol=2e-5)
        else:
            np.testing.assert_array_equal(left[:, : expected.fields[name].shape[1]], expected.fields[name])


@given(st.lists(st.integers(2, 9), min_size=1, max_size=5), st.data())
def test_a_removal_keeps_all_tokens_but_one(lengths, data):
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    rows = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6))
    positions = [data.draw(st.integers(0, lengths[row] - 1)) for row in rows]
    removal = remove_tokens(offsets, np.array(rows), np.array(positions))
    parts = np.split(removal.kept, removal.offsets[1:-1])
    followed = []
    for row, position, part in zip(rows, positions, parts, strict=True):
        complete = list(range(offsets[row], offsets[row + 1]))
        assert part.tolist() == complete[:position] + complete[position + 1 :]
        followed += [complete[position + 1]] if position + 1 < len(complete) else []
    assert removal.kept[removal.followers].tolist() == followed


def test_a_neutral_number_is_missing_where_it_may_be_and_keeps_its_clock():
    encoders = make_encoders([amount(missing="last", since="tokens")])
    tokens = np.array([[1.5, 1.0, 0.7]], np.float32)
    assert encoders["amount"].neutral(tokens).tolist() == [[0.0, 0.0, np.float32(0.7)]]
    assert tokens[0, 0] == 1.5, "the tokens themselves stay"
    assert make_encoders([AT])["at"].neutral(tokens).tolist() == [[0.0] * 3]
    assert make_encoders([SHOP])["shop"].neutral(np.array([4, 2])).tolist() == [0, 0]
