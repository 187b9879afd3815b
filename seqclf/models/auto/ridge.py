"""Ridge head: a linear classifier with closed-form leave-one-group-out logits, which choose its penalty and scales."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqclf.models.auto.head_weights import choose_scales

PENALTIES = np.logspace(-5, 2, 15)  # multiples of the mean variance along one eigenvector
MIN_VARIANCE = 1e-3  # mean variance that the penalties assume at least
BLOCK = 1024  # features that are centred in double precision at a time
MAX_GROUP_WORK = 10_000_000_000  # sum over groups of rows squared, times features: 3 groups of 1,000 rows as a rule
MIN_WEIGHT, MAX_WEIGHT = 1e-6, 1e4  # of a row, in mean weights
MIN_LEFT = 1e-9  # lowest part of a row's residual that its own target does not explain
PART_CELLS = 8_000_000  # numbers of the groups that are left out at a time


class Ridge(NamedTuple):
    """A fitted head: logits = (features - mean) @ weight + bias, at the scales that leave-one-out chose.

    `mean`: (F,). `weight`: (F, C). `bias`: (C,). `held_out`: (N, C) logits of each training row from the fit to the
    rows outside its group. `scales`: (3,) scale of each term of the logits (see `fit_ridge`). All are float64.
    """

    mean: Tensor
    weight: Tensor
    bias: Tensor
    held_out: np.ndarray
    scales: np.ndarray


def fit_ridge(
    features: Tensor,
    labels: np.ndarray,
    num_classes: int,
    group: np.ndarray | None = None,
    weights: np.ndarray | None = None,
) -> Ridge:
    """Fit a ridge classifier to N rows.

    The scores are a regression on targets of ±1 per class. The logits are a sum of three terms, each with a scale of at
    least 0: the distance of a score from its mean, the log frequency of the class, so that features without use give
    the class frequencies, and the frequency itself, which is the mean of the score up to a constant. Where features
    tell rare classes apart, a log frequency takes too many rows from them. `features`: (N, F) float32. `labels`: (N,)
    class numbers; a class may have no row. `group`: code (N,) of each row, None if each row is its own group. The work
    grows with the squares of the sizes of the groups (`rows_per_group`). `weights`: (N,) of the rows, None for equal
    ones.
    """
    rows = len(labels)
    # A regression with weights is one of rows times their roots. A row of weight 0 keeps a trace, to be predicted by.
    given = np.ones(rows) if weights is None else np.clip(weights / weights.mean(), MIN_WEIGHT, MAX_WEIGHT)
    given = given * (rows / given.sum())
    root = torch.from_numpy(np.sqrt(given))[:, None]
    group = np.arange(rows) if group is None else np.unique(group, return_inverse=True)[1]
    of_mean = torch.from_numpy(given / given.sum())
    parts = features.split(BLOCK, 1)
    mean = torch.cat([block.double().mean(0) if weights is None else of_mean @ block.double() for block in parts])
    targets = torch.full((rows, num_classes), -1.0, dtype=torch.float64)
    targets[torch.arange(rows), torch.from_numpy(labels)] = 1.0
    vectors, squares = _singular(features, mean, root)
    centred = (targets - (targets.mean(0) if weights is None else of_mean @ targets)) * root
    along = vectors.T @ centred
    # The features of equal rows differ by rounding noise, which must not be fitted.
    unit = max(float(squares.sum()) / rows, MIN_VARIANCE)
    counts = np.bincount(labels, given, num_classes)
    of_rows = np.eye(num_classes)[labels] * given[:, None]
    outside = counts - _group_sums(of_rows, group)  # (N, C) weights of rows outside the group of each row
    totals = outside.sum(1, keepdims=True)
    log_priors = np.log((outside + 1) / (totals + num_classes))
    frequencies = outside / np.where(totals > 0, totals, 1)
    means = torch.from_numpy(2 * frequencies - 1)  # mean targets outside the group
    blocks = _group_rows(group)
    best: tuple[float, float, np.ndarray, np.ndarray] | None = None
    scales = np.ones(3)
    for penalty in (PENALTIES * unit).tolist():
        shrunk = squares / (squares + penalty)
        residuals = centred - vectors @ (shrunk[:, None] * along)
        scores = targets - _held_out_residuals(residuals, vectors, shrunk, blocks, root) / root
        distances = torch.where(torch.from_numpy(totals) > 0, scores - means, 0).numpy()
        terms = np.stack([distances, log_priors, frequencies])
        loss, scales = choose_scales(terms, labels, scales, None if weights is None else given)
        if best is None or loss < best[0]:
            best = loss, penalty, scales, np.tensordot(scales, terms, 1)
    assert best is not None
    _, penalty, scales, held_out = best
    duals = vectors @ (along / (squares + penalty)[:, None])
    # The product of the centred features and the duals, without a centred copy of the features.
    duals = duals * root
    products = torch.cat([(duals.T @ block.double()).T for block in parts])
    weight = (products - mean[:, None] * duals.sum(0)) * scales[0]
    bias = torch.from_numpy(scales[1] * np.log((counts + 1) / (rows + num_classes)) + scales[2] * counts / rows)
    return Ridge(mean, weight, bias, held_out, scales)


def _singular(features: Tensor, mean: Tensor, root: Tensor) -> tuple[Tensor, Tensor]:
    """Return the left singular vectors (N, R) of the centred features and the squares (R,) of the singular values.

    `root`: (N, 1) factor of each centred row.
    """
    rows, width = features.shape

    def blocks() -> Iterator[Tensor]:
        """Yield the centred features, (N, ≤ BLOCK) float64 at a time."""
        for block, middle in zip(features.split(BLOCK, 1), mean.split(BLOCK), strict=True):
            yield (block.double() - middle) * root

    if rows <= width:
        # NumPy computes half of a symmetric product, and PyTorch all of it.
        gram = np.zeros((rows, rows))
        for block in blocks():
            gram += block.numpy() @ block.numpy().T
        squares, vectors = map(torch.from_numpy, np.linalg.eigh(gram))
        return vectors, squares.clamp(min=0)
    covariance = torch.cat([torch.cat([left.T @ right for right in blocks()], 1) for left in blocks()])
    squares, axes = torch.linalg.eigh(covariance)
    kept = squares > 1e-12 * squares[-1]  # rounding noise has no direction
    squares, axes = squares[kept], axes[:, kept] / squares[kept].sqrt()
    vectors = torch.zeros(rows, len(squares), dtype=torch.float64)
    for block, part in zip(blocks(), axes.split(BLOCK), strict=True):
        vectors += block @ part
    return vectors, squares


def rows_per_group(sizes: np.ndarray, features: int) -> int:
    """Return how many rows of each group, of sizes (G,), a fit to `features` features takes, so its work is bounded.

    >>> [rows_per_group(np.array(sizes), 3000) for sizes in ([1000] * 3, [1] * 12_000, [9000, 1000, 1000])]
    [1000, 1, 1154]
    """
    sizes = np.sort(sizes).astype(np.float64)
    # With the k smallest groups whole, the others may have this many rows each.
    left = MAX_GROUP_WORK / features - np.append(0, np.cumsum(sizes**2)[:-1])
    most = np.sqrt(np.maximum(left, 0) / np.arange(len(sizes), 0, -1))
    cut = np.flatnonzero(most < sizes)
    return max(1, int(most[cut[0]] if len(cut) else sizes[-1]))


def _group_sums(values: np.ndarray, group: np.ndarray) -> np.ndarray:
    sums = np.zeros((group.max() + 1, values.shape[1]))
    np.add.at(sums, group, values)
    return sums[group]


def _group_rows(group: np.ndarray) -> list[Tensor]:
    """Return the rows of all groups, one tensor (G, S) for the G groups of S rows."""
    order = np.argsort(group, kind="stable")
    sizes = np.bincount(group)
    starts = np.cumsum(sizes) - sizes
    places = (starts[sizes == size][:, None] + np.arange(size) for size in np.unique(sizes).tolist())
    return [torch.from_numpy(order[of_size]) for of_size in places]


def _held_out_residuals(
    residuals: Tensor, vectors: Tensor, shrunk: Tensor, blocks: list[Tensor], root: Tensor
) -> Tensor:
    """(N, C) residuals of each row from the fit to the rows outside its group: (I - H)⁻¹ times those of the group.

    H is the group's block of the matrix that maps the targets to the scores.
    """
    rows, rank = vectors.shape
    result = torch.empty_like(residuals)
    for block in blocks:
        size = block.shape[1]
        if size == 1:
            chosen = block[:, 0]
            leverage = root[chosen, 0].square() / rows + vectors[chosen].square() @ shrunk
            result[chosen] = residuals[chosen] / (1 - leverage).clamp(min=MIN_LEFT)[:, None]
            continue
        for part in block.split(max(1, PART_CELLS // (size * rank))):
            own = vectors[part] * shrunk.sqrt()
            ones = root[part] @ root[part].transpose(1, 2) / rows
            left = (1 + MIN_LEFT) * torch.eye(size, dtype=torch.float64) - ones - own @ own.transpose(1, 2)
            result[part] = torch.cholesky_solve(residuals[part], torch.linalg.cholesky(left))
    return result
