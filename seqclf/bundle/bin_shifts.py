"""Tests whether the shares of bins differ between two samples of rows, which may come in groups.

The share m of a bin is the mean over N rows of the proportion p_i of a row's tokens in the bin. Rows of a group are
alike, so the variance of m is that of the sums of G groups (Cameron and Miller 2015, "A Practitioner's Guide to
Cluster-Robust Inference", equation 11, with Kish's effective number of groups):

    v = G / (G - 1) · sum over groups of (sum over the group's rows of (p_i - m))² / N²

The test statistic is t = (m₁ - m₀) / √(v₀ + v₁), with min(G₀, G₁) - 1 degrees of freedom, because v₁ may depend on v₀.
Two lower limits keep small samples from false claims. If all G groups agree, the next may differ: v ≥ 1 / G². And new
rows are taken to vary as much as old ones, even if few of them do not show it: v₁ ≥ v₀ · N₀ / N₁. New rows without
known groups thereby have the design effect of the old ones. `tests/bundle/test_training_memory.py` simulates false
claims.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from seqclf.evaluation.design_effect import effective_groups, group_codes

MIN_ROWS = 20  # fewer new rows are not compared
LEVEL = 0.05  # probability that any bin of unchanged data is found to have moved


class BinShares(NamedTuple):
    """Shares of B bins in a sample, and their variance: (B,). `groups`: effective number of groups, None if unknown."""

    mean: np.ndarray
    variance: np.ndarray
    rows: int
    groups: float | None


def bin_shares(proportions: np.ndarray, groups: np.ndarray | None) -> BinShares:
    """Return the shares of bins in at least two rows.

    `proportions`: (N, B) of each row's tokens in each bin. `groups`: (N,) keys of groups, None if unknown.

    >>> bin_shares(np.array([[1.0, 0.0], [0.5, 0.5]]), None).mean.tolist()
    [0.75, 0.25]
    """
    rows, mean, codes = len(proportions), proportions.mean(axis=0, dtype=np.float64), group_codes(groups)
    sums, count = proportions - mean, float(rows)
    if codes is not None:
        order = np.argsort(codes, kind="stable")
        sums = np.add.reduceat(sums[order], np.flatnonzero(np.diff(codes[order], prepend=-1)))
        count = effective_groups(codes)
    variance = (sums**2).sum(axis=0) / rows**2 * count / max(count - 1, 0.5)
    return BinShares(mean, variance, rows, None if groups is None else count)


def moved_bins(old: BinShares, new: BinShares, tests: int) -> np.ndarray:
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
    moved: np.ndarray = two_sided(t, min(old_groups, groups) - 1) < LEVEL / tests
    return moved


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
