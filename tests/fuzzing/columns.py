"""Mutations of the columns of a valid table, applied before it is written."""

from __future__ import annotations

import datetime
import decimal
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from fuzzing.files import Columns, Raw, as_arrow, as_text, listed

HUGE = 3_000_000  # characters, more than the longest CSV line that is read
DEEP = 3000  # nested brackets, more than the recursion limit of Python
Random = np.random.Generator
WRONG = [
    "text", "", None, " ", "NaN", "inf", "1e400", Raw("1e400"), Raw("-1e400"), Raw("NaN"), 2**70, -(2**63), 1.5, True,
    [1, [2]], [["a", 1]], [[]], [], [None], ["a", 1], ["1", 2.5, None], [1e308, -1e308], [float("nan")], {"a": 1},
    [{"a": [1]}], "[1, 2", '["a", 1]', "{'a': 1}", "[1, 2]]", "2020-13-45", "2020-01-01 10:00:00", "12:30", "a\x00b",
    "\ud800", "\u202e\u200b", "a\nb", 'say "so"', "(2 (1 a)", "()", "[" * DEEP + "]" * DEEP,
    "(" * DEEP + "1" + ")" * DEEP, Raw("[" * DEEP + "]" * DEEP), Raw('{"a": ' * 200 + "1" + "}" * 200), -0.0, "1_000",
    "0x10", "\uff11\uff12", "\u0663", "1,5", "[1;2]",
]  # fmt: skip
NAMES = [
    "",
    " ",
    "label",
    "LABEL",
    "tokens2",
    'a"b',
    "a'b",
    "a\nb",
    "é",
    "\ufeffid",
    "x" * 5000,
    "id ",
    "select",
    "[0]",
    "\x00",
]


def pick(random: Random, values: Any) -> Any:
    """Return a random element."""
    return values[int(random.integers(len(values)))]


def positions(random: Random, size: int, most: int) -> list[int]:
    """Return one to `most` random positions below `size`."""
    return random.integers(0, size, 1 + int(random.integers(most))).tolist() if size else []


def _changed(columns: Columns, index: int, cells: Any) -> Columns:
    return [(name, cells if other == index else old) for other, (name, old) in enumerate(columns)]


def wrong_cells(random: Random, columns: Columns) -> Columns:
    index = int(random.integers(len(columns)))
    cells = listed(columns[index][1])
    for row in positions(random, len(cells), 3):
        cells[row] = pick(random, WRONG)
    return _changed(columns, index, cells)


def huge_cell(random: Random, columns: Columns) -> Columns:
    index = int(random.integers(len(columns)))
    cells = listed(columns[index][1])
    for row in positions(random, len(cells), 1):
        cells[row] = pick(random, ["x" * HUGE, [1] * (HUGE // 4), "word " * (HUGE // 5), '"' * HUGE])
    return _changed(columns, index, cells)


def renamed_column(random: Random, columns: Columns) -> Columns:
    index = int(random.integers(len(columns)))
    return [(pick(random, NAMES) if other == index else name, cells) for other, (name, cells) in enumerate(columns)]


def removed_column(random: Random, columns: Columns) -> Columns:
    index = int(random.integers(len(columns)))
    return [*columns[:index], *columns[index + 1 :]] if len(columns) > 2 else columns


def repeated_column(random: Random, columns: Columns) -> Columns:
    return [*columns, pick(random, columns)]


def added_column(random: Random, columns: Columns) -> Columns:
    return [(pick(random, NAMES), [pick(random, WRONG) for _ in columns[0][1]]), *columns]


def reordered_columns(random: Random, columns: Columns) -> Columns:
    return [columns[index] for index in random.permutation(len(columns))]


def swapped_columns(random: Random, columns: Columns) -> Columns:
    order = random.permutation(len(columns)).tolist()
    return [(name, columns[index][1]) for index, (name, _) in zip(order, columns, strict=True)]


def missing_column(random: Random, columns: Columns) -> Columns:
    index = int(random.integers(len(columns)))
    return _changed(columns, index, [pick(random, [None, ""])] * len(columns[index][1]))


def no_rows(random: Random, columns: Columns) -> Columns:
    count = int(random.integers(2))
    return [(name, listed(cells)[:count]) for name, cells in columns]


def repeated_rows(random: Random, columns: Columns) -> Columns:
    rows = sorted([*range(len(columns[0][1])), *positions(random, len(columns[0][1]), 9)])
    return [(name, [listed(cells)[row] for row in rows]) for name, cells in columns]


def other_type(random: Random, columns: Columns) -> Columns:
    """Change the type of a column, which only Arrow and Parquet files have."""
    index = int(random.integers(len(columns)))
    cells = listed(columns[index][1])
    return _changed(columns, index, pick(random, TYPES)(cells))


def _cast(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    """Cast cells to a type, or hashes of the cells where the cells do not fit."""

    def make(cells: list[Any]) -> pa.Array:
        numbers = [zlib.crc32(as_text(cell).encode("utf-8", "replace")) % 100 for cell in cells]
        for array in (as_arrow(cells), pa.array(numbers, pa.int64()), pa.array(numbers, pa.int32())):
            try:
                return array.cast(kind)
            except pa.ArrowException:
                continue
        return pa.array([decimal.Decimal(number) for number in numbers], kind)

    return make


def _each(kind: pa.DataType, value: Callable[[Any], Any]) -> Callable[[list[Any]], pa.Array]:
    return lambda cells: pa.array([value(cell) for cell in cells], kind)


def _lists(cells: list[Any]) -> list[list[str]]:
    return [[str(entry) for entry in cell] if isinstance(cell, list) else [str(cell)] for cell in cells]


TYPES: list[Callable[[list[Any]], pa.Array]] = [
    *map(_cast, [pa.float16(), pa.uint64(), pa.bool_(), pa.date32(), pa.timestamp("ns"), pa.decimal128(9, 2)]),
    *map(_cast, [pa.timestamp("us", "Europe/Berlin"), pa.duration("s"), pa.large_string(), pa.string_view()]),
    _each(pa.binary(), lambda cell: as_text(cell).encode("utf-8", "replace") + b"\xff"),
    _each(pa.struct({"a": pa.string()}), lambda cell: {"a": as_text(cell)}),
    _each(pa.map_(pa.string(), pa.int32()), lambda cell: [(as_text(cell), 1)]),
    _each(pa.decimal256(50, 3), lambda cell: decimal.Decimal("1.5")),
    _each(pa.time64("us"), lambda cell: datetime.time(1)),
    _each(pa.null(), lambda cell: None),
    _each(pa.list_(pa.null()), lambda cell: [None]),
    _each(pa.list_(pa.list_(pa.list_(pa.int8()))), lambda cell: [[[1], [2]], []]),
    _each(pa.list_(pa.struct({"x": pa.float64()})), lambda cell: [{"x": 1.0}, None]),
    _each(pa.list_(pa.float32(), 3), lambda cell: [1.0, 2.0, 3.0]),
    _each(pa.list_(pa.timestamp("s")), lambda cell: [1, 2]),
    _each(pa.month_day_nano_interval(), lambda cell: (1, 2, 3)),
    lambda cells: pa.array([as_text(cell).encode("utf-8", "replace").decode() for cell in cells]).dictionary_encode(),
    lambda cells: pa.array(_lists(cells), pa.large_list(pa.string())),
    lambda cells: pa.array(_lists(cells), pa.list_view(pa.string())),
    lambda cells: pa.array(_lists(cells), pa.list_(pa.dictionary(pa.int8(), pa.string()))),
]


TABLE = {
    f.__name__: f
    for f in (wrong_cells, huge_cell, renamed_column, removed_column, repeated_column, added_column, reordered_columns,
              swapped_columns, missing_column, no_rows, repeated_rows, other_type)
}  # fmt: skip
