"""DuckDB expressions that turn cells of any type into canonical values, and the names of canonical columns.

The names of canonical columns contain spaces, and names of fields never do, so that no field can have such a name.
`label` and `id` are reserved instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from seqclf.data.schema.cell_types import MISSING_WORDS

LABEL, ID = "label", "id"
TIME, TIME_END, FILE, ROW = "split time", "last split time", "in file", "row number"
GROUP, GROUP_NAME = "key of the group", "name of the group"
SHOWN_CHARACTERS = 40  # of a cell, in an error message
TEXT_TYPES = ("VARCHAR", "JSON")
WHOLE_NUMBER = r"regexp_full_match(trim({value}), '[+-]?[0-9]+([.]0*)?')"
WHOLE_NUMBER_TYPES = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?\b")


def raw_column(field: str) -> str:
    """Name of the column that holds the beginning of each text cell of `field`, for error messages."""
    return f"raw {field}"


def quote_identifier(name: str) -> str:
    """Quote the name of a column for SQL.

    >>> print(quote_identifier('a "b" c'))
    "a ""b"" c"
    """
    return '"' + name.replace('"', '""') + '"'


def quote_literal(text: str) -> str:
    """Quote a text value for SQL."""
    return "'" + text.replace("'", "''") + "'"


def plain(column: str, kind: str, table: str = "") -> str:
    """A column as it is, or for JSON values their text without quotes.

    `kind`: DuckDB type of the column. `table`: its alias, if the name needs one.
    """
    name = f"{table}.{quote_identifier(column)}" if table else quote_identifier(column)
    return f"({name} ->> '$')" if kind == "JSON" else name


def is_nested(kind: str) -> bool:
    """True for lists and other types of several values."""
    return kind.endswith("]") or kind.startswith(("STRUCT", "MAP", "UNION"))


def element_type(kind: str) -> str:
    """DuckDB type of the elements of a list.

    >>> element_type("DOUBLE[][3]"), element_type("JSON")
    ('DOUBLE[]', 'JSON')
    """
    return kind[: kind.rindex("[")] if kind.endswith("]") else kind


def spelled_sql(value: str, kind: str) -> str:
    """A typed value, or the values of a list, as text: the same for 1 and 1.0, and for a day and its midnight.

    Text stays as it is written. `kind`: DuckDB type of the value.
    """
    if kind.endswith("]"):
        entry = f"entry{kind.count('[')}"
        return f"list_transform({value}, lambda {entry}: {spelled_sql(entry, element_type(kind))})"
    text = f"CAST({value} AS VARCHAR)"
    if kind in ("DOUBLE", "FLOAT"):
        is_whole = f"{value} = trunc({value}) AND abs({value}) < 1e15"
        return f"CASE WHEN {is_whole} THEN CAST(TRY_CAST({value} AS BIGINT) AS VARCHAR) ELSE {text} END"
    if kind.startswith("DECIMAL"):
        return f"CASE WHEN contains({text}, '.') THEN rtrim(rtrim({text}, '0'), '.') ELSE {text} END"
    if kind.startswith("TIMESTAMP"):
        # Not in the time zone of the machine.
        zoned = kind in ("TIMESTAMP WITH TIME ZONE", "TIMESTAMPTZ_NS")
        moment = f"CAST({value} AS TIMESTAMPTZ) AT TIME ZONE 'UTC'" if zoned else f"CAST({value} AS TIMESTAMP)"
        return f"regexp_replace(CAST({moment} AS VARCHAR), ' 00:00:00$', '')"
    return text


def boolean_sql(text: str) -> str:
    """Text of a boolean as DuckDB spells it: `true` for True and TRUE. Other text stays as it is."""
    return f"CASE WHEN lower(trim({text})) IN ('true', 'false') THEN lower(trim({text})) ELSE {text} END"


def number(text: str) -> str:
    """Text as a number: null for words that mean a missing value, infinite (and so refused) for all other words."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return (
        f"COALESCE(TRY_CAST({text} AS DOUBLE), "
        f"CASE WHEN COALESCE(lower(trim({text})), '') NOT IN ({missing}) THEN 'inf'::DOUBLE END)"
    )


def is_missing_sql(text: str) -> str:
    """True for text that says nothing: null, blank, or a word such as NA. The rule of `rows.ids_or_null`."""
    missing = ", ".join(quote_literal(word) for word in MISSING_WORDS)
    return f"COALESCE(lower(regexp_replace({text}, '^[\\s\\pZ]+|[\\s\\pZ]+$', '', 'g')), '') IN ({missing})"


def split_list(cell: str, separator: str | None) -> str:
    """A text cell as a list of texts."""
    if separator is None:
        return f"TRY_CAST({cell} AS VARCHAR[])"
    pattern = r"\s+" if separator.isspace() else r"\s*" + re.escape(separator) + r"\s*"
    return f"regexp_split_to_array({cell}, {quote_literal(pattern)})"


def bracketed_texts(cell: str, depth: int = 1) -> str:
    """A bracketed text cell as a list of texts, nested for a `depth` of 2."""
    kind = "VARCHAR" + "[]" * depth
    # Only JSON reads escapes such as \n and \u00e9; for the rest it would rewrite numbers (1.50 as 1.5).
    return (
        f"CASE WHEN contains({cell}, '\\') THEN COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS {kind}), "
        f"TRY_CAST({cell} AS {kind})) ELSE TRY_CAST({cell} AS {kind}) END"
    )


def bracketed_numbers(cell: str, kind: str) -> str:
    """A bracketed text cell as a list of the DuckDB type `kind`."""
    # Both casts read the same lists; the one through JSON is three times as fast.
    return f"COALESCE(TRY_CAST(TRY_CAST({cell} AS JSON) AS {kind}), TRY_CAST({cell} AS {kind}))"


def may_hold_fractions(cell: str) -> str:
    """True for a text cell that may hold numbers which a cast to integers would round."""
    return f"regexp_matches({cell}, '[.eE]')"


def whole_number(value: str) -> str:
    """A value as an integer, null where a cast would round: of 2, 2.0 and 2.5 only the last."""
    return f"CASE WHEN {WHOLE_NUMBER.format(value=f'CAST({value} AS VARCHAR)')} THEN TRY_CAST({value} AS BIGINT) END"


def whole_numbers(column: str) -> str:
    """A list of integers, null where a cast would round."""
    is_whole = WHOLE_NUMBER.format(value="entry")
    return (
        f"list_transform(TRY_CAST({column} AS VARCHAR[]), "
        f"lambda entry: CASE WHEN {is_whole} THEN TRY_CAST(entry AS BIGINT) END)"
    )


def whole_numbers_or_texts(column: str) -> str:
    """A list as JSON values: integers, and texts where a cast to integers would change an element."""
    is_whole = WHOLE_NUMBER.format(value="entry")
    return (
        f"list_transform(TRY_CAST({column} AS VARCHAR[]), "
        f"lambda entry: CASE WHEN {is_whole} THEN COALESCE(to_json(TRY_CAST(entry AS BIGINT)), to_json(entry)) "
        "ELSE to_json(entry) END)"
    )


# DuckDB expressions that turn timestamps, dates and durations of any notation into seconds.

# Units of time, in seconds.
UNITS = {"second": 1.0, "millisecond": 1e-3, "microsecond": 1e-6, "nanosecond": 1e-9, "minute": 60.0, "hour": 3600.0}
UNITS["day"] = 86400.0
DATE_TIME = r"\s*[0-9]{4}[-/][0-9]{1,2}[-/][0-9]{1,2}([T ]\s*[0-9]{1,2}:[0-9]{2}(:[0-9]{2}([.][0-9]*)?)?)?\s*"
OFFSET = r"([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)\s*"
SPAN = r"\s*-?([0-9]+ days? )?[0-9]+:[0-9]{2}:[0-9]{2}([.][0-9]*)?\s*|\s*-?[0-9]+ days?\s*"


def seconds_sql(text: str, unit: str = "second") -> str:
    """Text as seconds: a number of `unit`, a date or time (with an offset from UTC, if it ends with one), or hours and
    minutes (47:30). Null for any other text.
    """
    # The patterns are needed because DuckDB's casts ignore whatever follows a time, an offset or PM too.
    return (
        f"COALESCE(TRY_CAST({text} AS DOUBLE) * {UNITS[unit]}, CASE "
        f"WHEN regexp_full_match({text}, '{DATE_TIME}') THEN epoch(TRY_CAST({text} AS TIMESTAMP)) "
        f"WHEN regexp_full_match({text}, '{DATE_TIME}{OFFSET}') THEN epoch(TRY_CAST({text} AS TIMESTAMPTZ)) "
        f"WHEN regexp_full_match({text}, '[0-9]+:[0-9]+') THEN epoch(TRY_CAST({text} || ':00' AS INTERVAL)) "
        f"WHEN regexp_full_match({text}, '{SPAN}') THEN epoch(TRY_CAST({text} AS INTERVAL)) END)"
    )


def is_time_format(pattern: str) -> bool:
    """Return True for a format of `strptime`, such as %d.%m.%Y."""
    try:
        datetime.strptime(datetime(2020, 11, 21, 13, 14, 15).strftime(pattern), pattern)
    except ValueError:
        return False
    return "%" in pattern


def formatted_seconds_sql(text: str, pattern: str) -> str:
    """Text as seconds, by a format of `strptime`. Null for text of another form."""
    return f"epoch(try_strptime(trim({text}), {quote_literal(pattern)}))"


def epoch_sql(value: str, kind: str) -> str:
    """A timestamp, time or interval of DuckDB type `kind` as seconds."""
    # DuckDB has no `epoch` of nanoseconds with a zone. A float64 of today's seconds holds no nanoseconds anyway.
    return f"epoch(CAST({value} AS TIMESTAMPTZ))" if kind == "TIMESTAMPTZ_NS" else f"epoch({value})"


def seconds_from_text(text: str, unit: str = "second") -> float:
    """Return a text as seconds by the rules of `seconds_sql`. Raises ValueError for any other text.

    >>> seconds_from_text("1970-01-02T00:00:30Z"), seconds_from_text("47:30"), seconds_from_text("1 day")
    (86430.0, 171000.0, 86400.0)
    """
    try:
        return float(text) * UNITS[unit]
    except ValueError:
        pass
    date_time = re.fullmatch(f"({DATE_TIME})({OFFSET})?", text)
    if date_time is not None:
        return _seconds_of_date(date_time[1].strip(), (date_time[5] or "").strip())
    if re.fullmatch(r"[0-9]+:[0-9]+", text):
        text += ":00"
    if not re.fullmatch(SPAN, text):
        raise ValueError(f"{text} is no time")
    days = re.search(r"([0-9]+) day", text)
    clock = re.search(r"([0-9]+):([0-9]{2}):([0-9]{2}([.][0-9]*)?)", text)
    hours, minutes, seconds = (float(part) for part in clock.groups()[:3]) if clock else (0.0, 0.0, 0.0)
    if max(minutes, seconds) >= 60:
        raise ValueError(f"{text} is no time")
    total = 86400 * float(days[1] if days else 0) + 3600 * hours + 60 * minutes + seconds
    return -total if text.lstrip().startswith("-") else total


def _seconds_of_date(moment: str, offset: str) -> float:
    """Return a date, which may have a time, as seconds since 1970. `offset`: from UTC, or empty."""
    year, month, day, *clock = (float(part) for part in re.findall(r"[0-9]+(?:[.][0-9]*)?", moment))
    hour, minute, second = (*clock, 0.0, 0.0, 0.0)[:3]
    start = datetime(int(year), int(month), int(day), int(hour), int(minute), tzinfo=UTC).timestamp()
    digits = re.sub(r"[^0-9]", "", offset).ljust(4, "0")
    shift = 3600 * int(digits[:2]) + 60 * int(digits[2:4])
    if second >= 60:
        raise ValueError(f"{moment} is no time")
    return start + second + (shift if offset.startswith("-") else -shift)


def time_in_seconds(value: str, kind: str, unit: str, pattern: str | None = None) -> str:
    """A value of DuckDB type `kind` as seconds. A number is a count of `unit`, a text is read by `pattern`, if any."""
    if kind in TEXT_TYPES:
        return seconds_sql(value, unit) if pattern is None else formatted_seconds_sql(value, pattern)
    if kind == "DATE":
        return f"epoch(CAST({value} AS TIMESTAMP))"
    if kind.startswith(("TIME", "INTERVAL")):
        return epoch_sql(value, kind)
    return f"TRY_CAST({value} AS DOUBLE) * {UNITS[unit]}"


class RowKey(NamedTuple):
    """The column of a value that rows are split or counted by, and the option that names the column.

    `kind`: TIME for times, GROUP for what rows belong to.
    """

    kind: str
    option: str
    column: str

    def sql(self, types: Mapping[str, str]) -> dict[str, str]:
        """Return SQL of canonical columns by name, of a table with columns of `types`. Null where it lacks this one.

        A group has its name, and a hash of it.
        """
        kind = types.get(self.column)
        column = "NULL" if kind is None else quote_identifier(self.column)
        if self.kind == TIME:
            return {TIME: f"COALESCE(TRY_CAST({column} AS DOUBLE), {seconds_sql(f'CAST({column} AS VARCHAR)')})"}
        # Spelled, since files of one data set may hold 1 and 1.0.
        value = column if kind is None else spelled_sql(plain(self.column, kind), kind)
        text = f"CAST({value} AS VARCHAR)"
        # Shifted by a bit, so that hashes fit into BIGINT and are not negative.
        values = {GROUP: f"CAST(hash({text}) >> 1 AS BIGINT)", GROUP_NAME: text}
        return {name: f"CASE WHEN NOT {is_missing_sql(text)} THEN {value} END" for name, value in values.items()}
