"""Tables in memory as Arrow: the same values from every library, and one clear line for what has no Arrow type."""

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from seqclf.data.reading.tables import column_names, is_table, like, to_arrow
from seqclf.errors import InputError

ROWS = {"x": [1, 2], "y": [["a"], ["b", "c"]]}
TABLES = {
    "pandas": lambda: pd.DataFrame(ROWS),
    "polars": lambda: pl.DataFrame(ROWS),
    "arrow": lambda: pa.table(ROWS),
    "record batch": lambda: pa.record_batch(ROWS),
    "reader": lambda: pa.table(ROWS).to_reader(),
    "duckdb": lambda: duckdb.sql("SELECT * FROM (VALUES (1, ['a']), (2, ['b', 'c'])) AS t(x, y)"),
}


@pytest.mark.parametrize("library", TABLES)
def test_every_library_gives_the_same_rows(library):
    data = TABLES[library]()
    assert is_table(data) and column_names(data) == ["x", "y"]
    table = to_arrow(data, "data")
    assert (table.read_all() if library == "reader" else table).to_pydict() == ROWS


@pytest.mark.parametrize(
    "data",
    [["a"], {"x": [1]}, np.ones((2, 2)), pd.Series([1])],
    ids=lambda data: type(data).__name__,
)
def test_columns_and_lists_are_no_tables(data):
    assert not is_table(data)


def test_a_query_that_was_not_run_is_named():
    with pytest.raises(InputError, match=r"\.collect\(\)"):
        is_table(pl.LazyFrame({"x": [1]}))


TIME = pd.Timestamp("2020-01-01 12:00", tz="Europe/Berlin")
CELLS = {
    "categories": (pd.Series(["a", None], dtype="category"), ["a", None]),
    "numeric categories": (pd.Series([3, 4]).astype("category"), [3, 4]),
    "nullable integers": (pd.array([1, None], "Int64"), [1, None]),
    "nullable booleans": (pd.array([True, None], "boolean"), [True, None]),
    "durations": (pd.to_timedelta([1, 1500], "ms"), [0.001, 1.5]),
    "times with a zone": (pd.Series([TIME, pd.NaT]), [TIME.to_pydatetime(), None]),
    "lists": (pd.Series([[1, 2], []]), [[1, 2], []]),
    "arrays": (pd.Series([np.array([1.0, np.nan]), None]), [[1.0, None], None]),
    "masked arrays": (pd.Series([np.ma.array([1, 2], mask=[0, 1]), [3.0, np.ma.masked]]), [[1, None], [3, None]]),
    "masked vectors": (pd.Series([[np.ma.array([1, 2], mask=[0, 1])]]), [[[1, None]]]),
    "masked column": (pd.Series(np.ma.array(["a", "b"], mask=[0, 1])), ["a", None]),
    "matrices": (pd.Series([np.ones((2, 2)), np.zeros((1, 2))]), [[[1, 1], [1, 1]], [[0, 0]]]),
    "tuples": (pd.Series([(1, 2), (3,)]), [[1, 2], [3]]),
    "sets": (pd.Series([[{"a"}], [set()]]), [[["a"]], [[]]]),
    "Arrow lists": (pd.Series([[1]], dtype=pd.ArrowDtype(pa.list_(pa.int8()))), [[1]]),
    "missing texts": (pd.Series(["a", np.nan, None]), ["a", None, None]),
}


@pytest.mark.parametrize("kind", CELLS)
def test_cells_of_pandas_keep_their_values(kind):
    cells, expected = CELLS[kind]
    assert to_arrow(pd.DataFrame({"x": cells}), "data").column("x").to_pylist() == expected


NO_ARROW_TYPE = {
    "mixed": ["a", 1],
    "objects": [object()],
    "periods": pd.period_range("2020", periods=2, freq="M"),
    "intervals": pd.interval_range(0, 2),
    "list views": pd.Series([["a"]], dtype=pd.ArrowDtype(pa.list_view(pa.string()))),
}


@pytest.mark.parametrize("kind", NO_ARROW_TYPE)
def test_a_column_without_an_arrow_type_is_named(kind):
    with pytest.raises(InputError, match=r"^test: column 'x' .*(convert it, or drop it|convert or drop it)$") as raised:
        to_arrow(pd.DataFrame({"x": NO_ARROW_TYPE[kind]}), "test")
    assert "\n" not in str(raised.value)


def test_a_column_that_nobody_needs_may_hold_anything():
    frame = pd.DataFrame({"x": [1], "geometry": [object()]})
    assert to_arrow(frame, "data", columns=["x"]).to_pydict() == {"x": [1]}
    mixed = pl.DataFrame({"x": [1], "o": pl.Series([object()], dtype=pl.Object)})
    assert to_arrow(mixed, "data", columns=["x"]).to_pydict() == {"x": [1]}


PLAIN = {
    "dictionary": (pa.array(["a", "b"]).dictionary_encode(), "string"),
    "list of dictionaries": (pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), "list<item: string>"),
    "view": (pa.array(["a"], pa.string_view()), "large_string"),
    "half": (pa.array([0.5], pa.float16()), "float"),
    "run ends": (pc.run_end_encode(pa.array([1, 1])), "int64"),
    "fixed size": (pa.array([[1.0, 2.0]], pa.list_(pa.float16(), 2)), "fixed_size_list<item: float>[2]"),
}


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("streamed", [False, True])
def test_types_become_those_that_duckdb_and_parquet_have(kind, streamed):
    array, expected = PLAIN[kind]
    table = pa.table({"x": array})
    result = to_arrow(table.to_reader() if streamed else table, "data")
    assert str(result.schema.field("x").type) == expected
    rows = result.read_all() if streamed else result
    assert rows.column("x").to_pylist() == array.to_pylist()
    assert (
        duckdb.sql("SELECT * FROM rows").fetchall() == [(value,) for value in array.to_pylist()] or kind == "fixed size"
    )


def test_damaged_buffers_are_refused():
    """DuckDB trusts them and would crash."""
    offsets = pa.array([0, 1], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, pa.py_buffer(b"\xff")])
    with pytest.raises(InputError, match="column 'x' of type string cannot be read"):
        to_arrow(pa.table({"x": broken}), "data")


def test_levels_of_an_index_become_columns_where_they_are_named():
    frame = pd.DataFrame({"x": [1]}, index=pd.MultiIndex.from_tuples([("a", 7)], names=["id", "x"]))
    assert column_names(frame) == ["x", "id", "x"]
    assert to_arrow(frame, "data", index_levels=["id", "x"]).to_pydict() == {"x": [1], "id": ["a"]}
    assert to_arrow(frame, "data").to_pydict() == {"x": [1]}


@pytest.mark.parametrize(("library", "kind"), [("pandas", pd.DataFrame), ("polars", pl.DataFrame), ("arrow", pa.Table)])
def test_results_are_of_the_library_of_the_data(library, kind):
    assert isinstance(like(pa.table({"p": [0.5, 0.5]}), TABLES[library](), same_rows=True), kind)


def test_a_pandas_index_is_kept_where_the_rows_are_the_same():
    data = pd.DataFrame(ROWS, index=[5, 5])
    assert like(pa.table({"p": [0, 1]}), data, same_rows=True).index.tolist() == [5, 5]
    assert like(pa.table({"p": [0]}), data, same_rows=False).index.tolist() == [0]
