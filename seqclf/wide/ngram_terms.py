"""The n-grams that a path of n-grams goes by: what each adds to the score of a class, exactly.

The logit of a class is a sum over the n-grams of a row, so the sum itself tells what each of them adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from seqclf.data.ragged import Ragged
from seqclf.documents.formatting import shortened
from seqclf.evaluation.terms import MAX_TERMS, Term, counted_rows
from seqclf.wide.feature_path import batches, padded
from seqclf.wide.ngram_counts import begin_mark
from seqclf.wide.stream_index import Part, StreamIndex

if TYPE_CHECKING:
    from seqclf.wide.ngrams import Ngrams

MAX_CHARACTERS = 30  # characters of a token with a space, such as a log message, in an n-gram
BEGIN, END, UNKNOWN, NO_PARENT = "<begin>", "<end>", "<unknown>", "<root>"
Texts = Mapping[str, Callable[[np.ndarray], Sequence[str]]]


def terms_of_ngrams(
    path: Ngrams, sequences: Ragged, predicted: np.ndarray, texts: Texts, scale: float = 1.0
) -> list[list[Term]]:
    """Return for each class the n-grams that speak most for it in the rows that are taken for it.

    The contribution of an n-gram to a class is what it adds to the logit of the class, minus what it adds to the logits
    of all classes on average, as a mean over the rows that are taken for the class. Together with the bias, the
    contributions of all n-grams are the logits, up to a constant for all classes.

    Args:
        path: Fitted path.
        sequences: N rows that are counted, spread evenly where they have many tokens.
        predicted: (N,) class number that each row is taken for.
        texts: Function for each field that is not a number: ids (V,) → texts of the tokens.
        scale: Factor of the logits of the path in the model.
    """
    added = contributions(path, sequences, predicted, scale)
    name = _names(path, texts)
    result: list[list[Term]] = [[] for _ in range(path.weights.shape[1] - 1)]
    best = np.lexsort((-added.means, added.classes))
    rank = np.arange(len(best)) - np.searchsorted(added.classes[best], added.classes[best])
    for place in best[(rank < MAX_TERMS) & (added.means[best] > 0)].tolist():
        term = Term(name(int(added.ngrams[place])), float(added.means[place]), int(added.rows[place]))
        result[added.classes[place]].append(term)
    return result


class Contributions(NamedTuple):
    """Contributions of K n-grams to the classes that rows with them are taken for, (K,) each.

    `ngrams`: row of `Ngrams.weights`. `classes`: class number. `means`: mean contribution in the rows taken for
    the class, see `terms_of_ngrams`. `rows`: number of these rows that hold the n-gram.
    """

    ngrams: np.ndarray
    classes: np.ndarray
    means: np.ndarray
    rows: np.ndarray


def contributions(path: Ngrams, sequences: Ragged, predicted: np.ndarray, scale: float) -> Contributions:
    """Return the contributions of all n-grams of some sequences. For the arguments, see `terms_of_ngrams`."""
    rows = counted_rows(sequences)
    order = rows[np.argsort(sequences.lengths[rows], kind="stable")]
    classes = path.weights.shape[1] - 1
    taken = np.bincount(predicted[rows], minlength=classes)
    parts = []
    with torch.inference_mode():
        for part in batches(sequences.lengths[order]):
            _, found, norm = (tensor.numpy() for tensor in path.terms(*padded(sequences, order[part])))
            parts.append(_count(found, norm, predicted[order[part]], classes))
    keys, inverse = np.unique(np.concatenate([part.keys for part in parts]), return_inverse=True)
    sums = np.bincount(inverse, np.concatenate([part.sums for part in parts]))
    seen = np.bincount(inverse, np.concatenate([part.seen for part in parts]))
    ngrams, number = keys // classes, keys % classes
    weights = path.weights[torch.from_numpy(ngrams), :-1].double().numpy()
    own = weights[np.arange(len(keys)), number] - weights.mean(1)
    return Contributions(ngrams, number, scale * sums * own / taken[number], seen)


class _Counted(NamedTuple):
    """N-grams of some rows and the classes that these rows are taken for.

    `keys`: (K,) distinct row of the weights * classes + class. `sums`: (K,) their numbers, each over the norm of its
    sequence. `seen`: (K,) sequences that hold them.
    """

    keys: np.ndarray
    sums: np.ndarray
    seen: np.ndarray


def _count(found: np.ndarray, norm: np.ndarray, predicted: np.ndarray, classes: int) -> _Counted:
    """Count the n-grams `found` (B, M) of sequences that are taken for the classes `predicted` (B,)."""
    found = np.sort(found, axis=1)
    is_first = np.diff(found, axis=1, prepend=0) > 0  # one of several equal n-grams; 0 is none
    keys = found * classes + predicted[:, None]
    distinct, place = np.unique(keys[found > 0], return_inverse=True)
    sums = np.bincount(place, np.broadcast_to(1 / norm, found.shape)[found > 0], len(distinct))
    return _Counted(distinct, sums, np.bincount(np.searchsorted(distinct, keys[is_first]), minlength=len(distinct)))


def _names(path: Ngrams, texts: Texts) -> Callable[[int], str]:
    """Return a function: row of the weights → text of its n-gram."""
    indices: list[StreamIndex] = list(path.indices)  # type: ignore[arg-type]
    bounds = np.cumsum([1, *(sum(index.grams) for index in indices)])

    def name(row: int) -> str:
        stream = int(np.searchsorted(bounds, row, side="right")) - 1
        index, number = indices[stream], row - int(bounds[stream])
        level = 0
        while number >= index.grams[level]:
            number -= index.grams[level]
            level += 1
        tokens = [_token(index, token, texts) for token in index.gram(level, number + 1)]
        has_space = any(character.isspace() for token in tokens for character in token)
        shown = " → ".join(shortened(token, MAX_CHARACTERS) for token in tokens) if has_space else " ".join(tokens)
        return shown if len(indices) == 1 else f"{index.title}: {shown}"

    return name


def _token(index: StreamIndex, token: int, texts: Texts) -> str:
    if token == begin_mark(index.size):
        return BEGIN
    if token == begin_mark(index.size) + 1:
        return END
    ids = index.ids_of(token)
    if ids is None:
        return UNKNOWN
    parts: list[Part] = list(index.parts)  # type: ignore[arg-type]
    joint = ">" if index.joins_parents else "&"
    return joint.join(_text(part, value, texts) for part, value in zip(parts, ids, strict=True))


def _text(part: Part, value: int, texts: Texts) -> str:
    """Return the text of an id. For the bin of a number: "2/8" is the second of eight."""
    if part.is_parent and value == part.size - 1:
        return NO_PARENT
    if part.channel is not None:
        return f"{value + 1}/{part.size}"
    return str(texts[part.field](np.array([value]))[0]) if value else UNKNOWN
