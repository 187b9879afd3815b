"""Points in time → how long since the step before, on a log scale; and, when asked, the hour and the weekday."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.running_moments import Sample
from seqclf.data.schema.fields import CYCLES, Field
from seqclf.system.stored_state import POSITIVE, require

SMALLEST_SHARE = 0.05
MICROSECONDS = 6  # decimals of a second; seconds since 1970 have hardly more


class Clock:
    """Seconds → log(1 + gap / resolution), scaled to mean 0 and deviation 1; of each of `cycles` a sine and a cosine.

    Scales are fit on a sample of the steps.

    The gap of a first step is 0; where time runs backwards it counts as negative. `resolution` is the gap below which
    lie 5 % of those above zero in training, so that the scale fits microseconds and years.
    """

    def __init__(self, field: Field, others: Mapping[str, Any]):
        self.field = field
        self.cycles = [CYCLES[name] for name in field.option("cycles")]
        self.resolution, self.mean, self.deviation = 1.0, 0.0, 1.0

    def stage(self, column: pa.Array) -> pa.Array:
        return column

    def token_keys(self, column: pa.Array) -> np.ndarray:
        """Of the seconds since the first step: the same events at another time are the same sequence, unless hours
        and weekdays count."""
        lengths, seconds = _seconds(column)
        if not self.cycles and len(seconds):
            seconds = np.round(seconds - np.repeat(seconds[np.cumsum(lengths) - lengths], lengths), MICROSECONDS)
        return (seconds + 0.0).view(np.uint64)

    def fit(self, batches: Callable[..., Iterator[pa.RecordBatch]]) -> None:
        sample = Sample()
        for batch in batches(self.field.name):
            sample.update(_gaps(*_seconds(batch.column(self.field.name))))
        rows = sample.rows
        gaps = np.zeros(1) if rows is None or not len(rows) else rows
        if (gaps > 0).any():
            self.resolution = float(np.quantile(gaps[gaps > 0], SMALLEST_SHARE))
        logs = self._log(gaps)
        self.mean, self.deviation = float(logs.mean()), float(logs.std()) or 1.0

    def _log(self, gaps: np.ndarray) -> np.ndarray:
        return np.sign(gaps) * np.log1p(np.abs(gaps) / self.resolution)

    def encode(self, batch: pa.RecordBatch, staged: bool) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        lengths, seconds = _seconds(batch.column(self.field.name))
        parts = [(self._log(_gaps(lengths, seconds)) - self.mean) / self.deviation]
        for period in self.cycles:
            angle = 2 * np.pi * (seconds % period) / period
            parts += [np.sin(angle), np.cos(angle)]
        return lengths, {self.field.name: np.stack(parts, axis=1).astype(np.float32)}

    def decode(self, fields: Mapping[str, np.ndarray]) -> list[str]:
        logs = fields[self.field.name][:, 0] * self.deviation + self.mean
        gaps = np.sign(logs) * np.expm1(np.abs(logs)) * self.resolution
        return [f"{gap:+.3g}s" for gap in np.round(gaps, MICROSECONDS).tolist()]

    def spec(self) -> dict[str, Any]:
        scaled = [True] + [False] * 2 * len(self.cycles)
        return {"name": self.field.name, "kind": "number", "width": len(scaled), "scaled": scaled}

    def state(self) -> dict[str, Any]:
        return {"resolution": self.resolution, "mean": self.mean, "deviation": self.deviation}

    def restore(self, state: dict[str, Any]) -> None:
        require(state, {"resolution": POSITIVE, "mean": float, "deviation": POSITIVE})
        self.resolution, self.mean, self.deviation = state["resolution"], state["mean"], state["deviation"]


def _seconds(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    lengths = pc.list_value_length(column).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths, pc.list_flatten(column).to_numpy(zero_copy_only=False)


def _gaps(lengths: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """(S,) since the step before in the same sequence, 0 for the first."""
    gaps = np.diff(seconds, prepend=seconds[:1])
    gaps[np.cumsum(lengths) - lengths] = 0.0
    return gaps
