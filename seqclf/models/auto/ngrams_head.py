"""N-grams head: a linear classifier on counts of n-grams, whose convex fit suits the many that are in few rows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from seqclf.batching.batches import SplitRows
from seqclf.data.field_spec import FieldSpec, id_specs, kind_of, token_specs
from seqclf.errors import InputError
from seqclf.models.auto.front_end import FrontEnd, FrontOutputs
from seqclf.models.auto.head import Head
from seqclf.models.auto.head_weights import choose_scales
from seqclf.models.network import Fields, HostLengths
from seqclf.models.streaming import HeadStep, State

LONGEST = 4  # tokens of the longest n-gram
BUCKETS, MAX_CELLS = 65_536, 4_000_000  # rows of the table, and its numbers, where there are many classes
MIN_ROWS = 2  # training rows that a known n-gram is in
MAX_TOKENS = 4_000_000  # training tokens that n-grams are counted in
COSTS = (0.05, 0.3, 2.0)  # C of scikit-learn
FOLDS = 5
# Work is the time of a fit: n-grams of the rows, and ROW_WORK for each row, times classes. More rows are sampled.
ROW_WORK, MAX_WORK, MAX_WORK_OF_CHOICE = 10, 100_000_000, 10_000_000
PRIME, FACTOR, SALT = 2_147_483_647, 1_000_003, 40_503
START, END, NONE = 0, 1_618_033_988, -1  # marks before and after a sequence; code where no n-gram is
PART = 2**16  # float32 states hold tokens in two parts, as they hold integers to 2^24 only


class NgramsHead(Head):
    """Linear function of the n-grams of ids, n = 1 to 4, with marks at the start and the end → logits (B, C).

    The value of an n-gram is its inverse document frequency, and the values of a sequence have length 1. An n-gram is
    known if it is in two training rows; others count for nothing. Of several category fields, each has its n-grams, and
    so have the combinations of the ids of a token. `fit` fits the weights as a linear SVM; held-out rows choose its
    cost, and scales that make its scores logits. A hash table has one n-gram in each bucket, the most frequent one. Its
    code in `known` is the same for one in two billion pairs of n-grams.
    """

    known: Tensor
    table: Tensor
    bias: Tensor

    def __init__(self, front: FrontEnd, fields: Sequence[FieldSpec], num_classes: int):
        super().__init__(front, fields, num_classes)
        self.names = [spec["name"] for spec in id_specs(token_specs(fields)) if not kind_of(spec).has_several]
        if not self.names:
            raise InputError("model.heads", "has ngrams, which reads category fields, and there is none", "remove it")
        self.streams = len(self.names) + (len(self.names) > 1)
        buckets = min(BUCKETS, MAX_CELLS // (num_classes + 1))
        self.register_buffer("known", torch.full((buckets,), NONE))
        self.register_buffer("table", torch.zeros(buckets, num_classes + 1))  # the last column: squares of the values
        self.register_buffer("bias", torch.zeros(num_classes))

    def forward(self, fields: Fields, lengths: Tensor, host_lengths: HostLengths, reading: FrontOutputs) -> Tensor:
        return self.logits(self.total(self.codes_of(fields, lengths)))

    def logits(self, total: Tensor) -> Tensor:
        """Return logits (B, C) of the sum (B, C + 1) of the rows of the n-grams of a sequence."""
        return total[:, :-1] / total[:, -1:].clamp(min=1e-12).sqrt() + self.bias

    def tokens(self, fields: Fields) -> Tensor:
        """Return the tokens (B, T, S) of S streams as numbers from 1 to PRIME - 1."""
        streams = [fields[name].long() % (PRIME - 1) + 1 for name in self.names]
        if len(streams) > 1:
            joined = streams[0]
            for other in streams[1:]:
                joined = (joined * FACTOR + other) % (PRIME - 1) + 1
            streams.append(joined)
        return torch.stack(streams, dim=2)

    def codes_of(self, fields: Fields, lengths: Tensor) -> Tensor:
        """Return the codes (B, T + 1, S · LONGEST) of the n-grams of whole sequences (see `codes`)."""
        token = functional.pad(self.tokens(fields), (0, 0, LONGEST - 1, 1), value=START)
        positions = torch.arange(token.shape[1] - (LONGEST - 1), device=token.device)
        is_end = functional.pad(positions == lengths[:, None], (LONGEST - 1, 0))
        token = torch.where(is_end[..., None], END, token)
        return self.codes(token, positions <= lengths[:, None], positions)

    def codes(self, token: Tensor, inside: Tensor, before: Tensor) -> Tensor:
        """Return the codes (B, T, S · LONGEST) of the n-grams that end at each token, and NONE where there is none.

        `token`: (B, LONGEST - 1 + T, S), with the tokens before the first one in front. `inside`: (B, T) True for
        tokens and the mark of the end. `before`: number of tokens of the sequence before each token, (T,) or (B, T).
        """
        time = inside.shape[1]
        codes = []
        gram = torch.zeros_like(token[:, LONGEST - 1 :])
        salt = torch.arange(token.shape[2], device=token.device) * LONGEST
        for earlier in range(LONGEST):  # prepend the token that is `earlier` tokens before
            start = LONGEST - 1 - earlier
            gram = (gram * FACTOR + token[:, start : start + time]) % PRIME
            code = (gram * SALT + salt + earlier + 1) % PRIME
            codes.append(torch.where((inside & (before >= earlier - 1))[..., None], code, NONE))
        return torch.cat(codes, dim=2)

    def total(self, codes: Tensor) -> Tensor:
        """Return the sum (B, C + 1) of the rows of the known n-grams with `codes` (B, T, N)."""
        total = self.table.new_zeros(codes.shape[0], self.table.shape[1])
        for code in codes.unbind(2):  # one at a time, as the rows of all of them take much memory
            bucket = code.clamp(min=0) % len(self.known)
            is_known = (self.known[bucket] == code) & (code >= 0)
            total = total + (self.table[bucket] * is_known[..., None]).sum(dim=1)
        return total

    def streaming(self) -> NgramsStep:
        return NgramsStep(self)

    @torch.no_grad()
    def fit(self, rows: SplitRows, means: Tensor, statistics: Tensor) -> None:
        chosen = np.sort(rows.sample(len(rows), MAX_TOKENS, seed=0))
        counts = self._counts(rows, chosen)
        groups = None if rows.split.groups is None else np.asarray(rows.split.groups)[chosen]
        given = None if rows.weights is None else rows.weights[chosen]
        values, weights, bias = _fit_linear(counts, rows.labels[chosen], len(self.bias), groups, given)
        self.table.copy_(torch.from_numpy(np.column_stack([weights * values[:, None], values**2])))
        self.bias.copy_(torch.from_numpy(bias))
        self.bias += torch.from_numpy(np.log(rows.class_weights)).to(self.bias)

    def _counts(self, rows: SplitRows, chosen: np.ndarray) -> Any:
        from scipy import sparse

        parts = []
        for batch in rows.batches(chosen):
            codes = self.codes_of(batch.fields, batch.lengths).flatten(1).cpu().numpy()
            pairs = np.searchsorted(chosen, batch.rows)[:, None] * PRIME + codes
            parts.append(np.stack(np.unique(pairs[codes >= 0], return_counts=True)))
        pairs, counts = np.concatenate(parts, axis=1)
        row, code = pairs // PRIME, pairs % PRIME
        grams, number_of_rows = np.unique(code, return_counts=True)
        order = np.argsort(-number_of_rows, kind="stable")[: np.count_nonzero(number_of_rows >= MIN_ROWS)]
        buckets, first = np.unique(grams[order] % len(self.known), return_index=True)
        known = np.full(len(self.known), NONE)
        known[buckets] = grams[order[first]]
        self.known.copy_(torch.from_numpy(known))
        place = code % len(known)
        kept = known[place] == code
        cells = counts[kept].astype(np.float64), (row[kept], place[kept])
        return sparse.csr_matrix(cells, shape=(len(chosen), len(known)))


def _fit_linear(
    counts: Any, labels: np.ndarray, classes: int, groups: np.ndarray | None, given: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values (V,), weights (V, C) and a bias (C,) that make logits. Rows of one group (N,) are in one fold.

    `given`: (N,) weights of the rows, None for equal ones.
    """

    def of(rows: np.ndarray) -> np.ndarray | None:
        return None if given is None else given[rows]

    random = np.random.default_rng(0)
    units = np.arange(len(labels)) if groups is None else np.unique(groups, return_inverse=True)[1]
    fold = (random.permutation(units.max() + 1) % FOLDS)[units]
    work = (np.diff(counts.indptr) + ROW_WORK) * float(classes)
    few, many = (_sampled(work, most, random) for most in (MAX_WORK_OF_CHOICE, MAX_WORK))
    best: tuple[float, float, np.ndarray] | None = None
    for cost in COSTS:
        terms = np.zeros((2, len(few), classes))
        for number in range(FOLDS):
            out = fold[few] == number
            if out.any() and not out.all():
                values, weights, bias = _estimate(counts[few[~out]], labels[few[~out]], classes, cost, of(few[~out]))
                terms[0, out], terms[1, out] = _normalized(counts[few[out]], values) @ weights, bias
        loss, scales = choose_scales(terms, labels[few], np.ones(2), of(few))
        if best is None or loss < best[0]:
            best = loss, cost, scales
    assert best is not None
    values, weights, bias = _estimate(counts[many], labels[many], classes, best[1], of(many))
    return values, weights * best[2][0], bias * best[2][1]


def _sampled(work: np.ndarray, most: float, random: np.random.Generator) -> np.ndarray:
    """Return the rows of a random sample with at most `most` of the `work` (N,), and at least one row."""
    order = random.permutation(len(work))
    return np.sort(order[: max(1, int(np.searchsorted(np.cumsum(work[order]), most)))])


def _normalized(counts: Any, values: np.ndarray) -> Any:
    from scipy import sparse

    norm = np.sqrt(np.maximum(counts @ values**2, np.finfo(np.float64).tiny))
    return (sparse.diags(1 / norm) @ counts @ sparse.diags(values)).tocsr()


def _estimate(
    counts: Any, labels: np.ndarray, classes: int, cost: float, given: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return values (V,) of the n-grams, weights (V, C) and the bias (C,) of a linear SVM for each class."""
    from sklearn.svm import LinearSVC

    rows_of = np.bincount(counts.indices, minlength=counts.shape[1])
    values = np.where(rows_of >= MIN_ROWS, np.log((1 + len(labels)) / (1 + rows_of)) + 1, 0.0)
    if given is not None:  # liblinear rejects rows without weight
        counts, labels, given = counts[given > 0], labels[given > 0], given[given > 0]
    present = np.unique(labels)
    weights, bias = np.zeros((len(values), classes)), np.full(classes, -1.0)
    if len(present) < 2:
        bias[present] = 1.0
        return values, weights, bias
    model = LinearSVC(C=cost, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # held-out rows judge a fit that has not converged as any other
        model.fit(_normalized(counts, values), labels, sample_weight=given)
    directions, offsets = model.coef_, model.intercept_
    if len(present) == 2:  # scikit-learn returns the second class alone
        directions, offsets = np.vstack([-directions, directions]) / 2, np.append(-offsets, offsets) / 2
    weights[:, present], bias[present] = directions.T, offsets
    return values, weights, bias


class NgramsStep(HeadStep):
    """Streaming form of an `NgramsHead`. Its states are the last tokens in two parts each, their number and the sum."""

    def __init__(self, head: NgramsHead):
        super().__init__(head)
        tokens = [State(f"ngrams_{part}", (LONGEST - 1, head.streams)) for part in ("high", "low")]
        self.states = [*tokens, State("ngrams_count", (1,)), State("ngrams_total", (head.table.shape[1],))]

    def forward(
        self, fields: Fields, lengths: Tensor, reading: FrontOutputs, states: Sequence[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        high, low, count, total = states
        token = torch.cat([high.long() * PART + low.long(), self.head.tokens(fields)], dim=1)
        positions = torch.arange(token.shape[1] - (LONGEST - 1), device=token.device)
        codes = self.head.codes(token, positions < lengths[:, None], count.long() + positions)
        total = total + self.head.total(codes)
        at = lengths[:, None] + torch.arange(LONGEST - 1, device=token.device)
        last = token.gather(1, at[..., None].expand(-1, -1, token.shape[2]))
        count = count + lengths[:, None]
        ended = functional.pad(last, (0, 0, 0, 1), value=END)
        ends = self.head.codes(ended, torch.ones_like(count, dtype=torch.bool), count.long())
        logits = self.head.logits(total + self.head.total(ends))
        return logits, [(last // PART).float(), (last % PART).float(), count, total]
