"""Time fields: the time since the previous token on a log scale, and optionally the hour and the weekday."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from itertools import chain
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.field_encoder import EncodedField, EncoderState, ReadColumns
from seqclf.data.encoding.list_encoder import ListEncoder
from seqclf.data.encoding.scales import Sample
from seqclf.data.field_spec import NumberSpec
from seqclf.data.ragged import is_list, list_lengths, list_values
from seqclf.data.schema import casts
from seqclf.data.schema.cell_types import holds_times, is_text, list_cells, looks_timed
from seqclf.data.schema.problems import Problems, check_numbers, true_rows
from seqclf.data.schema.schema import Field, Option, choice_option, text_option
from seqclf.system.durations import duration_text
from seqclf.system.state_validation import POSITIVE, require

CYCLES = {"hour": 86400.0, "weekday": 7 * 86400.0}  # dict cycle → period in seconds
CYCLE_LIST, FORMAT_EXAMPLE = f"a list of {[*CYCLES]}", "such as %d.%m.%Y %H:%M"  # allowed values in errors
RESOLUTION_QUANTILE = 0.05
MIN_GAP = 1e-5  # fraction of the resolution; a smaller decoded gap is a rounding error around 0
MICROSECONDS = 6  # number of decimal places to which float64 seconds since 1970 are precise


class TimeEncoder(ListEncoder):
    """Encodes the gap of each token as log(1 + gap / resolution), scaled to mean 0 and standard deviation 1.

    The gap is the time in seconds since the previous token, 0 for the first one, negative if time decreases.
    `resolution` is the 5 % quantile of the positive gaps of a sample of training tokens, which suits microseconds as
    well as years. Each cycle in the option `cycles` (hour, weekday) adds the sine and the cosine of the position.

    >>> gap = TimeEncoder(Field("at", "time", ("at",)))
    >>> train = pa.record_batch({"at": pa.array([[0.0, 1.0, 100.0]])})
    >>> gap.fit(lambda *names: iter([train]))
    >>> gap.encode(train).arrays["at"].shape
    (3, 1)
    """

    options: ClassVar[Mapping[str, Option]] = {
        "clock": choice_option(casts.ANY, casts.ANY, casts.ZONED, casts.LOCAL),
        "unit": choice_option("second", *casts.UNITS),
        "cycles": Option((), lambda value: isinstance(value, (list, tuple)) and set(value) <= set(CYCLES), CYCLE_LIST),
        "separator": text_option(),
        "format": Option(None, lambda value: isinstance(value, str) and casts.is_time_format(value), FORMAT_EXAMPLE),
    }

    element_type = pa.float64()
    expected = "a list of times"
    resolution, mean, deviation = 1.0, 0.0, 1.0  # initial values before `fit`

    def set_up(self) -> None:
        self.periods = [CYCLES[name] for name in self.option("cycles")]  # length of each cycle in seconds

    @classmethod
    def recognizes(cls, cells: pa.ChunkedArray, separator: str | None, events: bool) -> bool:
        if events:
            return pa.types.is_temporal(cells.type) or looks_timed(cells)
        return holds_times(cells, separator)

    @classmethod
    def completed(cls, field: Field, cells: pa.ChunkedArray, events: bool) -> Field:
        clock = field.options.get("clock") or _clock_of(field, cells, events)
        return replace(field, width=1, options={**field.options, **({} if clock == casts.ANY else {"clock": clock})})

    def text_sql(self, cell: str) -> str:
        return self.elements_sql(casts.split_list(cell, self.field.separator), "VARCHAR[]")

    def elements_sql(self, column: str, kind: str) -> str:
        element = casts.element_type(kind)
        if element == "JSON":
            column, element = f"TRY_CAST({column} AS VARCHAR[])", "VARCHAR"
        return f"list_transform({column}, lambda entry: {self._seconds('entry', element)})"

    def value_sql(self, value: str, kind: str) -> str:
        return self._seconds(value, kind)

    def _seconds(self, value: str, kind: str) -> str:
        return casts.time_in_seconds(value, kind, self.option("unit"), self.option("format"), self.option("clock"))

    def element_from_python(self, entry: Any) -> float | None:
        """Return a time as seconds since 1970, or a duration as seconds. A text is read like a text cell of a table.

        A time without a zone is read as UTC; one of another clock becomes OTHER_CLOCK. Numbers have the option `unit`.
        """
        if isinstance(entry, np.datetime64):
            entry = entry.astype("datetime64[us]").item()
        pattern = self.option("format") if isinstance(entry, str) else None
        zoned = getattr(entry, "tzinfo", None) is not None if pattern is None else casts.has_zone(pattern)
        if (pattern is not None or isinstance(entry, date)) and casts.is_other_clock(self.option("clock"), zoned=zoned):
            return casts.OTHER_CLOCK
        if isinstance(entry, datetime):
            return entry.replace(tzinfo=entry.tzinfo or UTC).timestamp()
        if isinstance(entry, date):
            return datetime(entry.year, entry.month, entry.day, tzinfo=UTC).timestamp()
        if pattern is not None:
            return casts.formatted_seconds(entry, pattern)
        if isinstance(entry, str):
            return casts.seconds_from_text(entry, self.option("unit"), self.option("clock"))
        return None if entry is None else float(entry) * casts.UNITS[self.option("unit")]

    def check_elements(self, elements: pa.Array, row_of_token: np.ndarray, problems: Problems) -> None:
        bad = true_rows(pc.fill_null(pc.equal(elements, casts.OTHER_CLOCK), False))
        problems.mark_tokens(bad, row_of_token, self.field.column, self._clock_reason())
        check_numbers(elements, row_of_token, self.field, problems, may_miss=False, finite_as=np.float64)

    def _clock_reason(self) -> str:
        is_zoned, name = self.option("clock") == casts.ZONED, casts.quote_identifier(self.field.column)
        has, lacks, kind = ("with", "without", "") if is_zoned else ("without", "with", "TZ")
        return (
            f"has a time {lacks} a time zone, where the field has times {has} one; convert it by SQL (data.query in "
            f"training): SELECT * REPLACE (CAST({name} AS TIMESTAMP{kind}) AT TIME ZONE 'Europe/Berlin' AS {name}) "
            f"FROM input; or train with {self.field.key}.clock=any, which reads both as UTC"
        )

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Return (S,) keys of tokens, made from the seconds since the first token of the sequence, whatever its date.

        With the option `cycles`, they are made from the time itself, as the model also gets the hour or the weekday.
        """
        lengths, seconds = list_lengths(column), list_values(column)
        if not self.periods and len(seconds):
            first = seconds[np.cumsum(lengths) - lengths]
            seconds = np.round(seconds - np.repeat(first, lengths), MICROSECONDS)
        return (seconds + 0.0).view(np.uint64)  # + 0.0 turns -0.0 into 0.0

    def fit(self, read: ReadColumns) -> None:
        sample = Sample()
        for record_batch in read(self.field.name):
            column = record_batch.column(self.field.name)
            sample.update(_gaps(list_lengths(column), list_values(column)))
        rows = sample.rows
        gaps = np.zeros(1) if rows is None or not len(rows) else rows
        if (gaps > 0).any():
            self.resolution = float(np.quantile(gaps[gaps > 0], RESOLUTION_QUANTILE))
        logs = self._log(gaps)
        self.mean, self.deviation = float(logs.mean()), float(logs.std()) or 1.0  # a deviation of 0 is replaced by 1

    def _log(self, gaps: np.ndarray) -> np.ndarray:
        # The log scale is symmetric around 0, because gaps may be negative.
        return np.sign(gaps) * np.log1p(np.abs(gaps) / self.resolution)

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        return self._encoded(list_lengths(column), list_values(column))

    def encode_plain(self, cells: Sequence[Any]) -> EncodedField | None:
        if (found := self.plain_elements(cells, (float, int, str, datetime))) is None:
            return None
        lengths, elements = found
        try:
            seconds = np.array([*map(self.element_from_python, elements)], np.float64)
        except (ValueError, OverflowError):
            return None
        return self._encoded(lengths, seconds) if np.isfinite(seconds).all() else None

    def _encoded(self, lengths: np.ndarray, seconds: np.ndarray) -> EncodedField:
        channels = [(self._log(_gaps(lengths, seconds)) - self.mean) / self.deviation]
        for period in self.periods:
            angle = 2 * np.pi * (seconds % period) / period
            channels += [np.sin(angle), np.cos(angle)]
        return EncodedField(lengths, {self.field.name: np.stack(channels, axis=1).astype(np.float32)})

    def original_times(self, seconds: np.ndarray) -> np.ndarray:
        """Return canonical times (S,) as datetime64 in UTC, those of the clock `any` as numbers in the field's unit."""
        if self.option("clock") == casts.ANY:
            return seconds / casts.UNITS[self.option("unit")]
        return np.round(seconds * 1e6).astype("datetime64[us]")

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        """Return the gap of each token as text, such as +5 s."""
        return [f"{'' if gap < 0 else '+'}{duration_text(gap)}" for gap in self.gaps_of(fields).tolist()]

    def token_columns(self, fields: Mapping[str, np.ndarray], shown: np.ndarray) -> dict[str, list[str]]:
        """Return two columns of texts: the time since the first token and the time since the previous token."""
        gaps = self.gaps_of(fields)
        elapsed = np.round(np.cumsum(gaps), MICROSECONDS)
        name = self.field.name
        return {
            f"{name}, since the first": list(map(duration_text, elapsed[shown].tolist())),
            f"{name}, since the previous": list(map(duration_text, gaps[shown].tolist())),
        }

    def original_values(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        return self.gaps_of(fields)[:, None]

    def gaps_of(self, fields: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the (T,) gaps of encoded tokens, in seconds."""
        logs = fields[self.field.name][:, 0].astype(np.float64) * self.deviation + self.mean
        gaps = np.sign(logs) * np.expm1(np.abs(logs)) * self.resolution
        # Encoded gaps are precise to seven digits. A gap of 0 may be decoded as a small fraction of the resolution.
        gaps = np.where(np.abs(gaps) < self.resolution * MIN_GAP, 0.0, gaps)
        return np.round(gaps, MICROSECONDS)

    def spec(self) -> NumberSpec:
        scaled = [True] + [False] * 2 * len(self.periods)
        return {"name": self.field.name, "kind": "number", "width": len(scaled), "scaled": scaled}

    def state(self) -> EncoderState:
        return {"resolution": self.resolution, "mean": self.mean, "deviation": self.deviation}

    def restore(self, state: EncoderState) -> None:
        require(state, {"resolution": POSITIVE, "mean": float, "deviation": POSITIVE})
        self.resolution, self.mean, self.deviation = state["resolution"], state["mean"], state["deviation"]


def _clock_of(field: Field, cells: pa.ChunkedArray, events: bool) -> str:
    """Return the clock of most times: ZONED, LOCAL, or ANY for numbers and durations."""
    kind, pattern = cells.type.value_type if is_list(cells.type) else cells.type, field.options.get("format")
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return casts.ZONED if getattr(kind, "tz", None) else casts.LOCAL
    if isinstance(pattern, str) and is_text(kind):
        return casts.ZONED if casts.has_zone(pattern) else casts.LOCAL
    values = cells.to_pylist() if events else chain.from_iterable(list_cells(cells, field.separator))
    texts = [value for value in values if isinstance(value, str)]
    forms = (casts.DATE_TIME + casts.OFFSET, casts.DATE_TIME)
    zoned, local = (sum(re.fullmatch(form, text) is not None for text in texts) for form in forms)
    return casts.ANY if not zoned + local else casts.ZONED if zoned > local else casts.LOCAL


def _gaps(lengths: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Return the (S,) seconds since the previous token, 0 for the first one. `lengths`: (N,). `seconds`: (S,)."""
    gaps = np.diff(seconds, prepend=seconds[:1])
    gaps[np.cumsum(lengths) - lengths] = 0.0
    return gaps
