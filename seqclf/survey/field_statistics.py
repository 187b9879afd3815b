"""Field statistics: unknown, missing, constant and extreme values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.encoding.field_spec import UNKNOWN_IDS
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import sample_split
from seqclf.survey.baseline import MAX_FITTED_TOKENS
from seqclf.survey.number_spread import MAX_SPREAD_VALUES, ChannelSpread, Flattening, measure_number
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class FieldStatistics(JsonResult):
    """Statistics of one field. Those that do not apply to its kind are None.

    `describe`: the encoder's options in words. `size`: the number of category ids. `unknown`: by split, the share of
    tokens whose value is not in the vocabulary. `missing`: by channel, the share of training tokens without a value.
    `constant`: every training token has the same value. `constant_channels`: channels of a number field that never
    change, while others do. `extremes`: warnings about outlying numbers. `spread`: by channel of a number field, on a
    sample of at most `MAX_SPREAD_VALUES` values. `flattened`: None where numbers have no single
    scale.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset(
        {
            "size",
            "unknown",
            "missing",
            "constant_channels",
            "extremes",
            "spread",
            "flattened",
        }  # that other kinds of fields have
    )

    kind: str
    columns: list[str]
    describe: str
    constant: bool
    size: int | None = None
    unknown: dict[str, float] | None = None
    missing: dict[str, float] | None = None
    constant_channels: list[str] | None = None
    extremes: list[str] | None = None
    spread: dict[str, ChannelSpread] | None = None
    flattened: Flattening | None = None


def measure_field(dataset: Dataset, name: str, encoder: Encoder) -> FieldStatistics:
    """Measure one field. Large splits are sampled by whole rows."""
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


def _id_statistics(encoder: Encoder, ids: dict[str, np.ndarray], size: int, unknown: int) -> FieldStatistics:
    """Measure (S,) ids, or (S, K) of which those below `unknown` stand for no value."""
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


def _number_statistics(encoder: Encoder, train: np.ndarray) -> FieldStatistics:
    """Measure (S, D) encoded training values: channels first, then one mask channel each where values may miss."""
    channels, mask_channels = encoder.channel_names(), encoder.mask_channels()
    missing = None
    if mask_channels is not None:
        shares = 1 - np.asarray(train[:, mask_channels]).mean(axis=0)
        missing = {channel: float(share) for channel, share in zip(channels, shares, strict=True)}
    is_constant = encoder.constant_channels(train)
    constant_channels = None
    if not is_constant.all():
        # A channel that is sometimes missing is no constant: its presence carries information.
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
        extremes=encoder.outlier_warnings(),
    )
