"""Statistics of each field: unknown, missing, constant and extreme values, and the spread of each channel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.data.encoding.kinds.number import NumberEncoder
from seqclf.data.encoding.sequence_scale import scale_sequences
from seqclf.data.field_spec import UNKNOWN_IDS
from seqclf.data.ragged import Ragged
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import sample_split
from seqclf.evaluation.baseline import MAX_FITTED_TOKENS
from seqclf.system.json_result import JsonResult

# Spread of number fields: range, standard deviation within and between sequences, and flat sequences. All sequences are
# scaled by one mean and standard deviation. A sequence is flat if its scaled values vary little.

MAX_SPREAD_VALUES = 2_000_000  # maximum number of values; if a field has more training values, whole rows are sampled
# A sequence is flat if the standard deviation of its scaled values is below this number. The noise that training adds
# (model.number_noise, 0.3 by default) has at least nine times the variance of a flat sequence.
FLAT_DEVIATION = 0.1
FLATTENED_SHARE = 0.1  # minimum fraction of flat sequences for a warning, beyond the fraction by chance
STANDARD_ERRORS = 3.0  # the difference must also be at least this many standard errors
MIN_SEQUENCES = 20  # minimum of varying sequences; a tenth of fewer sequences may be a single outlier


@dataclass(frozen=True)
class ChannelSpread(JsonResult):
    """Spread of one channel in the training rows, in units of the data.

    If the channel has no values, all numbers are `None`. `lowest`, `highest`: smallest and largest value. `between`:
    standard deviation of the mean values of the sequences. `within`, `within_p5`, `within_p95`: median, 5 % quantile
    and 95 % quantile of the standard deviation within a sequence, over all sequences. These quantiles ignore sequences
    with fewer than two values.
    """

    lowest: float | None = None
    highest: float | None = None
    between: float | None = None
    within: float | None = None
    within_p5: float | None = None
    within_p95: float | None = None

    @property
    def within_ratio(self) -> float | None:
        """Ratio of `within_p95` to `within_p5`, or `None` if `within_p5` is 0 or `None`."""
        return self.within_p95 / self.within_p5 if self.within_p5 and self.within_p95 is not None else None


def measure_spread(values: np.ndarray, lengths: np.ndarray) -> ChannelSpread:
    """Measure the spread of one channel.

    `values`: (S,) values of all rows, one row after the other, in units of the data. Missing values are NaN. `lengths`:
    (N,) number of tokens of each row.

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
        between=float(means.std()),
        within=p50,
        within_p5=p5,
        within_p95=p95,
    )


@dataclass(frozen=True)
class Flattening(JsonResult):
    """Fraction of flat sequences in a number field.

    A sequence is flat in a channel if its scaled values vary, but their standard deviation is below `FLAT_DEVIATION`.
    `share`: fraction of flat sequences among the sequences that vary, over all channels. `by_chance`: fraction of flat
    sequences after all values were shuffled across sequences. If the distribution of the values has a heavy tail,
    shuffled sequences are flat too. A separate scale for each sequence does not help data with a heavy tail.
    `sequences`: number of varying sequences, averaged over the channels. `of_logarithms`: the share with `log: true`,
    or None if that was not measured.
    """

    share: float
    by_chance: float
    sequences: int
    of_logarithms: float | None = None

    @property
    def is_notable(self) -> bool:
        """True if the sequences differ so much in scale or offset that many sequences are flat on a shared scale."""
        if self.sequences < MIN_SEQUENCES:
            return False
        variance = self.share * (1 - self.share) + self.by_chance * (1 - self.by_chance)
        margin = max(FLATTENED_SHARE, STANDARD_ERRORS * (variance / self.sequences) ** 0.5)
        return self.share - self.by_chance >= margin

    @property
    def remedy(self) -> dict[str, Any]:
        """Option of the field that ends it. Logarithms keep the level of a sequence as it is."""
        logarithms_do = self.of_logarithms is not None and self.of_logarithms < FLATTENED_SHARE
        return {"log": True} if logarithms_do else {"scale": "sequence"}


def measure_flattening(scaled: np.ndarray, seen: np.ndarray, lengths: np.ndarray) -> Flattening | None:
    """Measure the fraction of flat sequences in the scaled channels of a number field.

    `scaled`: (S, W) scaled values of all rows, one row after the other. `seen`: (S, W) bool, True for values of the
    data, False for filled gaps. `lengths`: (N,) number of tokens of each row. Channels with only two distinct values,
    such as flags, are ignored. Return `None` if no other channel varies within a sequence.

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
    """Shuffle the `chosen` values across all sequences, and count the flat sequences after the shuffle."""
    shuffled = values.copy()
    shuffled[chosen] = np.random.default_rng(0).permutation(values[chosen])
    deviations = scale_sequences(shuffled[:, None], chosen[:, None], lengths).deviation[:, 0]
    return int((deviations < FLAT_DEVIATION).sum())


def measure_number(
    encoder: FieldEncoder, sequences: Ragged, channels: Sequence[str]
) -> tuple[dict[str, ChannelSpread], Flattening | None]:
    """Return the spread of each channel of a number field, and the fraction of flat sequences in the field.

    The fraction of flat sequences is `None` if the encoder does not scale the field by one mean and standard deviation.
    """
    field = encoder.field
    if not isinstance(encoder, NumberEncoder):
        return {}, None
    values, lengths = encoder.original_values(sequences.fields), np.asarray(sequences.lengths)
    spread = {name: measure_spread(values[:, channel], lengths) for channel, name in enumerate(channels)}
    if encoder.scale not in ("standard", "robust"):
        return spread, None
    seen = np.isfinite(values)
    flattening = measure_flattening(np.asarray(sequences.fields[field.name][:, : len(channels)]), seen, lengths)
    if flattening is not None and flattening.is_notable and not field.options.get("log") and values[seen].min() >= 0:
        logs = np.ma.masked_array(np.log1p(np.where(seen, values, 0)), ~seen)
        deviation = np.maximum(logs.std(axis=0), np.finfo(np.float32).tiny)
        scaled = ((logs - logs.mean(axis=0)) / deviation).filled(0)
        with_logs = measure_flattening(scaled, seen, lengths)
        flattening = replace(flattening, of_logarithms=None if with_logs is None else with_logs.share)
    return spread, flattening


@dataclass(frozen=True)
class FieldStatistics(JsonResult):
    """Statistics of one field. A statistic is `None` if it does not apply to the kind of the field.

    `describe`: description of the encoder's options. `size`: number of category ids. `unknown`: dict split → fraction
    of tokens whose value is not in the vocabulary. `missing`: dict channel → fraction of training tokens without a
    value. `constant`: True if every training token has the same value. `constant_channels`: channels of a number field
    that are constant, if other channels of the field vary. `spread`: dict channel
    of a number field → spread, measured on at most `MAX_SPREAD_VALUES` values. `flattened`: fraction of flat sequences,
    or `None` if the field is not scaled by one mean and standard deviation.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {
            "size",
            "unknown",
            "missing",
            "constant_channels",
            "spread",
            "flattened",
        }  # only some field kinds have these statistics
    )

    kind: str
    columns: list[str]
    describe: str
    constant: bool
    size: int | None = None
    unknown: dict[str, float] | None = None
    missing: dict[str, float] | None = None
    constant_channels: list[str] | None = None
    spread: dict[str, ChannelSpread] | None = None
    flattened: Flattening | None = None


def measure_field(dataset: Dataset, name: str, encoder: FieldEncoder) -> FieldStatistics:
    """Measure the statistics of one field. Only a sample of the rows of a large split is measured."""
    spec = encoder.spec()
    values = {
        split_name: sample_split(split, MAX_FITTED_TOKENS, 0).sequences.fields[name]
        for split_name, split in dataset.splits.items()
    }
    if spec["kind"] != "number":
        return _id_statistics(encoder, values, spec["size"], UNKNOWN_IDS[spec["kind"]])
    statistics = _number_statistics(encoder, values["train"])
    channels = encoder.channel_names()
    sample = sample_split(dataset.splits["train"], MAX_SPREAD_VALUES // len(channels), 0).sequences
    spread, flattened = measure_number(encoder, sample, channels)
    return replace(statistics, spread=spread or None, flattened=flattened)


def _id_statistics(encoder: FieldEncoder, ids: dict[str, np.ndarray], size: int, unknown: int) -> FieldStatistics:
    """Measure the statistics of a field whose tokens are ids.

    `ids`: dict split → (S,) ids, or (S, K) with K ids for each token. `unknown`: id of unknown values. Smaller ids
    stand for tokens without a value.
    """
    train = ids["train"]
    return FieldStatistics(
        kind=encoder.field.kind,
        columns=list(encoder.field.columns),
        describe=encoder.describe(),
        constant=bool(len(train) and (train == train[0]).all()),
        size=size,
        unknown={
            split: float((values == unknown).sum() / max(1, (values >= unknown).sum())) for split, values in ids.items()
        },
    )


def _number_statistics(encoder: FieldEncoder, train: np.ndarray) -> FieldStatistics:
    """Measure a number field from its encoded training values (S, D).

    The first columns of `train` are the channels of the field. If values can be missing, one mask column for each
    channel follows.
    """
    channels, mask_channels = encoder.channel_names(), encoder.mask_channels()
    missing = None
    if mask_channels is not None:
        shares = 1 - np.asarray(train[:, mask_channels]).mean(axis=0)
        missing = {channel: float(share) for channel, share in zip(channels, shares, strict=True)}
    is_constant = encoder.constant_channels(train)
    constant_channels = None
    if not is_constant.all():
        # A constant channel with missing values is not listed, because the presence of a value carries information.
        constant_channels = [
            channel
            for channel, constant in zip(channels, is_constant, strict=True)
            if constant and not (missing or {}).get(channel)
        ]
    return FieldStatistics(
        kind=encoder.field.kind,
        columns=list(encoder.field.columns),
        describe=encoder.describe(),
        constant=bool(is_constant.all()),
        missing=missing,
        constant_channels=constant_channels,
    )
