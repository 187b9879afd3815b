"""DuckDB expressions that turn timestamps, dates and durations of any notation into seconds."""

from __future__ import annotations

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


def time_in_seconds(value: str, kind: str, unit: str) -> str:
    """A value of DuckDB type `kind` as seconds. A number is a count of `unit`."""
    if kind in ("VARCHAR", "JSON"):
        return seconds_sql(value, unit)
    if kind == "DATE":
        return f"epoch(CAST({value} AS TIMESTAMP))"
    if kind.startswith(("TIME", "INTERVAL")):
        return f"epoch({value})"
    return f"TRY_CAST({value} AS DOUBLE) * {UNITS[unit]}"
