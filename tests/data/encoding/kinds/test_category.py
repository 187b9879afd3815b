"""Category ids, by count or by hash, are the same for staged and canonical rows."""

import datetime
from contextlib import nullcontext
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.encoding.kinds.category import CategoryEncoder, value_from_python
from seqclf.data.prepare_data import prepare
from seqclf.data.schema.casts import NO_INTEGER, spelled_sql, whole_number
from seqclf.data.schema.schema import Field

VALUES = st.lists(st.lists(st.sampled_from(["a", "b", "c", "d", None]), min_size=1, max_size=6), min_size=1, max_size=8)


def fitted(rows, options, values="string"):
    """The encoder and its ids of the rows it was fit on. Staged, canonical and restored encoding must agree."""
    encoder = CategoryEncoder(Field("x", "category", ("x",), values, options=options))
    kind = pa.list_(pa.string() if values == "string" else pa.int64())
    batch = pa.record_batch({"x": pa.array(rows, kind)})
    parts = [batch.slice(0, 1), batch.slice(1)]
    staged = [pa.record_batch({"x": encoder.stage(part.column("x"))}) for part in parts if part.num_rows]
    encoder.fit(lambda *names: iter(staged))
    from_staged = np.concatenate([encoder.encode_staged(part).arrays["x"] for part in staged])
    ids = encoder.encode(batch).arrays["x"]
    np.testing.assert_array_equal(from_staged, ids)
    restored = CategoryEncoder(encoder.field)
    restored.restore(encoder.state())
    np.testing.assert_array_equal(restored.encode(batch).arrays["x"], ids)
    return encoder, ids


@given(VALUES, st.integers(1, 3), st.one_of(st.none(), st.integers(1, 3)))
def test_the_most_frequent_values_come_first_and_rare_ones_are_unknown(rows, min_count, max_size):
    options = {"min_count": min_count, "max_size": max_size, "missing": "value"}
    encoder, ids = fitted(rows, options)
    flat = [value for row in rows for value in row]
    counts = {value: flat.count(value) for value in set(flat)}
    kept = encoder.vocabulary.values.to_pylist()
    assert len(kept) <= (max_size or 99) and all(counts[value] >= min_count for value in kept)
    assert [counts[value] for value in kept] == sorted((counts[value] for value in kept), reverse=True)
    dropped = [counts[value] for value in counts if value not in kept and counts[value] >= min_count]
    assert not dropped or (len(kept) == max_size and max(dropped) <= min(counts[value] for value in kept))
    assert [kept[id - 1] if id else "?" for id in ids] == [value if value in kept else "?" for value in flat]


@given(VALUES, st.integers(1, 50))
def test_hashed_ids_are_in_range_and_do_not_depend_on_the_data(rows, size):
    encoder, ids = fitted(rows, {"hash_size": size, "missing": "value"})
    assert ((ids >= 1) & (ids <= size)).all() and encoder.spec()["size"] == size + 1
    assert encoder.vocabulary.values.to_pylist() == []
    _, alone = fitted([[value] for row in rows for value in row], {"hash_size": size, "missing": "value"})
    np.testing.assert_array_equal(ids, alone)


def test_hashes_spread_values_evenly():
    _, ids = fitted([[f"merchant {number}" for number in range(20_000)]], {"hash_size": 100})
    counts = np.bincount(ids, minlength=101)[1:]
    assert counts.min() > 0.6 * 200 and counts.max() < 1.4 * 200


@pytest.mark.parametrize("options", [{}, {"hash_size": 10}])
def test_integers_get_ids_too(options):
    _, ids = fitted([[7, 7, -3], [2**60]], options, "integer")
    assert ids[0] == ids[1] != ids[3]


def test_dictionary_columns_are_encoded_like_plain_ones():
    encoder, _ = fitted([["a", "b", "a"]], {})
    coded = pa.ListArray.from_arrays([0, 3], pa.array(["b", "zebra", "a"]).dictionary_encode())
    plain = pa.array([["b", "zebra", "a"]])
    from_dictionary, from_plain = (encoder.encode(pa.record_batch({"x": x})).arrays["x"] for x in (coded, plain))
    np.testing.assert_array_equal(from_dictionary, from_plain)
    assert from_dictionary.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("value", "sql"),
    [
        (True, "true"),
        (2.0, "2.0::DOUBLE"),
        (np.float32(2.5), "2.5::FLOAT"),
        (Decimal("2.00"), "2.00::DECIMAL(5, 2)"),
        (np.uint8(7), "7::UTINYINT"),
        ("7.0", "'7.0'"),
        (" +7 ", "' +7 '"),
        ("1_000", "'1_000'"),
        ("1e3", "'1e3'"),
    ],
)
def test_a_value_of_python_is_an_integer_where_it_is_one_in_a_table(value, sql):
    with duckdb.connect() as connection:
        ((expected,),) = connection.execute(f"SELECT {whole_number(sql)}").fetchall()
    with pytest.raises(ValueError, match="is not an integer") if expected == NO_INTEGER else nullcontext():
        assert value_from_python(value, "integer") == expected


@pytest.mark.parametrize(
    ("sql", "value"),
    [
        ("1.0::DOUBLE", 1.0),
        ("1::INTEGER", 1),
        ("-0.0::DOUBLE", -0.0),
        ("0.1::FLOAT", np.float32(0.1)),
        ("1e20::DOUBLE", 1e20),
        ("1.50::DECIMAL(5, 2)", Decimal("1.50")),
        ("100::DECIMAL(5, 0)", Decimal("100")),
        ("true", np.True_),
        ("DATE '2020-01-02'", datetime.date(2020, 1, 2)),
        ("TIMESTAMP '2020-01-02 00:00:00'", datetime.datetime(2020, 1, 2)),
        ("TIMESTAMP_NS '2020-01-02 03:04:05.5'", datetime.datetime(2020, 1, 2, 3, 4, 5, 500_000)),
        ("TIMESTAMP_S '2020-01-02 03:04:05'", np.datetime64("2020-01-02T03:04:05", "s")),
        (
            "TIMESTAMPTZ '2020-01-02 01:00:00+01'",
            datetime.datetime(2020, 1, 2, 1, tzinfo=datetime.timezone(datetime.timedelta(hours=1))),
        ),
        ("'1.0'", "1.0"),
        ("'007'", "007"),
        ("'True'", "True"),
    ],
)
def test_a_typed_value_has_one_spelling(sql, value):
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'Asia/Tokyo'")
        ((kind,),) = connection.execute(f"SELECT typeof({sql})").fetchall()
        expected = value_from_python(value, "text")
        for scalar, shown in ((sql, kind), (f"[{sql}]", f"{kind}[]"), (f"[[{sql}]]", f"{kind}[][]")):
            ((text,),) = connection.execute(f"SELECT {spelled_sql(scalar, shown)}").fetchall()
            assert np.array(text, object).ravel().tolist() == [expected]


SAME = [
    (pa.array([1.0, 2.0, None]), pa.array([1, 2, None]), ["1", "2", ""]),
    (pa.array([True, False, None]), pa.array(["true", "false", None]), ["True", "False", ""]),
    (pa.array([Decimal("1.50"), Decimal("2.00")]), pa.array([1.5, 2.0]), ["1.5", "2"]),
    (
        pa.array([datetime.date(2020, 1, 2), datetime.date(2020, 1, 3)]),
        pa.array([datetime.datetime(2020, 1, 2), datetime.datetime(2020, 1, 3)]),
        ["2020-01-02"],
    ),
]


@pytest.mark.parametrize(("train", "same", "texts"), SAME)
def test_the_same_values_of_another_format_are_known(tmp_path, options, train, same, texts):
    """A vocabulary of typed values knows them in files of other types, and in CSV."""
    rows = 24

    def file(name, cells):
        cells = pa.array(cells).take(pa.array(np.arange(rows * 2) % len(cells)))
        keys = {"row": np.repeat(np.arange(rows), 2).tolist(), "y": ["a", "a", "b", "b"] * (rows // 2)}
        return write(tmp_path / name, {"x": cells.to_pylist() if name.endswith("csv") else cells, **keys})

    settings = {"label": "y", "group_by": "row", "fields": {"x": {"kind": "category", "missing": "value"}}}
    path = file("train.parquet", train)
    for name, cells in (("test.parquet", same), ("test.csv", texts)):
        dataset = prepare(options(train=path, test=file(name, cells), **settings))
        assert dataset.report["test"].unknown_tokens == 0 and len(dataset.splits["test"].labels) == rows


@pytest.mark.parametrize(
    ("words", "values"), [(["True", "False"], "boolean"), (["True", "true"], "text"), (["T", "F"], "text")]
)
def test_words_of_one_spelling_are_booleans(tmp_path, options, words, values):
    columns = {"row": np.repeat(np.arange(20), 2).tolist(), "x": words * 20, "y": ["a", "a", "b", "b"] * 10}
    keys = {"label": "y", "group_by": "row", "fields": {"x": "category"}}
    test = write(tmp_path / "test.parquet", {**columns, "x": pa.array([True, False] * 20)})
    dataset = prepare(options(train=write(tmp_path / "t.csv", columns), test=test, **keys))
    assert dataset.schema.fields[0].values == values
    assert (dataset.report["test"].unknown_tokens == 0) is (values == "boolean")
