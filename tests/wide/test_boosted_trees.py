"""The wide path of boosted trees: those of scikit-learn, exact under padding, equal chunk by chunk, of bounded work."""

import numpy as np
import pytest
import torch

from seqclf.wide import boosted_trees, boosting
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.boosting import MAX_BINS, choose_cuts, fit_boosting
from seqclf.wide.feature_path import padded
from seqclf.wide.row_features import RowFeatures

FIELDS = [
    {"name": "value", "kind": "number", "width": 2},
    {"name": "other", "kind": "number", "width": 2, "masked": 1},  # a value and its mask
    {"name": "token", "kind": "category", "size": 5},
    {"name": "bag", "kind": "bag", "size": 6},
    {"name": "word", "kind": "category", "size": 1000},  # too many values
]


@pytest.fixture(scope="module")
def train(rows_of, split_of):
    """Rows whose class is told by the mean of a number and the count of a token together, and by neither alone."""
    sequences = rows_of(np.random.default_rng(0), 400, FIELDS)
    sums = np.add.reduceat(sequences.fields["value"][:, 0].astype(np.float64), sequences.offsets[:-1])
    often = np.add.reduceat(sequences.fields["token"] == 2, sequences.offsets[:-1]) > 0
    return split_of(sequences, ((sums > 0) ^ often).astype(int))


@pytest.fixture(scope="module")
def fitted(train):
    return BoostedTrees.fit(train, FIELDS, 2, 0)


def test_features_that_tell_a_class_together_are_found(fitted, train):
    assert (fitted.held_out.argmax(1) == train.labels).mean() > 0.85


@pytest.mark.parametrize("classes", [2, 3, 4])
def test_trees_decide_as_those_of_scikit_learn(classes):
    """Of four classes, one has no row."""
    generator = np.random.default_rng(classes)
    features = generator.normal(size=(300, 4)).astype(np.float32)
    labels = np.digitize(features[:, 0] * features[:, 1], [0, 0.5][: classes - 1])
    edges, binned = boosting._bins(features)
    fit = boosting._fit(binned, labels, classes, 20, 0)
    trees = fit.trees(edges, 1.0)
    path = BoostedTrees(
        [{"name": "value", "kind": "number", "width": 4}], classes, iterations=20, width=len(trees.spread)
    )
    path._fill(trees)
    found = path.logits(torch.from_numpy(features)).numpy()
    np.testing.assert_allclose(found, fit.logits(binned, 20), rtol=0, atol=1e-5)
    assert np.ptp(found[:, 0]) > 1 and found.argmax(1).max() == labels.max()


@pytest.mark.parametrize("garbage", [-1e4, float("nan"), float("inf")])
def test_logits_ignore_padding_and_batch_mates(fitted, rows_of, logits_of, garbage):
    sequences = rows_of(np.random.default_rng(1), 30, FIELDS)
    fields, lengths = padded(sequences, np.arange(30))
    fields = {name: torch.cat([values, values[:, :3]], dim=1) for name, values in fields.items()}
    for values in fields.values():
        fill = garbage if values.is_floating_point() else 4
        values[torch.arange(values.shape[1]) >= lengths[:, None]] = fill
    with torch.inference_mode():
        together = fitted.path(fields, lengths)
    alone = torch.cat([logits_of(fitted.path, sequences, [row]) for row in range(30)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


@pytest.mark.parametrize("used", [FIELDS, FIELDS[2:]])
def test_chunks_give_the_logits_of_the_whole(train, rows_of, logits_of, used):
    """Rows end in the first chunk or later, so that some chunks have no tokens of a row."""
    path = BoostedTrees.fit(train, used, 2, 0).path
    sequences = rows_of(np.random.default_rng(2), 40, FIELDS)
    fields, lengths = padded(sequences, np.arange(40))
    states = [torch.full((40, *state.shape), state.initial) for state in path.chunk_states()]
    with torch.inference_mode():
        for start in range(0, fields["token"].shape[1], 5):
            part = {name: values[:, start : start + 5] for name, values in fields.items()}
            logits, states = path.step(part, (lengths - start).clamp(0, 5), states)
    torch.testing.assert_close(logits, logits_of(path, sequences), rtol=0, atol=1e-5)


def test_fits_are_deterministic_and_held_out_by_groups(train, split_of):
    """All rows of a group are equal and their classes random, so that a fit with one of the rows knows the others."""
    generator = np.random.default_rng(0)
    groups = np.repeat(np.arange(60), 5)
    features = np.repeat(generator.normal(size=(60, 3)), 5, axis=0).astype(np.float32)
    labels = np.repeat(generator.integers(0, 2, 60), 5)
    first, again = (fit_boosting(features, labels, groups, 2, 0) for _ in range(2))
    assert all(np.array_equal(one, other) for one, other in zip(first.trees, again.trees, strict=True))
    assert (first.held_out.argmax(1) == labels).mean() < 0.7
    alone = fit_boosting(features, labels, None, 2, 0)
    assert (alone.held_out.argmax(1) == labels).mean() > 0.9


@pytest.mark.parametrize("index", [-1, RowFeatures(FIELDS).size])
def test_a_file_with_an_index_beyond_the_features_is_no_path(fitted, index):
    state = {**fitted.path.state_dict(), "feature": torch.full_like(fitted.path.feature, index)}
    with pytest.raises(RuntimeError, match="feature must be indices below"):
        BoostedTrees(FIELDS, 2, **fitted.path.settings()).load_state_dict(state)


def test_cuts_keep_away_from_the_values():
    values = np.random.default_rng(0).choice(np.linspace(-3, 5, 300), 2000).astype(np.float32)
    cuts = choose_cuts(values)
    assert MAX_BINS / 2 < len(cuts) < MAX_BINS and (np.diff(cuts) > 0).all()
    assert np.abs(cuts[:, None] - values).min() > 0.3 * 8 / 299
    rows_of_bins = np.bincount(np.searchsorted(cuts, values))
    assert rows_of_bins.max() < 3 * len(values) / MAX_BINS
    noise = np.float32(7) + np.arange(50, dtype=np.float32) * np.spacing(np.float32(7))
    assert len(choose_cuts(noise)) == 0, "rounding noise"


@pytest.mark.parametrize("case", ["constant", "huge", "one class", "a class of one row", "few rows"])
def test_any_rows_give_finite_logits(rows_of, split_of, logits_of, case):
    sequences = rows_of(np.random.default_rng(3), 8 if case == "few rows" else 90, FIELDS)
    labels = np.arange(len(sequences)) % 3
    if case == "constant":
        for values in sequences.fields.values():
            values[:] = 1
    if case == "huge":
        sequences.fields["value"][::7] = 1e30
    if case == "one class":
        labels[:] = 1
    if case == "a class of one row":
        labels = np.minimum(np.arange(len(sequences)), 1) * 2
    fitted = BoostedTrees.fit(split_of(sequences, labels), FIELDS, 3, 0)
    if case == "one class":
        assert fitted is None
        return
    assert logits_of(fitted.path, sequences).isfinite().all()


def test_the_work_is_bounded(train, monkeypatch):
    monkeypatch.setattr(boosted_trees, "MIN_ROWS", 100)
    size = RowFeatures(FIELDS, []).size
    monkeypatch.setattr(boosted_trees, "MAX_WORK", 150 * size * 200)
    fitted = BoostedTrees.fit(train, FIELDS, 2, 0)
    assert np.isfinite(fitted.held_out[:, 0]).sum() == 200 and len(fitted.path.notes) == 1 and fitted.logits is None
    monkeypatch.setattr(boosted_trees, "MAX_WORK", 150 * size * 99)
    assert BoostedTrees.fit(train, FIELDS, 2, 0) is None
    assert BoostedTrees.fit(train, FIELDS, boosted_trees.MAX_CLASSES + 1, 0) is None
    assert not BoostedTrees.has_use(FIELDS[-1:])
