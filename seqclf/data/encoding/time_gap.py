"""Encoder of time fields: gaps between tokens on a log scale, and optionally the hour and the weekday."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from seqclf.data.encoding.encoder import NO_ENCODERS, EncodedField, Encoder, EncoderState, ReadColumns
from seqclf.data.encoding.field_spec import NumberSpec
from seqclf.data.encoding.list_columns import list_lengths, list_values
from seqclf.data.encoding.running_moments import Sample
from seqclf.data.encoding.truncation import NO_TRUNCATION, Truncation
from seqclf.data.schema.fields import CYCLES, Field
from seqclf.system.stored_state import POSITIVE, require

RESOLUTION_QUANTILE = 0.05
MICROSECONDS = 6  # decimals of a second; float64 seconds since 1970 hold hardly more


class TimeGap(Encoder):
    """Seconds → log(1 + gap / resolution), scaled to mean 0 and deviation 1.

    The gap is the time since the previous token of the sequence, 0 for the first. A clock that runs backwards gives
    negative gaps. `resolution` is the 5 % quantile of the positive gaps in training, so that the log scale fits
    microseconds as well as years. Scales are fit on a sample of the tokens.

    Each of `cycles` (hour, weekday) adds the sine and the cosine of the position within the cycle.

    >>> gap = TimeGap(Field("at", "time", ("at",)))
    >>> train = pa.record_batch({"at": pa.array([[0.0, 1.0, 100.0]])})
    >>> gap.fit(lambda *names: iter([train]))
    >>> gap.encode(train).arrays["at"].shape
    (3, 1)
    """

    def __init__(
        self,
        field: Field,
        others: Mapping[str, Encoder] = NO_ENCODERS,
        truncation: Truncation = NO_TRUNCATION,
    ):
        super().__init__(field, others, truncation)
        self.periods = [CYCLES[name] for name in field.option("cycles")]  # in seconds
        self.resolution, self.mean, self.deviation = 1.0, 0.0, 1.0

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """(S,) keys of the seconds since the first token of the sequence.

        The same events at another date are the same sequence. With `cycles`, hours and weekdays tell them apart.
        """
        lengths, seconds = list_lengths(column), list_values(column)
        if not self.periods and len(seconds):
            first = seconds[np.cumsum(lengths) - lengths]
            seconds = np.round(seconds - np.repeat(first, lengths), MICROSECONDS)
        return (seconds + 0.0).view(np.uint64)  # adding 0.0 turns -0.0 into 0.0

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
        self.mean, self.deviation = float(logs.mean()), float(logs.std()) or 1.0  # 1 if all gaps are equal

    def _log(self, gaps: np.ndarray) -> np.ndarray:
        # Symmetric around 0, as gaps may be negative.
        return np.sign(gaps) * np.log1p(np.abs(gaps) / self.resolution)

    def encode(self, record_batch: pa.RecordBatch) -> EncodedField:
        column = record_batch.column(self.field.name)
        lengths, seconds = list_lengths(column), list_values(column)
        channels = [(self._log(_gaps(lengths, seconds)) - self.mean) / self.deviation]
        for period in self.periods:
            angle = 2 * np.pi * (seconds % period) / period
            channels += [np.sin(angle), np.cos(angle)]
        return EncodedField(lengths, {self.field.name: np.stack(channels, axis=1).astype(np.float32)})

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        logs = fields[self.field.name][:, 0] * self.deviation + self.mean
        gaps = np.sign(logs) * np.expm1(np.abs(logs)) * self.resolution
        return [f"{gap:+.3g}s" for gap in np.round(gaps, MICROSECONDS).tolist()]

    def spec(self) -> NumberSpec:
        scaled = [True] + [False] * 2 * len(self.periods)
        return {"name": self.field.name, "kind": "number", "width": len(scaled), "scaled": scaled}

    def state(self) -> EncoderState:
        return {"resolution": self.resolution, "mean": self.mean, "deviation": self.deviation}

    def restore(self, state: EncoderState) -> None:
        require(state, {"resolution": POSITIVE, "mean": float, "deviation": POSITIVE})
        self.resolution, self.mean, self.deviation = state["resolution"], state["mean"], state["deviation"]


def _gaps(lengths: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """(S,) seconds since the previous token of the same sequence, 0 for the first. `lengths`: (N,), `seconds`: (S,)."""
    gaps = np.diff(seconds, prepend=seconds[:1])
    gaps[np.cumsum(lengths) - lengths] = 0.0
    return gaps
