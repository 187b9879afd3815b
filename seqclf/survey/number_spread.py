"""Spread of number fields: range, deviation within and between sequences, and sequences that one scale flattens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.outliers import mean_and_deviation
from seqclf.data.encoding.sequence_scale import scale_sequences
from seqclf.data.storage.ragged import Ragged
from seqclf.system.json_result import JsonResult

MAX_SPREAD_VALUES = 2_000_000  # training values to measure; more are sampled by whole rows
# Noise of model.number_noise (0.3 by default) has nine times the variance of a sequence whose scaled values deviate by
# less than a tenth.
FLAT_DEVIATION = 0.1
FLATTENED_SHARE = 0.1  # of the sequences, from which on it is worth a warning
STANDARD_ERRORS = 3.0  # that the share must exceed the one by chance
MIN_SEQUENCES = 20  # that vary; a tenth of fewer may be one odd sequence


@dataclass(frozen=True)
class ChannelSpread(JsonResult):
    """Spread of one channel in training, in units of the data. None where there is no value.

    `lowest`, `highest`: of all values. `between`: deviation between the means of the sequences. `within`, `within_p5`,
    `within_p95`: median and quantiles of the deviations within sequences of two values or more.
    """

    lowest: float | None = None
    highest: float | None = None
    between: float | None = None
    within: float | None = None
    within_p5: float | None = None
    within_p95: float | None = None

    @property
    def within_ratio(self) -> float | None:
        """The 95 % quantile of the deviations within sequences over the 5 % quantile, None if that is 0."""
        return self.within_p95 / self.within_p5 if self.within_p5 and self.within_p95 is not None else None


def measure_spread(values: np.ndarray, lengths: np.ndarray) -> ChannelSpread:
    """Measure one channel. `values`: (S,) in units of the data, NaN where missing, rows end to end. `lengths`: (N,).

    >>> measure_spread(np.array([1.0, 3.0, 11.0, 13.0]), np.array([2, 2])).to_dict()
    {'lowest': 1.0, 'highest': 13.0, 'between': 5.0, 'within': 1.0, 'within_p5': 1.0, 'within_p95': 1.0}
    """
    seen = np.isfinite(values)
    if not seen.any():
        return ChannelSpread()
    sequences = scale_sequences(values[:, None], seen[:, None], lengths)
    counts = np.add.reduceat(seen, np.cumsum(lengths) - lengths, dtype=np.int64)
    deviations = sequences.deviation[counts > 1, 0]
    p5, p50, p95 = np.quantile(deviations, (0.05, 0.5, 0.95)).tolist() if len(deviations) else (None, None, None)
    means = sequences.mean[counts > 0, 0]
    return ChannelSpread(
        lowest=float(values[seen].min()),
        highest=float(values[seen].max()),
        between=mean_and_deviation(means)[1],
        within=p50,
        within_p5=p5,
        within_p95=p95,
    )


@dataclass(frozen=True)
class Flattening(JsonResult):
    """Share of the sequences that vary, but by less than a tenth of the scale, over all channels of a field.

    `by_chance`: the share after the values changed places at random over all sequences. Heavy tails flatten sequences
    too, but shuffled ones as much, and a scale for each sequence does not help them. `sequences`: the number that vary.
    """

    share: float
    by_chance: float
    sequences: int

    @property
    def is_notable(self) -> bool:
        """True if the sequences differ in scale or offset so much that one scale for all flattens many of them."""
        if self.sequences < MIN_SEQUENCES:
            return False
        variance = self.share * (1 - self.share) + self.by_chance * (1 - self.by_chance)
        margin = max(FLATTENED_SHARE, STANDARD_ERRORS * (variance / self.sequences) ** 0.5)
        return self.share - self.by_chance >= margin


def measure_flattening(scaled: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> Flattening | None:
    """Count the sequences that are flat in the channels as the model gets them.

    `scaled`: (S, W). `seen`: (S, W) mask of the values that are not filled. `lengths`: (N,). Channels of two values,
    such as flags, do not count. None if no other channel varies within a sequence.

    >>> waves = np.tile([1.0, 2.0, 1.5], 40) * np.repeat(np.geomspace(0.01, 100, 40), 3)
    >>> flattening = measure_flattening(waves[:, None] / waves.std(), np.ones((120, 1), bool), np.full(40, 3))
    >>> flattening.share, flattening.is_notable
    (0.725, True)
    """
    flat = shuffled_flat = varying = channels = 0
    for channel in range(scaled.shape[1]):
        values, present = scaled[:, channel].astype(np.float64), seen[:, channel]
        if not present.any() or _is_flag(values[present]):
            continue
        deviations = scale_sequences(values[:, None], present[:, None], lengths).deviation[:, 0]
        varies = deviations > 0
        channel_flat = int((deviations[varies] < FLAT_DEVIATION).sum())
        flat, varying, channels = flat + channel_flat, varying + int(varies.sum()), channels + 1
        if channel_flat >= FLATTENED_SHARE * varies.sum():
            shuffled_flat += _flat_when_shuffled(values, present & np.repeat(varies, lengths), lengths)
    if not varying:
        return None
    return Flattening(flat / varying, shuffled_flat / varying, varying // channels)


def _is_flag(values: np.ndarray) -> bool:
    return bool(((values == values.min()) | (values == values.max())).all())


def _flat_when_shuffled(values: np.ndarray, chosen: np.ndarray, lengths: np.ndarray) -> int:
    """Count the sequences that are flat after the `chosen` values changed places at random."""
    shuffled = values.copy()
    shuffled[chosen] = np.random.default_rng(0).permutation(values[chosen])
    deviations = scale_sequences(shuffled[:, None], chosen[:, None], lengths).deviation[:, 0]
    return int((deviations < FLAT_DEVIATION).sum())


def measure_number(
    encoder: Encoder, sequences: Ragged, channels: Sequence[str]
) -> tuple[dict[str, ChannelSpread], Flattening | None]:
    """Return the spread of each of the `channels` of a number field, and its flattening.

    The latter is None if the field has no single scale.
    """
    field = encoder.field
    values, lengths = encoder.original_values(sequences.fields), np.asarray(sequences.lengths)
    if values is None:
        return {}, None
    spread = {name: measure_spread(values[:, channel], lengths) for channel, name in enumerate(channels)}
    if not encoder.has_one_scale:
        return spread, None
    scaled = np.asarray(sequences.fields[field.name][:, : len(channels)])
    return spread, measure_flattening(scaled, np.isfinite(values), lengths)
