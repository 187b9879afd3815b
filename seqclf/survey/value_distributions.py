"""Value distributions: quantiles by class and a histogram of each channel of a number or time field."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from seqclf.data.encoding.encoder import Encoder
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.ragged import sample_split
from seqclf.survey.largest_classes import largest_classes
from seqclf.survey.number_spread import MAX_SPREAD_VALUES
from seqclf.system.json_result import JsonResult

MOST_CLASSES = 10
BINS = 24
LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
TAILS = (0.005, 0.995)  # quantiles between which the histogram lies, so that one outlier does not flatten it


@dataclass(frozen=True)
class ValueQuantiles(JsonResult):
    """Quantiles of some values, in units of the data, None without values. `values`: their number."""

    values: int
    p5: float | None = None
    p25: float | None = None
    p50: float | None = None
    p75: float | None = None
    p95: float | None = None


@dataclass(frozen=True)
class ValueDistribution(JsonResult):
    """Distribution of one channel in a sample of the training rows.

    `unit`: s for the gaps of a time field, else "". `edges` (B + 1,) and `counts` (B,) of a histogram, whose outer bins
    hold the values beyond them too; empty without two different values. `by_class`: by label, the largest classes.
    """

    unit: str
    all_rows: ValueQuantiles
    by_class: dict[str, ValueQuantiles]
    edges: list[float]
    counts: list[int]


def measure_values(dataset: Dataset, name: str, encoder: Encoder) -> dict[str, ValueDistribution] | None:
    """Measure the channels of a field by name. None for a field without numbers. Large splits are sampled by rows."""
    if encoder.spec()["kind"] != "number":
        return None
    channels = encoder.channel_names()
    sample = sample_split(dataset.splits["train"], MAX_SPREAD_VALUES // max(1, len(channels)), 0)
    values = encoder.readable_values(sample.sequences.fields)
    if values is None:
        return None
    codes = largest_classes(dataset, MOST_CLASSES)
    labels = np.repeat(sample.labels, sample.sequences.lengths)
    masks = {dataset.classes[code]: labels == code for code in codes}
    return {
        channel: measure_channel(values[:, position], masks, encoder.value_unit)
        for position, channel in enumerate(channels[: values.shape[1]])
    }


def measure_channel(values: np.ndarray, masks: dict[str, np.ndarray], unit: str = "") -> ValueDistribution:
    """Measure one channel. `values`: (S,), NaN where missing. `masks`: (S,) by label.

    >>> both = {"a": np.array([True, True, False]), "b": np.array([False, False, True])}
    >>> distribution = measure_channel(np.array([1.0, 3.0, np.nan]), both)
    >>> distribution.all_rows.p50, distribution.by_class["a"].values, distribution.by_class["b"].values
    (2.0, 2, 0)
    """
    present = np.isfinite(values)
    edges, counts = _histogram(values[present])
    return ValueDistribution(
        unit=unit,
        all_rows=_quantiles(values[present]),
        by_class={label: _quantiles(values[present & mask]) for label, mask in masks.items()},
        edges=edges,
        counts=counts,
    )


def _quantiles(values: np.ndarray) -> ValueQuantiles:
    if not len(values):
        return ValueQuantiles(0)
    return ValueQuantiles(len(values), *np.quantile(values, LEVELS).tolist())


def _histogram(values: np.ndarray) -> tuple[list[float], list[int]]:
    """Return edges and counts: one bin for each of a few whole numbers, else equal bins between the tails."""
    if not len(values):
        return [], []
    low, high = np.quantile(values, TAILS).tolist()
    if low == high:
        low, high = float(values.min()), float(values.max())
    if low == high:
        return [], []
    if high - low < BINS and (values == np.round(values)).all():
        edges = np.arange(low, high + 2) - 0.5
    else:
        edges = np.linspace(low, high, BINS + 1)
    counts = np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]
    return edges.tolist(), counts.tolist()
