"""Cells of any type are read as what they say, or refused: never rounded, renamed or merged."""

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest
from support.table_files import LABELS, read, sample, write

from seqclf.data.encoding.declaration import build_schema
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import NO_INTEGER, formatted_seconds, formatted_seconds_sql, quote_literal, seconds_sql
from seqclf.data.schema.schema import Field, Schema
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions


def tokens(path, kind, values="string", width=None, separator=None):
    """What `read` gives for column x as a field of that kind."""
    schema = Schema((Field("x", kind, "x", values, width, separator),))
    return [row for batch in read(Source(str(path), "data.train"), schema) for row in batch.columns["x"].to_pylist()]


def inferred(path):
    (field,) = build_schema(sample(Source(str(path), "k"), 99), "file", DataOptions.build(label="label")).fields
    return field.kind, field.values if field.kind == "category" else field.width


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("[1, 2]", [1, 2]),
        ("[1.0, 2.]", [1, 2]),
        ("[1.5, 2]", [NO_INTEGER, 2]),
        ("[1e3, 2]", [NO_INTEGER, 2]),
        ("[1, x]", [1, NO_INTEGER]),
        ("[007, +7, 1_1, null]", [NO_INTEGER, NO_INTEGER, NO_INTEGER, None]),
        ("[18446744073709551615]", [NO_INTEGER]),
        ("[9223372036854775807]", [9223372036854775807]),
        ("hello", None),
        ("7", None),
        (" ", None),
        ("[]", []),
    ],
)
def test_integers_in_text_are_exact_or_refused(tmp_path, cell, expected):
    path = write(tmp_path / "t.csv", {"x": [cell]})
    assert tokens(path, "category", "integer") == [expected]


@pytest.mark.parametrize("column", [[[1.5, 2.0]], [["1.5", "2"]], [[Decimal("1.5"), Decimal("2.0")]]])
def test_integers_in_typed_columns_are_exact_or_refused(tmp_path, column):
    path = write(tmp_path / "t.parquet", {"x": column})
    assert tokens(path, "category", "integer") == [[NO_INTEGER, 2]]


@pytest.mark.parametrize(
    "values",
    [["a,b", "[c]", "{d}"], ['say "hi"', "back\\slash"], ["null", ""], ["line\nbreak", "tab\t"], ["é", "1.50"]],
)
def test_strings_in_a_bracketed_cell_are_read_as_json(tmp_path, values):
    assert tokens(write(tmp_path / "t.csv", {"x": [values]}), "category") == [values]
    assert tokens(write(tmp_path / "t.jsonl", {"x": [values]}), "category") == [values]


@pytest.mark.parametrize("separator", [" ", ";", "|", ".", "->", "\\", "'"])
def test_any_separator_is_taken_literally(tmp_path, separator):
    path = write(tmp_path / "t.csv", {"x": [f"a{separator}b{separator}c", f" a {separator} b "]})
    assert tokens(path, "category", separator=separator) == [["a", "b", "c"], ["a", "b"]]


def test_tokens_of_one_number_may_be_lists_of_length_one(tmp_path):
    rows = [[[1.5], [2.5]], [[3.5]]]
    assert tokens(write(tmp_path / "t.csv", {"x": rows}), "number", width=1) == [[1.5, 2.5], [3.5]]
    assert tokens(write(tmp_path / "t.parquet", {"x": rows}), "number", width=1) == rows
    assert tokens(write(tmp_path / "r.csv", {"x": [[[1, 2], [3]]]}), "number", width=1) == [[None, 3.0]]


def test_mixed_types_in_json_lines_lose_no_quotes_or_values(tmp_path):
    path = write(tmp_path / "t.jsonl", {"x": [["a", 1], ["b", True], "text", None], "label": ["a", 1, "b", "b"]})
    assert tokens(path, "category") == [["a", "1"], ["b", "true"], None, None]
    schema = Schema((Field("x", "category", ("x",)),), "label")
    (batch,) = read(Source(str(path), "data.train"), schema)
    assert batch.columns["label"].to_pylist() == ["a", "1", "b", "b"]
    assert batch.columns["raw x"].to_pylist()[2] == "text"


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([[2**64 - 1, 5]] * 20, pa.list_(pa.uint64())), ("category", "text")),
        (pa.array([[5]] * 19 + [[2**64 - 1]], pa.list_(pa.uint64())), ("category", "text")),
        (pa.array([[True, False]] * 20), ("category", "boolean")),
        (pa.array([[Decimal("1.50")]] * 20), ("number", 1)),
        (pa.array([[1, 2]] * 20, pa.list_(pa.int8())), ("category", "integer")),
        (pa.array([[-1, 2]] * 20), ("number", 1)),
        (pa.array([[[1, 2]]] * 20), ("number", 2)),
    ],
)
def test_columns_of_unusual_types_keep_every_value(tmp_path, column, expected):
    path = write(tmp_path / "t.parquet", {"x": column, "label": LABELS})
    assert inferred(path) == expected
    kind, detail = expected
    values, width = (detail, None) if kind == "category" else ("string", detail)
    texts = [[token if values == "integer" else str(token).lower() for token in row] for row in column.to_pylist()]
    numbers = (
        [[[float(v) for v in token] if width == 2 else float(token) for token in row] for row in column.to_pylist()]
        if (kind == "number")
        else texts
    )
    assert tokens(path, kind, values, width) == numbers


@pytest.mark.parametrize(
    ("column", "kind", "message"),
    [
        ([1, 2], "number", r"t.parquet: column 'x' holds BIGINT, not lists"),
        ([[1], [2]], "text", r"t.parquet: column 'x' holds lists \(BIGINT\[\]\), not text"),
    ],
)
def test_a_column_of_another_shape_is_named(tmp_path, column, kind, message):
    with pytest.raises(InputError, match=message):
        tokens(write(tmp_path / "t.parquet", {"x": column}), kind)


MOMENTS = {
    "2024-01-01": 1704067200.0,
    "2024-01-01 10:30": 1704105000.0,
    "2024-01-01T10:30:15.25": 1704105015.25,
    " 2024/01/01 10:30:00 ": 1704105000.0,
    "2024-01-01T02:01:00+02:00": 1704067260.0,
    "2024-01-01 00:00:00-0530": 1704087000.0,
    "2024-01-01 00:00:00+01": 1704063600.0,
    "1700000000.5": 1700000000.5,
    "47:30": 171000.0,
    "1:02:03.5": 3723.5,
    "2 days 01:00:00": 176400.0,
    "2024-01-01 10:00 garbage": None,
    "2024-01-01 1:00 PM": None,
    "1:00 AM": None,
    "10:00x": None,
    "soon": None,
}


@pytest.mark.parametrize("text", MOMENTS)
def test_text_is_a_time_only_if_all_of_it_is(text):
    query = f"SELECT {seconds_sql('given')} FROM (SELECT {quote_literal(text)} AS given)"
    assert duckdb.connect().execute(query).fetchone() == (MOMENTS[text],)


CLOCK = "2000-07-10 13:55:36"
SHIFTS = {"+0000": 0, "-0700": 7, "-07:00": 7, "-07": 7, "+0530": -5.5, "Z": 0}  # zone → hours to add for UTC
NAMES = {"UTC": 0, "gmt": 0, "EST": 5, "Europe/Berlin": -2, "America/Los_Angeles": 7}
ZONED = [
    *((f"{CLOCK} {zone}", "%Y-%m-%d %H:%M:%S %z", hours) for zone, hours in SHIFTS.items()),
    *((f" {CLOCK}{zone} ", "%Y-%m-%d %H:%M:%S%z", hours) for zone, hours in SHIFTS.items()),
    *((f"[{zone}] {CLOCK}", "[%z] %Y-%m-%d %H:%M:%S", hours) for zone, hours in SHIFTS.items() if zone != "Z"),
    *((f"{CLOCK} {zone}", "%Y-%m-%d %H:%M:%S %Z", hours) for zone, hours in NAMES.items()),
    *((f"{zone} {CLOCK}", "%Z %Y-%m-%d %H:%M:%S", hours) for zone, hours in NAMES.items()),
    *((f"{CLOCK} {zone}", "%Y-%m-%d %H:%M:%S %Z", None) for zone in ("Nowhere", "", "-0700")),
    *((f"{CLOCK} {zone}", "%Y-%m-%d %H:%M:%S %z", None) for zone in ("UTC", "", "07", "2024")),
    (f"{CLOCK}.25 +0100", "%Y-%m-%d %H:%M:%S.%f %z", -1 + 0.25 / 3600),
    (f"{CLOCK} %z", "%Y-%m-%d %H:%M:%S %%z", 0),
    (CLOCK, "%Y-%m-%d %H:%M:%S", 0),
]


@pytest.mark.parametrize(("text", "pattern", "hours"), ZONED)
@pytest.mark.parametrize("machine", ["UTC", "America/New_York"])
def test_a_format_with_a_zone_gives_equal_seconds_in_files_and_in_memory(text, pattern, hours, machine):
    with duckdb.connect() as connection:
        connection.execute(f"SET TimeZone = '{machine}'")
        sql = formatted_seconds_sql(quote_literal(text), pattern)
        (in_file,) = connection.execute(f"SELECT {sql}").fetchone()
    if hours is None:
        with pytest.raises(ValueError, match="does not match"):
            formatted_seconds(text, pattern)
        assert in_file is None
    else:
        assert in_file == formatted_seconds(text, pattern) == 963237336 + 3600 * hours
