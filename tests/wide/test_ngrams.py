"""The wide path of tokens: n-grams, their weights, and exact logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.special import softmax
from sklearn.feature_extraction.text import CountVectorizer

from seqclf.batching.collate import pad
from seqclf.data.ragged import Ragged
from seqclf.wide import ngram_counts, ngrams, sparse_head, stacked_ngrams
from seqclf.wide.ngram_counts import Stream, count_new, pruned
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.sparse_head import Counts, fit_head

LETTERS = {"name": "letter", "kind": "category", "size": 6}
NUMBER = {"name": "amount", "kind": "number", "width": 2}
SET = {"name": "tags", "kind": "bag", "size": 5, "combine": "mean"}
SHOPS = {"name": "shop", "kind": "category", "size": 9}
SCHEMAS = [[LETTERS], [LETTERS, NUMBER], [NUMBER, SHOPS, SET, LETTERS], [SET, LETTERS], [SET]]
few = settings(max_examples=20, deadline=None)


@pytest.fixture(scope="module", params=SCHEMAS, ids=lambda fields: "+".join(field["name"] for field in fields))
def fitted(request, rows_of, labels_of, split_of):
    sequences = rows_of(np.random.default_rng(0), 120, request.param)
    split = split_of(sequences, labels_of(sequences, 3))
    return request.param, split, Ngrams.fit(split, request.param, 3, 0)


def test_ids_of_any_integer_type_give_the_same_logits(fitted):
    _, split, (path, *_) = fitted
    fields, lengths = pad(split.sequences, np.arange(20))
    tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
    narrow = {name: values if values.is_floating_point() else values.int() for name, values in tensors.items()}
    assert torch.equal(*(path(fields, torch.from_numpy(lengths)) for fields in (tensors, narrow)))


@few
@given(st.lists(st.text("abcd", min_size=1, max_size=9), min_size=1, max_size=12), st.integers(1, 4))
def test_counts_are_those_of_scikit_learn(texts, longest):
    counter = CountVectorizer(analyzer="char", ngram_range=(1, longest), lowercase=False)
    expected = counter.fit_transform([f"^{text}$" if longest > 1 else text for text in texts]).toarray()
    ids = np.array(["abcd".index(letter) for text in texts for letter in text])
    stream = Stream(ids, np.append(0, np.cumsum([len(text) for text in texts])), 4, longest)
    known, counts = count_new(stream, most=10_000)
    names = [spelled(known, n, number) for n in range(len(known.levels)) for number in range(len(known.levels[n]))]
    columns = {name: column for column, name in enumerate(names) if name not in ("^", "$")}
    assert {name for name in counter.vocabulary_ if name not in ("^", "$")} == set(columns)
    for name, column in columns.items():
        assert (counts.toarray()[:, column] == expected[:, counter.vocabulary_[name]]).all()
    assert (count_known(stream, known) != counts).nnz == 0


def count_known(stream, vocabulary):
    """Return the counts (N, V) of the n-grams of a stream that are in a vocabulary."""
    ids, rows, ends = ngram_counts._marked(stream)
    numbers = np.zeros(len(ids), np.int64)
    columns = []
    for n, level in enumerate(vocabulary.levels, start=1):
        at, keys = ngram_counts._keys(ids, ends, numbers, n, stream.size)
        known = level.prefixes * ngram_counts._base(stream.size) + level.tokens
        place = np.minimum(np.searchsorted(known, keys), max(0, len(known) - 1))
        numbers = np.zeros(len(ids), np.int64)
        if len(known):
            numbers[at] = np.where(known[place] == keys, place + 1, 0)
        columns.append(numbers)
    return ngram_counts._matrix(columns, ids, rows, vocabulary, len(stream.offsets) - 1)


def spelled(known, n, number):
    level = known.levels[n]
    last = "abcd^$"[level.tokens[number]]
    return last if n == 0 else spelled(known, n - 1, level.prefixes[number] - 1) + last


def test_a_vocabulary_without_rare_ngrams_counts_the_others_as_before():
    rng = np.random.default_rng(1)
    stream = Stream(rng.integers(0, 9, 400), np.arange(0, 401, 8), 9, 3)
    known, counts = count_new(stream, most=10_000)
    is_kept = np.bincount(counts.indices, minlength=len(known)) >= 2
    smaller, stays = pruned(known, is_kept)
    assert len(smaller) == stays.sum() < len(known)
    assert stays[is_kept].all()
    assert (count_known(stream, smaller) != counts[:, stays]).nnz == 0


def test_the_most_frequent_ngrams_are_kept_where_there_are_too_many():
    known, _ = count_new(Stream(np.array([0, 1, 0, 1, 0, 2]), np.array([0, 2, 4, 6]), 3, 1), most=2)
    assert known.levels[0].tokens.tolist() == [0, 1]


def test_logits_are_the_weighted_counts_of_the_fit(fitted, logits_of):
    fields, split, (path, *_) = fitted
    streams = ngrams._streams(split, fields)
    counted = [ngrams._count(stream, split.sequences, 10_000) for stream in streams]
    counts = sparse.hstack([stream.counts for stream in counted]).tocsr()
    is_unigram = np.concatenate([stream.known.sizes() == 1 for stream in counted])
    head = fit_head(Counts(counts, is_unigram), split.labels, None, 3, 0).head
    np.testing.assert_allclose(logits_of(path, split.sequences), head.logits(counts), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize(("told_by", "weight"), [("tokens", 2.0), ("pairs", 1.0)])
def test_single_tokens_weigh_more_where_they_tell_the_class(told_by, weight):
    generator = np.random.default_rng(0)
    ids, labels = generator.integers(1, 60, (3000, 10)), generator.integers(0, 2, 3000)
    if told_by == "tokens":  # words up to 30 are twice as frequent in one class
        ids = np.where((ids > 30) & (labels[:, None] == 1) & (generator.random(ids.shape) < 0.5), ids - 30, ids)
    else:
        ids[:, 1] = np.where(labels == 1, ids[:, 0], ids[:, 1])
    known, matrix = count_new(Stream(ids.ravel(), np.arange(0, 30_001, 10), 61, 3), 100_000)
    fitted = fit_head(Counts(matrix, known.sizes() == 1), labels, None, 2, 0)
    assert fitted.candidate.unigram_weight == weight


def test_logits_of_a_row_alone_are_those_in_a_batch(fitted, logits_of):
    _, split, (path, *_) = fitted
    alone = torch.cat([logits_of(path, split.sequences, [row]) for row in range(len(split.labels))])
    torch.testing.assert_close(logits_of(path, split.sequences), alone, rtol=2e-6, atol=2e-6)


def test_padding_of_any_value_reaches_no_logit(fitted, logits_of):
    _, split, (path, *_) = fitted
    lengths = split.sequences.lengths
    padded, _ = pad(split.sequences, np.arange(len(lengths)), np.array([20]))
    for values in padded.values():
        is_padding = np.arange(values.shape[1]) >= lengths[:, None]
        values[is_padding] = np.nan if values.dtype.kind == "f" else 3
    with torch.inference_mode():
        found = path({name: torch.from_numpy(values) for name, values in padded.items()}, torch.from_numpy(lengths))
    torch.testing.assert_close(found, logits_of(path, split.sequences), rtol=2e-6, atol=2e-6)


def test_the_exported_form_gives_the_same_logits(fitted, logits_of, monkeypatch):
    _, split, (path, *_) = fitted
    expected = logits_of(path, split.sequences)
    for most in (stacked_ngrams.MAX_VALUES, 1, 9):
        monkeypatch.setattr(stacked_ngrams, "MAX_VALUES", most)
        torch.testing.assert_close(logits_of(path.onnx_form(), split.sequences), expected, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("is_exported", [False, True])
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_chunks_give_the_logits_of_the_tokens_so_far(fitted, logits_of, chunk, is_exported):
    _, split, (path, *_) = fitted
    form = path.onnx_form() if is_exported else path
    lengths = split.sequences.lengths
    fields = {
        name: torch.from_numpy(values) for name, values in pad(split.sequences, np.arange(len(lengths)))[0].items()
    }
    rows, states = (
        np.arange(len(lengths)),
        [torch.full((len(lengths), *state.shape), state.initial) for state in path.chunk_states()],
    )
    for start in range(0, lengths.max(), chunk):
        left = lengths[rows] > start
        rows, states = rows[left], [state[torch.from_numpy(left)] for state in states]
        part = {name: values[rows, start : start + chunk] for name, values in fields.items()}
        read = np.minimum(lengths[rows] - start, chunk)
        with torch.inference_mode():
            logits, states = form.step(part, torch.from_numpy(read), states)
            so_far = {name: values[rows, : start + chunk] for name, values in fields.items()}
            expected = path(so_far, torch.from_numpy(start + read))
        torch.testing.assert_close(logits, expected, rtol=2e-6, atol=2e-6)


def test_an_empty_path_takes_the_buffers_of_a_fitted_one(fitted, logits_of):
    fields, split, (path, *_) = fitted
    again = Ngrams(fields, 3, **path.settings())
    again.load_state_dict(path.state_dict())
    assert torch.equal(logits_of(again, split.sequences), logits_of(path, split.sequences))


def test_the_fit_is_deterministic(fitted):
    fields, split, (path, held_out, _) = fitted
    again, others, _ = Ngrams.fit(split, fields, 3, 0)
    assert np.array_equal(held_out, others)
    assert all(torch.equal(path.state_dict()[name], again.state_dict()[name]) for name in path.state_dict())


def test_held_out_logits_are_of_fits_without_the_row(rows_of, labels_of, split_of, logits_of):
    """Half of the labels are drawn at random, so that only a fit on the row itself could tell them."""
    rng = np.random.default_rng(3)
    sequences = rows_of(rng, 300, [LETTERS])
    is_random = rng.random(300) < 1 / 2
    labels = np.where(is_random, rng.integers(0, 2, 300), labels_of(sequences, 2))
    path, held_out, _ = Ngrams.fit(split_of(sequences, labels), [LETTERS], 2, 0)
    own = (logits_of(path, sequences).numpy().argmax(axis=1) == labels)[is_random].mean()
    others = (held_out.argmax(axis=1) == labels)[is_random].mean()
    assert not np.isnan(held_out).any()
    assert own > others + 0.1 and others < 0.6


def test_labels_at_random_give_the_class_frequencies(rows_of, split_of, logits_of):
    rng = np.random.default_rng(3)
    sequences = rows_of(rng, 300, [LETTERS])
    path = Ngrams.fit(split_of(sequences, (rng.random(300) < 0.2).astype(int)), [LETTERS], 2, 0).path
    shares = softmax(logits_of(path, sequences).double().numpy(), axis=1)[:, 1]
    assert 0.15 < shares.mean() < 0.25 and shares.std() < 0.1


def test_rows_of_a_group_are_held_out_together(split_of):
    """Each group has a label and a token of its own. Held out, its token is unknown and tells nothing."""
    rng = np.random.default_rng(4)
    groups = np.repeat(np.arange(30), 10)
    sequences = Ragged(np.arange(0, 1201, 4), {"letter": np.repeat(groups, 4).astype(np.int32)})
    labels, field = rng.integers(0, 2, 30)[groups], {**LETTERS, "size": 30}
    together = Ngrams.fit(split_of(sequences, labels, groups), [field], 2, 0).held_out
    apart = Ngrams.fit(split_of(sequences, labels), [field], 2, 0).held_out
    assert (apart.argmax(axis=1) == labels).mean() > 0.95
    assert (together.argmax(axis=1) == labels).mean() < 0.75


def test_numbers_alone_have_no_ngrams(rows_of, split_of):
    split = split_of(rows_of(np.random.default_rng(5), 20, [NUMBER]), [0, 1] * 10)
    assert Ngrams.fit(split, [NUMBER], 2, 0) is None


@pytest.mark.parametrize(
    "labels", [[0] * 40, [0, 1] + [2] * 38, [3] * 20 + [4] * 20], ids=["one class", "classes of one row", "absent"]
)
def test_classes_with_few_or_no_rows_give_finite_logits(labels, rows_of, split_of, logits_of):
    split = split_of(rows_of(np.random.default_rng(6), 40, [LETTERS, SET]), labels)
    path, held_out, _ = Ngrams.fit(split, [LETTERS, SET], 5, 0)
    logits = logits_of(path, split.sequences)
    assert torch.isfinite(logits).all() and np.isfinite(held_out).all()
    assert set(logits.argmax(dim=1).tolist()) <= set(labels)


def test_pairs_of_fields_in_a_token_are_read(split_of):
    """The label is the parity of two fields of a token, about which each field alone tells nothing."""
    rng = np.random.default_rng(7)
    fields = [{"name": "a", "kind": "category", "size": 2}, {"name": "b", "kind": "category", "size": 2}]
    labels, first = rng.integers(0, 2, 200), rng.integers(0, 2, 1000)
    second = first ^ np.repeat(labels, 5)
    sequences = Ragged(np.arange(0, 1001, 5), {"a": first.astype(np.int32), "b": second.astype(np.int32)})
    _, held_out, _ = Ngrams.fit(split_of(sequences, labels), fields, 2, 0)
    assert (held_out.argmax(axis=1) == labels).mean() > 0.99


def test_work_beyond_the_limit_is_done_on_a_sample_with_a_row_of_each_class(rows_of, split_of, logits_of, monkeypatch):
    fits = []
    whole = sparse_head._estimate

    def measured(features, labels, candidate):
        fits.append(((features.nnz + sparse_head.ROW_WORK * len(labels)) * 40, len(labels), len(np.unique(labels))))
        return whole(features, labels, candidate)

    monkeypatch.setattr(sparse_head, "_estimate", measured)
    monkeypatch.setattr(sparse_head, "MAX_WORK", 100_000)
    monkeypatch.setattr(sparse_head, "MAX_WORK_OF_CHOICE", 30_000)
    split = split_of(rows_of(np.random.default_rng(8), 400, [LETTERS]), [*range(39), *[39] * 361])
    path, held_out, _ = Ngrams.fit(split, [LETTERS], 40, 0)
    rows, logits = fits[-1][1], logits_of(path, split.sequences)
    assert 40 < rows < 250 and fits[-1][2] == 40
    assert max(work for work, _, _ in fits) <= 200_000  # the row of each class is added to the sample
    assert path.notes == [f"fitted to {rows:,} of 400 training rows"]
    assert np.isfinite(held_out[:, 0]).sum() <= rows and torch.isfinite(logits).all()


def test_weights_of_all_streams_together_are_bounded(rows_of, split_of, logits_of, monkeypatch):
    split = split_of(rows_of(np.random.default_rng(9), 200, [LETTERS, SHOPS, SET]), [0, 1] * 100)
    monkeypatch.setattr(ngrams, "MAX_ALL_WEIGHTS", 600)
    path, _, _ = Ngrams.fit(split, [LETTERS, SHOPS, SET], 2, 0)
    marks = 2 * sum(index.context > 0 for index in path.indices)
    assert len(path.weights) <= 1 + 200 + marks
    assert len(path.notes) == 1
    torch.testing.assert_close(
        logits_of(path.onnx_form(), split.sequences), logits_of(path, split.sequences), rtol=2e-6, atol=2e-6
    )
