"""Drift: which fields of new rows differ from the reference data, and limits of how unlike these new rows may be.

Tests compare the shares of bins in new rows with those in the reference data. Rows may come in groups. The share m of a
bin is the mean over N rows of the proportion p_i of a row's tokens in the bin. Rows of a group are alike, so the
variance of m is that of the sums of G groups (Cameron and Miller 2015, "A Practitioner's Guide to Cluster-Robust
Inference", equation 11, with Kish's effective number of groups):

    v = G / (G - 1) · sum over groups of (sum over the group's rows of (p_i - m))² / N²

The test statistic is t = (m₁ - m₀) / √(v₀ + v₁), with min(G₀, G₁) - 1 degrees of freedom, because v₁ may depend on v₀.
Two lower limits keep small samples from false claims. If all G groups agree, the next may differ: v ≥ 1 / G². And new
rows are taken to vary as much as old ones, even if few of them do not show it: v₁ ≥ v₀ · N₀ / N₁. New rows without
known groups thereby have the design effect of the old ones. `tests/bundle/test_drift.py` simulates false claims.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from seqclf.bundle.predictions import Counts, Predictions, Result
from seqclf.bundle.reference_data import Bins, BinShares, PredictedRows, ReferenceData, bin_shares
from seqclf.data.encoding.row_checks import StrangeMeasures
from seqclf.data.ragged import take
from seqclf.documents.formatting import percent, plain_number, shortened
from seqclf.errors import InputError
from seqclf.system.json_result import JsonResult

MIN_ROWS = 20  # fewer new rows are not compared
LEVEL = 0.05  # probability that any bin of unchanged data is found to drift
MAX_ROWS = 20_000  # rows of a sample
MIN_DISTANCE = 0.05  # a smaller distance moves few predictions, but is beyond chance in a million rows
# Columns of a sample; the spaces keep them apart from fields.
SAMPLING, GROUPS, NUMBER = "sampling key", "group key", "row number"
RATE, DRAWN = "sampling rate", "rows drawn"  # further keys of the dict that `added_since` returns


def drifted_bins(old: BinShares, new: BinShares, tests: int) -> np.ndarray:
    """Return (B,) True for each bin whose share differs by more than chance.

    `tests`: bins of all fields; the level of the test of each bin is `LEVEL` / `tests` (Bonferroni).
    """
    old_groups = float(old.rows) if old.groups is None else old.groups
    groups = new.rows * old_groups / old.rows if new.groups is None else new.groups
    if min(old_groups, groups) < 2:
        return np.zeros(len(old.mean), bool)
    old_variance = np.maximum(old.variance, old_groups**-2)
    variance = np.maximum(np.maximum(new.variance, old_variance * old.rows / new.rows), groups**-2)
    t = np.abs(new.mean - old.mean) / np.sqrt(old_variance + variance)
    return np.less(two_sided(t, min(old_groups, groups) - 1), LEVEL / tests)


def two_sided(t: np.ndarray, freedom: float) -> np.ndarray:
    """Return the probability (B,) that Student's t is at least as far from 0 as `t` (B,), to five digits below 0.3.

    It is the regularized incomplete beta function I_u(a, 1/2) with u = f / (f + t²) and a = f / 2 for f degrees of
    freedom (Abramowitz and Stegun 1964, equations 26.5.1 and 26.7.1), whose integral becomes smooth by y = (x / u)^a.
    SciPy has it too, but prediction must not need SciPy.

    >>> two_sided(np.array([12.706, 63.657]), 1).round(4).tolist()
    [0.05, 0.01]
    """
    a, u = freedom / 2, freedom / (freedom + np.square(t, dtype=np.float64))
    nodes, weights = np.polynomial.legendre.leggauss(64)
    integral = (1 - u[:, None] * ((nodes + 1) / 2) ** (1 / a)) ** -0.5 @ weights / 2
    return np.exp(a * np.log(u) - math.log(a) - math.lgamma(a) - math.lgamma(0.5) + math.lgamma(a + 0.5)) * integral


@dataclass(frozen=True, kw_only=True)
class FieldDrift(JsonResult):
    """A field of new data that differs from the reference data by more than chance.

    `distance`: total variation distance, half the sum of the absolute differences of the shares of its bins. `of`:
    "median", or the value whose share changed most. `before`, `after`: median or share in the old and in the new data.
    """

    field: str
    distance: float
    of: str
    before: float
    after: float

    def __str__(self) -> str:
        text = plain_number if self.of == "median" else percent
        return f"{self.field}: {self.of} {text(self.before)} → {text(self.after)} (distance {self.distance:.2f})"


def field_drift(field: str, bins: Bins, before: np.ndarray, after: np.ndarray) -> FieldDrift:
    """Return the drift of a field. `before`, `after`: (K + 2,) means of the proportions."""
    old, new = (np.diff(mean, prepend=0.0) if bins.is_number else mean for mean in (before, after))
    bin, distance = int(np.abs(new - old).argmax()), round(float(np.abs(new - old).sum()) / 2, 4)
    of, pair = shortened(bins.texts[bin], 40), [old[bin], new[bin]]
    if bins.is_number and bin < len(bins.values):
        medians = [bins.values[mean[:-2].searchsorted(mean[-3] / 2)] for mean in (before, after)]
        # Numbers in the outer bins have any distance from their values, so no median lies there for certain.
        if medians[0] != medians[1] and medians[1] in bins.values[1:-1]:
            of, pair = "median", medians
    start, end = (float(f"{value:.6g}") for value in pair)
    return FieldDrift(field=field, distance=distance, of=of, before=start, after=end)


class RowSample:
    """Random sample of up to `MAX_ROWS` rows of new data, each equally likely.

    `rate`: probability of a row. `drawn`: number of rows so far, of which some are in the sample.
    """

    def __init__(self, reference: ReferenceData):
        self.reference, self.rate, self.random, self.drawn = reference, 1.0, np.random.default_rng(0), 0
        # Proportions by name, and the keys, groups and numbers of the sampled rows, in the order of the rows.
        self.columns: dict[str, np.ndarray] = {}

    def add(self, rows: PredictedRows) -> None:
        """Measure the next rows. Either all calls have groups, or none."""
        if not self.reference.fields:
            return
        keys = self._next_keys(len(rows.lengths))
        chosen = np.flatnonzero(keys < self.rate)
        numbers = self.drawn - len(keys) + chosen
        groups = None if rows.groups is None else rows.groups[chosen]
        rows = PredictedRows(take(rows.sequences, chosen), rows.lengths[chosen], rows.probabilities[chosen], groups)
        found = {**self.reference.proportions(rows), SAMPLING: keys[chosen], NUMBER: numbers}
        if groups is not None:
            found[GROUPS] = groups
        self._append(found)
        while len(self.columns[SAMPLING]) > MAX_ROWS:
            self.rate /= 2
            self._append({})

    def added_since(self, drawn: int) -> dict[str, np.ndarray]:
        """Return columns of the sampled rows after the first `drawn` rows, which `restore` adds to an equal sample."""
        start = self.columns[NUMBER].searchsorted(drawn) if self.columns else 0
        found = {name: part[start:] for name, part in self.columns.items()}
        return found | {RATE: np.array(self.rate), DRAWN: np.array(self.drawn)}

    def restore(self, added: dict[str, np.ndarray]) -> None:
        """Add what another sample returned, as if its rows were measured again."""
        self._next_keys(int(added.pop(DRAWN)) - self.drawn)
        self.rate = float(added.pop(RATE))
        self._append(added)

    def _next_keys(self, rows: int) -> np.ndarray:
        self.drawn += rows
        return self.random.random(rows)

    def _append(self, found: Mapping[str, np.ndarray]) -> None:
        for name, part in found.items():
            self.columns[name] = np.concatenate([self.columns.get(name, part[:0]), part])
        if self.columns and not (is_kept := self.columns[SAMPLING] < self.rate).all():
            self.columns = {name: part[is_kept] for name, part in self.columns.items()}

    def drift(self) -> list[FieldDrift]:
        """Return the fields that drift, the most distant one first. Fewer than `MIN_ROWS` rows show nothing."""
        found, fields = [], self.reference.fields
        tests = sum(len(bins.texts) for bins, _ in fields.values())
        for name, (bins, old) in fields.items():
            proportions = self.columns.get(name)
            if proportions is None or len(proportions) < MIN_ROWS:
                continue
            new = bin_shares(proportions, self.columns.get(GROUPS))
            if drifted_bins(old, new, tests).any():
                found.append(field_drift(name, bins, old.mean, new.mean))
        return sorted((each for each in found if each.distance >= MIN_DISTANCE), key=lambda each: -each.distance)


Part = TypeVar("Part", Result, Predictions)


class LimitError(InputError):
    """Error for rows that exceed a limit of `InputLimits`. A command exits with code 3."""

    exit_code = 3


@dataclass(frozen=True, kw_only=True)
class InputLimits:
    """Largest share of rejected rows and of far tokens, and largest distance of a field that drifts. None: no limit."""

    max_refused: float | None = None
    max_far: float | None = None
    max_drift: float | None = None

    def __bool__(self) -> bool:
        return self != NO_LIMITS

    def check(self, strange: StrangeMeasures, reference: ReferenceData, unmeasured: Collection[str] = ()) -> None:
        """Raise InputError for a wrong limit. `unmeasured`: names of limits that the engine does not measure."""
        for name, value in vars(self).items():
            if value is not None and not 0 <= value <= 1:
                raise InputError(f"{name}={value}", "must be from 0 to 1")
        missing = {"max_far": "far" not in strange.names, "max_drift": not reference.fields}
        for name, is_missing in missing.items():
            if getattr(self, name) is not None and (is_missing or name in unmeasured):
                lacks = "the bundle has nothing to compare rows with" if is_missing else "it is not measured here"
                raise InputError(name, lacks, f"remove {name}, or predict with engine=local and without explain")

    def checked(self, parts: Iterator[Part], strange: StrangeMeasures, sample: RowSample) -> Iterator[Part]:
        """Yield all parts, and then raise LimitError if they exceed a limit together."""
        counts, error, known = Counts(), None, strange.far.copy()
        for part in parts:
            counts = counts.plus(part.counts)
            if error is None and part.counts.refused:
                error = next(filter(None, part.errors), None)
            yield part
        remedy = "compare the columns, their types and units with those of training; nothing was written"
        drift = sample.drift() if self else []
        refused, far = counts.refused / max(1, counts.rows), counts.far / max(1, counts.encoded)
        if self.max_refused is not None and refused > self.max_refused:
            problem = f"{refused:.1%} of the rows are rejected ({error})"
            raise LimitError(f"max_refused={self.max_refused}", problem, remedy)
        if self.max_far is not None and far > self.max_far:
            # Other processes measure the rows of an engine.
            names = [name for name, _ in (strange.far - known).most_common(1)] or strange.numbers
            names = [str(next((each for each in drift if each.field == name), name)) for name in names]
            raise LimitError(f"max_far={self.max_far}", f"{far:.1%} of the tokens are far ({', '.join(names)})", remedy)
        if self.max_drift is not None and drift and drift[0].distance > self.max_drift:
            raise LimitError(f"max_drift={self.max_drift}", f"drifted since training: {drift[0]}", remedy)


NO_LIMITS = InputLimits()
