"""DuckDB expressions that turn cells of any type into canonical values, and the names of canonical columns.

Encoders get canonical columns, of one type per field kind. Those that are no fields have a space in their names;
`label` and `id` are no names of fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from seqclf.data.schema.cell_types import MISSING_WORDS, Spelled
from seqclf.errors import RefusedValueError

LABEL, ID = "label", "id"
TIME, TIME_END, ROW = "split time", "last split time", "row number"
FILE = "in file\x1f"  # read beside the columns of a file, none of which may have this name
GROUP, GROUP_NAME = "key of the group", "name of the group"
WEIGHT, COST = "weight of the row", "cost of a missed row"  # numbers of `data.weight` and `data.cost`
UNLABELLED = "not in the label table"  # true for a sequence whose id is in no row of `data.labels`
UNORDERED = "unordered cells"  # cell of `data.order_by` of each event, null if the cell is a number or a time
SHOWN_CHARACTERS = 40  # maximum number of characters of a cell in an error message
TEXT_TYPES = ("VARCHAR", "JSON")
ZONED_TYPES = ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
NO_INTEGER = -(2**63)  # stands for a value other than an integer; row checks reject its row
WHOLE_NUMBER = r"regexp_full_match(trim({value}), '-?(0|[1-9][0-9]*)([.]0*)?')"  # 007 is another code than 7
WHOLE_KEY = r"^\s*(?:-?(0)|(-?[1-9][0-9]*))(?:[.]0*)?\s*$"
WHOLE_NUMBER_TYPES = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?\b")


def raw_column(field: str) -> str:
    """Return the name of the column with the first characters of each text cell of `field`, which errors quote."""
    return f"raw {field}"


def quote_identifier(name: str) -> str:
    """Quote a column name for use in SQL.

    >>> print(quote_identifier('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def plain(column: str, kind: str, table: str = "") -> str:
    """Return the SQL of a column of the DuckDB type `kind`, JSON values as text without quotes. `table`: alias."""
    name = f"{table}.{quote_identifier(column)}" if table else quote_identifier(column)
    return f"({name} ->> '$')" if kind == "JSON" else name


def key_sql(column: str, kind: str) -> str:
    """Return the SQL of a column of ids, group keys or labels. `kind`: DuckDB type of the column.

    Keys meet as text, by `spelled_sql` or `rows.as_text`. A text of an untyped format such as CSV, which may write 1 as
    1.0, is spelled like the number, and so is a number among JSON texts. Bytes become text, hexadecimal unless UTF-8.
    """
    value = plain(column, kind)
    if kind == "BLOB":
        return f"COALESCE(TRY(decode({value})), hex({value}))"
    whole = f"regexp_replace({value}, '{WHOLE_KEY}', '\\1\\2')"
    if kind == "JSON":
        return f"CASE WHEN json_type({quote_identifier(column)}) = 'DOUBLE' THEN {whole} ELSE {value} END"
    return whole if isinstance(kind, Spelled) else value


def is_nested(kind: str) -> bool:
    """Return True for DuckDB types that hold several values, such as lists and structs."""
    return kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))


def element_type(kind: str) -> str:
    """Return the DuckDB type of the elements of a list type.

    >>> element_type("DOUBLE[][3]"), element_type("JSON")
    ('DOUBLE[]', 'JSON')
    """
    return kind[: kind.rindex("[")] if kind.endswith("]") else kind


def spelled_sql(value: str, kind: str) -> str:
    """Return SQL that converts a value, or the values of a list, of the DuckDB type `kind` to text.

    Equal values of different types get the same text, such as 1 and 1.0, or a day and its midnight. Text remains
    unchanged. NaN becomes null, and so do bytes that are not UTF-8. `rows.as_text` and `category.value_from_python`
    spell values alike.
    """
    if kind.endswith("]"):
        entry = f"entry{kind.count('[')}"
        return f"list_transform({value}, lambda {entry}: {spelled_sql(entry, element_type(kind))})"
    text = f"CAST({value} AS VARCHAR)"
    if kind in ("DOUBLE", "FLOAT"):
        is_whole = f"{value} = trunc({value}) AND abs({value}) < 9007199254740992"
        whole = f"CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR)"
        return f"CASE WHEN {is_whole} THEN {whole} WHEN NOT isnan({value}) THEN {text} END"
    if kind == "BLOB":
        return f"TRY(decode({value}))"
    if kind.startswith("DECIMAL"):
        return f"CASE WHEN contains({text}, '.') THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"
    if kind.startswith("TIMESTAMP"):
        # A time is converted to UTC, so that its text does not depend on the time zone of the machine.
        in_utc = f"CAST({value} AS TIMESTAMPTZ) AT TIME ZONE 'UTC'"
        moment = in_utc if kind in ZONED_TYPES else f"CAST({value} AS TIMESTAMP)"
        return f"regexp_replace(CAST({moment} AS VARCHAR), ' 00:00:00$', '')"
    return text


def boolean_sql(text: str) -> str:
    """Return SQL that converts texts such as True and TRUE to `true`, as DuckDB writes booleans. Others stay."""
    return f"CASE WHEN lower(trim({text})) IN ('true', 'false') THEN lower(trim({text})) ELSE {text} END"


def number(text: str) -> str:
    """Return SQL that converts text to a number, words for missing values to null, and others to infinity."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return (
        f"COALESCE(TRY_CAST({text} AS DOUBLE), "
        f"CASE WHEN COALESCE(lower(trim({text})), '') NOT IN ({missing}) THEN 'inf'::DOUBLE END)"
    )


def is_missing_sql(text: str) -> str:
    """Return SQL that is true for null, blank text, or a word such as NA, which keys may be (see `is_blank_sql`)."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return f"COALESCE(lower(regexp_replace({text}, '^[\\s\\pZ]+|[\\s\\pZ]+$', '', 'g')), '') IN ({missing})"


def is_blank_sql(text: str) -> str:
    """Return SQL that is true for null and for blank text, which alone are no keys."""
    return f"COALESCE(regexp_full_match({text}, '[\\s\\pZ]*'), true)"


def split_list(cell: str, separator: str | None) -> str:
    """Return SQL that splits a text cell into a list of texts."""
    if separator is None:
        return f"TRY_CAST({cell} AS VARCHAR[])"
    pattern = r"\s+" if separator.isspace() else r"\s*" + re.escape(separator) + r"\s*"
    return f"regexp_split_to_array({cell}, {quote_literal(pattern)})"


def bracketed_texts(cell: str, depth: int = 1) -> str:
    """Return SQL that parses a bracketed text cell as a list of texts, or for `depth` 2 as a list of lists."""
    kind = "VARCHAR" + "[]" * depth
    # Only the JSON parser reads escapes such as \n and \u00e9, but it changes the text of numbers (1.50 becomes 1.5).
    return (
        f"CASE WHEN contains({cell}, '\\') THEN COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS {kind}), "
        f"TRY_CAST({cell} AS {kind})) ELSE TRY_CAST({cell} AS {kind}) END"
    )


def bracketed_numbers(cell: str, kind: str) -> str:
    """Return SQL that parses a bracketed text cell as a list of numbers. `kind`: DuckDB type of the list."""
    # Both casts give the same numbers. The cast through JSON is three times as fast, but drops an empty last element.
    fast = f"CASE WHEN NOT regexp_matches({cell}, ',\\s*\\]') THEN TRY_CAST(TRY_CAST({cell} AS JSON) AS {kind}) END"
    return f"COALESCE({fast}, TRY_CAST({cell} AS {kind}))"


def may_hold_others(cell: str, separator: str | None) -> str:
    """Return SQL that is true for a text cell with other than integers of 64 bits, such as 1.5, 007 or a word."""
    others = rf"[^][,0-9\s{re.escape(separator or '')}-]|(^|[^0-9])0[0-9]|[0-9]{{19}}"
    return f"regexp_matches({cell}, {quote_literal(others)})"


def whole_number(value: str) -> str:
    """Return SQL that converts 2 and 2.0 to 2, a missing value to null, and 2.5, 007 or x to NO_INTEGER."""
    text = f"CAST({value} AS VARCHAR)"
    is_whole, other = WHOLE_NUMBER.format(value=text), f"CASE WHEN NOT {is_missing_sql(text)} THEN {NO_INTEGER} END"
    return f"CASE WHEN {is_whole} THEN COALESCE(TRY_CAST({value} AS BIGINT), {NO_INTEGER}) ELSE {other} END"


def whole_numbers(column: str) -> str:
    """Return SQL that converts the elements of a list to integers (see `whole_number`)."""
    return f"list_transform(TRY_CAST({column} AS VARCHAR[]), lambda entry: {whole_number('entry')})"


def whole_numbers_or_texts(column: str) -> str:
    """Return SQL that converts the elements of a list to JSON integers, or else to JSON texts."""
    is_whole = WHOLE_NUMBER.format(value="entry")
    return (
        f"list_transform(TRY_CAST({column} AS VARCHAR[]), "
        f"lambda entry: CASE WHEN {is_whole} THEN COALESCE(to_json(TRY_CAST(entry AS BIGINT)), to_json(entry)) "
        "ELSE to_json(entry) END)"
    )


# Timestamps, dates and durations of any notation, in seconds.

UNITS = {"second": 1.0, "millisecond": 1e-3, "microsecond": 1e-6, "nanosecond": 1e-9, "minute": 60.0, "hour": 3600.0}
UNITS["day"] = 86400.0
DATE_TIME = r"\s*[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([T ]\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]*)?)?)?\s*"
OFFSET = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)\s*"
SPAN = r"\s*-?([0-9]+ days? )?[0-9]+:[0-9]{2}:[0-9]{2}([.][0-9]*)?\s*|\s*-?[0-9]+ days?\s*"

ANY, ZONED, LOCAL = "any", "zoned", "local"  # clocks: whether times have a zone or an offset from UTC
OTHER_CLOCK = float("-inf")  # stands for a time of another clock than that of the field; row checks reject its row


def is_other_clock(clock: str, *, zoned: bool) -> bool:
    """Return True if times with (`zoned`) or without a zone are not those of a field with this clock."""
    return clock == (LOCAL if zoned else ZONED)


def _of_clock(seconds: str, clock: str, *, zoned: bool) -> str:
    return f"'{OTHER_CLOCK}'::DOUBLE" if is_other_clock(clock, zoned=zoned) else seconds


def seconds_sql(text: str, unit: str = "second", clock: str = ANY) -> str:
    """Return SQL that converts text to seconds, or to null if the text is not a number, a time or a duration.

    A text is a number of `unit`, a date, a date with a time and maybe an offset from UTC, or a duration such as 47:30
    (47 hours and 30 minutes). A date of another clock becomes OTHER_CLOCK.
    """
    local = _of_clock(f"epoch(TRY_CAST({text} AS TIMESTAMP))", clock, zoned=False)
    zoned = _of_clock(f"epoch(TRY_CAST({text} AS TIMESTAMPTZ))", clock, zoned=True)
    # DuckDB's casts alone ignore any text after a time, such as an offset or PM.
    return (
        f"COALESCE(TRY_CAST({text} AS DOUBLE) * {UNITS[unit]}, CASE "
        f"WHEN regexp_full_match({text}, '{DATE_TIME}') THEN {local} "
        f"WHEN regexp_full_match({text}, '{DATE_TIME}{OFFSET}') THEN {zoned} "
        f"WHEN regexp_full_match({text}, '[0-9]+:[0-9]+') THEN epoch(TRY_CAST({text} || ':00' AS INTERVAL)) "
        f"WHEN regexp_full_match({text}, '{SPAN}') THEN epoch(TRY_CAST({text} AS INTERVAL)) END)"
    )


NAMELESS_ZONE = re.compile(r"(?:[^%]|%[^zZ])*(%z)?", re.DOTALL)  # format without a zone, or with an offset at its end


def is_time_format(pattern: str) -> bool:
    """Return True if `pattern` is a format of `strptime`, such as %d.%m.%Y."""
    try:
        datetime.strptime(datetime(2020, 11, 21, 13, 14, 15, tzinfo=UTC).strftime(pattern), pattern)
    except (ValueError, re.error):  # `strptime` compiles a regular expression, in which %d twice is an error
        return False
    return "%" in pattern


def require_order_format(value: str) -> str:
    """Reject a value of data.order_format that is neither a format of times nor `text`."""
    if value != "text" and not is_time_format(value):
        raise RefusedValueError("must be a format of times such as %d.%m.%Y %H:%M, or text")
    return value


def formatted_seconds_sql(text: str, pattern: str) -> str:
    """Return SQL that converts text in a format of `strptime` to seconds, and other text to null."""
    text = f"trim({text})"
    if (zone := NAMELESS_ZONE.fullmatch(pattern)) and zone[1]:
        text = f"regexp_replace({text}, '[Zz]$', '+0000')"  # DuckDB's %z is always a number
    return f"epoch(try_strptime({text}, {quote_literal(pattern)}))"


def formatted_seconds(text: str, pattern: str) -> float:
    """Convert a text to seconds by `formatted_seconds_sql`. Raises ValueError for a text of another format."""
    text = text.strip()
    if zone := NAMELESS_ZONE.fullmatch(pattern):
        if zone[1]:  # Python's %z needs minutes
            text = re.sub(r"([+-]\d\d)$", r"\g<1>00", re.sub("[Zz]$", "+0000", text))
        time = datetime.strptime(text, pattern)
        return time.replace(tzinfo=time.tzinfo or UTC).timestamp()
    import duckdb  # slow, and needed for few formats: Python's %Z knows few zones, and drops their offsets

    query = f"SELECT {formatted_seconds_sql('$1', pattern)}"
    (seconds,) = duckdb.default_connection().cursor().execute(query, [text]).fetchall()[0]
    if seconds is None:
        raise ValueError(f"{text} does not match format {pattern}")
    return float(seconds)


def epoch_sql(value: str, kind: str) -> str:
    """Return SQL that converts a timestamp, time or interval to seconds. `kind`: DuckDB type of the value."""
    # DuckDB has no `epoch` of nanoseconds with a zone, and float64 seconds hold no nanoseconds of today anyway.
    return f"epoch(CAST({value} AS TIMESTAMPTZ))" if kind == "TIMESTAMPTZ_NS" else f"epoch({value})"


def seconds_from_text(text: str, unit: str = "second", clock: str = ANY) -> float:
    """Convert a text to seconds by the rules of `seconds_sql`. Raises ValueError where it would return null.

    >>> seconds_from_text("1970-01-02T00:00:30Z"), seconds_from_text("47:30"), seconds_from_text("1 day")
    (86430.0, 171000.0, 86400.0)
    """
    try:
        return float(text) * UNITS[unit]
    except ValueError:
        pass
    date_time = re.fullmatch(f"({DATE_TIME})({OFFSET})?", text)
    if date_time is not None:
        if is_other_clock(clock, zoned=bool(date_time[5])):
            return OTHER_CLOCK
        return _seconds_of_date(date_time[1].strip(), (date_time[5] or "").strip())
    if re.fullmatch(r"[0-9]+:[0-9]+", text):
        text += ":00"
    if not re.fullmatch(SPAN, text):
        raise ValueError(f"{text} is no time")
    days = re.search(r"([0-9]+) day", text)
    time = re.search(r"([0-9]+):([0-9]{2}):([0-9]{2}([.][0-9]*)?)", text)
    hours, minutes, seconds = (float(part) for part in time.groups()[:3]) if time else (0.0, 0.0, 0.0)
    if max(minutes, seconds) >= 60:
        raise ValueError(f"{text} is no time")
    total = 86400 * float(days[1] if days else 0) + 3600 * hours + 60 * minutes + seconds
    return -total if text.lstrip().startswith("-") else total


def _seconds_of_date(moment: str, offset: str) -> float:
    """`offset`: offset from UTC as a text, which may be empty."""
    year, month, day, *clock = (float(part) for part in re.findall(r"[0-9]+(?:[.][0-9]*)?", moment))
    hour, minute, second = (*clock, 0.0, 0.0, 0.0)[:3]
    start = datetime(int(year), int(month), int(day), int(hour), int(minute), tzinfo=UTC).timestamp()
    digits = re.sub(r"[^0-9]", "", offset).ljust(4, "0")
    shift = 3600 * int(digits[:2]) + 60 * int(digits[2:4])
    if second >= 60:
        raise ValueError(f"{moment} is no time")
    return start + second + (shift if offset.startswith("-") else -shift)


def has_zone(pattern: str) -> bool:
    """Return True if a format of `strptime` reads a time zone or an offset."""
    return re.search("%[zZ]", pattern) is not None


def time_in_seconds(value: str, kind: str, unit: str, pattern: str | None = None, clock: str = ANY) -> str:
    """Return SQL that converts a value of the DuckDB type `kind` to seconds.

    `unit`: unit of numbers. `pattern`: format of `strptime` for texts, None for the rules of `seconds_sql`. `clock`:
    ANY, ZONED or LOCAL; a time of another clock becomes OTHER_CLOCK.
    """
    if kind in TEXT_TYPES and pattern is None:
        return seconds_sql(value, unit, clock)
    if kind in TEXT_TYPES and pattern is not None:
        return _of_clock(formatted_seconds_sql(value, pattern), clock, zoned=has_zone(pattern))
    if kind == "DATE":
        return _of_clock(f"epoch(CAST({value} AS TIMESTAMP))", clock, zoned=False)
    if kind.startswith("TIMESTAMP"):
        return _of_clock(epoch_sql(value, kind), clock, zoned=kind in ZONED_TYPES)
    if kind.startswith(("TIME", "INTERVAL")):
        return epoch_sql(value, kind)
    return f"TRY_CAST({value} AS DOUBLE) * {UNITS[unit]}"


class RowKey(NamedTuple):
    """A column with a property of a row. `kind`: TIME, GROUP, WEIGHT or COST. `option`: config key of the column."""

    kind: str
    option: str
    column: str

    def sql(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return dict canonical column → SQL: a number, or a group and its hash; null without the column."""
        kind = types.get(self.column)
        if self.kind == TIME:
            column = "NULL" if kind is None else plain(self.column, kind)
            return {TIME: f"COALESCE(TRY_CAST({column} AS DOUBLE), {seconds_sql(f'CAST({column} AS VARCHAR)')})"}
        if self.kind in (WEIGHT, COST):
            number = "NULL" if kind is None else plain(self.column, kind)
            return {self.kind: f"TRY_CAST({number} AS DOUBLE)"}
        # `spelled_sql` gives 1 and 1.0 the same text. The type of a column may differ between the files of a dataset.
        key = "NULL" if kind is None else key_sql(self.column, kind)
        value = key if kind in (None, "BLOB") else spelled_sql(key, kind)
        text = f"CAST({value} AS VARCHAR)"
        # Hashes are shifted by one bit, so that they fit into BIGINT and are not negative.
        values = {GROUP: f"CAST(hash({text}) >> 1 AS BIGINT)", GROUP_NAME: text}
        return {name: f"CASE WHEN NOT {is_blank_sql(text)} THEN {value} END" for name, value in values.items()}


def named_keys(*named: tuple[str, str, str | None]) -> list[RowKey]:
    """Return the keys of (kind, option, column), without those whose option names no column.

    >>> named_keys((WEIGHT, "data.weight", "amount"), (COST, "data.cost", None))
    [RowKey(kind='weight of the row', option='data.weight', column='amount')]
    """
    return [RowKey(kind, option, column) for kind, option, column in named if column is not None]
