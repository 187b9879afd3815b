"""Linear head on counts of n-grams: weights by inverse document frequency, and a convex fit that held-out rows choose.

The value of n-gram g in a row is tf·idf / sqrt(sum of idf² over the occurrences of known n-grams). So the logits are
sums over occurrences, divided by one number of the row, and can be computed token by token. The idf of single tokens
may count twice, so that the penalty spares them: held-out rows choose. Most words tell more than their neighbourhood.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqclf.models.heads.scales import choose_scales
from seqclf.wide.folds import draw_folds

SVM_COSTS = (0.05, 0.3, 2.0)
LOGISTIC_COSTS = (3.0, 30.0)  # for two classes alone: a multinomial fit takes 30 times as long and gains a hundredth
MIN_ROWS = (1, 2)  # rows that an n-gram must be in
UNIGRAM_WEIGHT = 2.0  # factor of the idf of single tokens that is tried beside 1
MIN_ERRORS = 2.0  # standard errors of the gain by which that factor must be better
FOLDS = 5
# Work is the time of a fit: non-zeros, and ROW_WORK for each row, times classes.
ROW_WORK = 10  # non-zeros that take as long as the rest of the work on a row; many short rows took minutes without it
MAX_WORK_OF_GRID = 5e6  # work up to which all folds choose between the candidates, not only one
MAX_WORK_OF_FOLDS = 5e7  # the same up to which all folds give held-out logits of the chosen candidate
# Work beyond which the head is fitted to a sample of the rows. One fit takes up to a minute then, if labels are random,
# to which it converges slowly.
MAX_WORK = 2e8
MAX_WORK_OF_CHOICE = 2e7  # the same for the fits that choose between the candidates
UNSEEN_MARGIN = 1.0  # distance below the lowest logit of a row, for classes that a fold's training rows lack


class Candidate(NamedTuple):
    """Settings of a fit.

    `kind`: "svm" or "logistic". `cost`: C of scikit-learn. `min_rows`: rows of an n-gram. `unigram_weight`: factor of
    the idf of single tokens.
    """

    kind: str
    cost: float
    min_rows: int
    unigram_weight: float = 1.0


class Counts(NamedTuple):
    """Counts (N, V) of n-grams, sparse. `is_unigram`: (V,) True for single tokens."""

    matrix: Any
    is_unigram: np.ndarray

    def rows(self, chosen: np.ndarray) -> Counts:
        """Return some rows, by numbers or by a mask."""
        return self._replace(matrix=self.matrix[chosen])


@dataclass(frozen=True)
class SparseHead:
    """A fitted head. `weights`: (V, C) float64, with idf and scale. `squares`: (V,) idf². `bias`: (C,).

    N-grams in too few rows have a square and weights of 0, as if they were unknown.
    """

    weights: np.ndarray
    squares: np.ndarray
    bias: np.ndarray

    def logits(self, counts: Any) -> np.ndarray:
        """Return logits (N, C) of counts (N, V)."""
        return self.terms(counts).sum(axis=0)

    def terms(self, counts: Any) -> np.ndarray:
        """Return both terms (2, N, C) of the logits of counts (N, V): that of the n-grams, and the bias."""
        norm = np.sqrt(np.maximum(counts @ self.squares, np.finfo(np.float64).tiny))
        of_ngrams = (counts @ self.weights) / norm[:, None]
        return np.stack([of_ngrams, np.broadcast_to(self.bias, of_ngrams.shape)])


class FittedHead(NamedTuple):
    """A head, its settings, and logits (N, C) of rows that its folds held out, NaN in rows that no fold held out.

    `rows`: number of rows that the head is fitted to, all N unless their work is above `MAX_WORK`.
    """

    head: SparseHead
    candidate: Candidate
    held_out: np.ndarray
    rows: int


def fit_head(counts: Counts, labels: np.ndarray, groups: np.ndarray | None, classes: int, seed: int) -> FittedHead:
    """Fit a head to counts of n-grams and labels (N,).

    Folds of the rows choose between the candidates by log loss, with the scales of the weights and of the bias that
    give the lowest one. Two scales find rare classes, which a linear SVM of few rows leaves far below the others.
    `groups`: (N,) rows of one group are in one fold. The time is bounded: many rows of many classes are sampled.
    """
    rows = _sampled(counts, labels, classes, MAX_WORK, seed)
    if len(rows) == len(labels):
        return _fit_rows(counts, labels, groups, classes, seed)
    fitted = _fit_rows(counts.rows(rows), labels[rows], None if groups is None else groups[rows], classes, seed)
    held_out = np.full((len(labels), classes), np.nan)
    held_out[rows] = fitted.held_out
    return fitted._replace(held_out=held_out)


def _fit_rows(counts: Counts, labels: np.ndarray, groups: np.ndarray | None, classes: int, seed: int) -> FittedHead:
    fold = draw_folds(len(labels), groups, FOLDS, seed)
    work = _work(counts, classes).sum()
    first = range(FOLDS if work <= MAX_WORK_OF_GRID else 1)
    few = _sampled(counts, labels, classes, MAX_WORK_OF_CHOICE, seed)
    part = counts if len(few) == len(labels) else counts.rows(few)
    outputs = {
        candidate: _held_out(part, labels[few], fold[few], classes, first, candidate)
        for candidate in _candidates(classes)
    }
    chosen = min(outputs, key=lambda candidate: _scales(outputs[candidate], labels[few])[0])
    terms = outputs[chosen]
    if not counts.is_unigram.all():
        heavier = chosen._replace(unigram_weight=UNIGRAM_WEIGHT)
        others = _held_out(part, labels[few], fold[few], classes, first, heavier)
        if _is_better(others, terms, labels[few], None if groups is None else groups[few]):
            chosen, terms = heavier, others
    if len(few) < len(labels):
        terms = _held_out(counts, labels, fold, classes, first, chosen)
    if len(first) < FOLDS and work <= MAX_WORK_OF_FOLDS:
        rest = _held_out(counts, labels, fold, classes, range(1, FOLDS), chosen)
        terms = np.where(np.isnan(terms), rest, terms)
    _, (scale, scale_of_bias) = _scales(terms, labels)
    fit = _fit(counts, labels, classes, chosen)
    head = SparseHead(fit.weights * scale, fit.squares, fit.bias * scale_of_bias)
    return FittedHead(head, chosen, terms[0] * scale + terms[1] * scale_of_bias, len(labels))


def _sampled(counts: Counts, labels: np.ndarray, classes: int, most: float, seed: int) -> np.ndarray:
    """Return the ascending rows of a random sample whose work is at most `most`.

    One row of each class is in it in any case, so that no class is lost.
    """
    work = _work(counts, classes)
    if work.sum() <= most:
        return np.arange(len(labels))
    order = np.random.default_rng(seed).permutation(len(labels))
    one_of_each = np.unique(labels[order], return_index=True)[1]
    chosen = np.union1d(np.arange(np.searchsorted(np.cumsum(work[order]), most, side="right")), one_of_each)
    return np.sort(order[chosen])


def _work(counts: Counts, classes: int) -> np.ndarray:
    """Return the work (N,) of a fit on each row."""
    return (np.diff(counts.matrix.indptr).astype(np.int64) + ROW_WORK) * classes


def _candidates(classes: int) -> list[Candidate]:
    kinds = [("svm", cost) for cost in SVM_COSTS]
    if classes == 2:
        kinds += [("logistic", cost) for cost in LOGISTIC_COSTS]
    return [Candidate(kind, cost, rows) for rows in MIN_ROWS for kind, cost in kinds]


def _held_out(
    counts: Counts, labels: np.ndarray, fold: np.ndarray, classes: int, folds: range, candidate: Candidate
) -> np.ndarray:
    """Return both terms (2, N, C) of the logits of rows that their folds left out, NaN in the other rows."""
    terms = np.full((2, len(labels), classes), np.nan)
    for number in folds:
        out = fold == number
        if out.any() and not out.all():
            terms[:, out] = _fit(counts.rows(~out), labels[~out], classes, candidate).terms(counts.matrix[out])
    return terms


def _scales(terms: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the lowest log loss of the rows that are not NaN, and the scales (2,) of both terms."""
    rows = ~np.isnan(terms[0, :, 0])
    return choose_scales(terms[:, rows], labels[rows], np.ones(2))


def _is_better(terms: np.ndarray, others: np.ndarray, labels: np.ndarray, groups: np.ndarray | None) -> bool:
    """Return True if `terms` (2, N, C) have a lower log loss than `others`, by `MIN_ERRORS` standard errors.

    Rows that a fold did not hold out are NaN in both. The standard error is that of the mean gain of a row, or group.
    """
    from scipy.special import log_softmax

    rows = np.flatnonzero(~np.isnan(terms[0, :, 0]))
    unit = np.arange(len(rows)) if groups is None else np.unique(groups[rows], return_inverse=True)[1]
    likelihoods = []
    for both in (terms, others):
        logits = np.tensordot(_scales(both, labels)[1], both[:, rows], 1)
        likelihoods.append(log_softmax(logits, axis=1)[np.arange(len(rows)), labels[rows]])
    gains = np.bincount(unit, likelihoods[0] - likelihoods[1])
    return len(gains) > 1 and bool(gains.mean() > MIN_ERRORS * gains.std() / np.sqrt(len(gains)))


def _fit(counts: Counts, labels: np.ndarray, classes: int, candidate: Candidate) -> SparseHead:
    """Fit one candidate. The n-grams known to it are those of these rows."""
    from scipy import sparse

    matrix = counts.matrix
    rows_of = np.bincount(matrix.indices, minlength=matrix.shape[1])  # a row has each of its n-grams once
    known = rows_of >= candidate.min_rows
    idf = np.where(known, np.log((1 + len(labels)) / (1 + rows_of)) + 1, 0.0)
    idf = np.where(counts.is_unigram, candidate.unigram_weight, 1.0) * idf
    norm = np.sqrt(np.maximum(matrix @ idf**2, np.finfo(np.float64).tiny))
    features = sparse.diags(1 / norm) @ matrix @ sparse.diags(idf)
    present = np.unique(labels)
    weights, bias = np.zeros((matrix.shape[1], classes)), np.full(classes, -1.0)
    if len(present) > 1:
        directions, offsets = _estimate(features.tocsr(), labels, candidate)
        if len(present) == 2:  # scikit-learn gives the second class alone
            directions, offsets = np.vstack([-directions, directions]) / 2, np.append(-offsets, offsets) / 2
        weights[:, present], bias[present] = directions.T, offsets
        bias[np.setdiff1d(np.arange(classes), present)] = offsets.min() - UNSEEN_MARGIN
    else:
        bias[present] = 1.0
    return SparseHead(weights * idf[:, None], idf**2, bias)


def _estimate(features: Any, labels: np.ndarray, candidate: Candidate) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if candidate.kind == "svm":
        model: Any = LinearSVC(C=candidate.cost, random_state=0)
    else:
        model = LogisticRegression(C=candidate.cost, solver="liblinear", random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged is judged by held-out rows as any other
        model.fit(features, labels)
    return model.coef_, model.intercept_
