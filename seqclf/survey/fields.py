"""Statistics of each field: unknown, missing and constant values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from seqclf.data.encoding.field_encoder import FieldEncoder
from seqclf.data.field_spec import NumberSpec, kind_of
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import sample_split
from seqclf.evaluation.baseline import MAX_FITTED_TOKENS
from seqclf.system.json_result import JsonResult


@dataclass(frozen=True)
class FieldStatistics(JsonResult):
    """Statistics of one field. A statistic is `None` if it does not apply to the kind of the field.

    `constant`: True if every training token, or sequence if static, has the same value. `unknown`: dict split →
    fraction of tokens outside the vocabulary. `missing`: dict channel → fraction of training tokens without a value.
    `constant_channels`: constant channels of a number field, if others vary.
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset({"unknown", "missing", "constant_channels"})

    kind: str
    constant: bool
    unknown: dict[str, float] | None = None
    missing: dict[str, float] | None = None
    constant_channels: list[str] | None = None


def measure_field(dataset: Dataset, name: str, encoder: FieldEncoder) -> FieldStatistics:
    """Measure the statistics of one field, on a sample of the rows of a large split."""
    spec = encoder.spec()
    samples = {split: sample_split(rows, MAX_FITTED_TOKENS, 0).sequences for split, rows in dataset.splits.items()}
    tokens = {split: (rows.static if encoder.field.static else rows.fields)[name] for split, rows in samples.items()}
    train = tokens["train"]
    # Ids below that of unknown values stand for tokens without a value.
    unknown_id = kind_of(spec).unknown_id
    if unknown_id is None:
        return _number_statistics(encoder, spec, train)  # type: ignore[arg-type]
    return FieldStatistics(
        kind=encoder.field.kind,
        constant=bool(len(train) and (train == train[0]).all()),
        unknown={
            split: float((ids == unknown_id).sum() / max(1, (ids >= unknown_id).sum())) for split, ids in tokens.items()
        },
    )


def _number_statistics(encoder: FieldEncoder, spec: NumberSpec, train: np.ndarray) -> FieldStatistics:
    """Measure (S, D) encoded training values: the channels, followed by their masks if values can be missing."""
    channels, missing = encoder.channel_names(), dict[str, float]()
    width = len(channels)
    if "masked" in spec:
        shares = 1 - np.asarray(train[:, width : 2 * width]).mean(axis=0)
        missing = dict(zip(channels, shares.tolist(), strict=True))
    is_equal = (np.asarray(train) == train[:1]).all(axis=0)
    is_constant = is_equal[:width]
    if "constant" in spec:
        # In sequences of equal values, all scaled values are 0. Two such sequences may still differ in the last
        # channels, log-deviation and log-mean.
        is_constant = is_constant & is_equal[-2 * width :].reshape(2, -1).all(axis=0)
    # A constant channel with missing values is not listed, because the presence of a value carries information.
    constant = [name for name, same in zip(channels, is_constant, strict=True) if same and not missing.get(name)]
    return FieldStatistics(
        kind=encoder.field.kind,
        constant=bool(is_constant.all()),
        missing=missing or None,
        constant_channels=None if is_constant.all() else constant,
    )
