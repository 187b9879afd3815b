"""Every row goes to exactly one split, in proportion, and what belongs together stays together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.data.splits import assign, check, check_fold
from seqclf.errors import InputError

SHARES = st.tuples(st.floats(0, 0.5), st.floats(0, 0.45)).map(
    lambda pair: {"train": 1 - sum(pair), "validation": pair[0], "test": pair[1]}
)
LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)


@given(LABELS, SHARES, st.integers(0, 9))
def test_every_row_is_in_exactly_one_split_in_proportion_by_class(labels, shares, seed):
    parts = assign(labels, shares, "random", None, seed)
    assert parts.shape == labels.shape and set(parts) <= {0, 1, 2}
    for label in set(labels):
        own = parts[labels == label]
        for part, share in enumerate(shares.values()):
            assert abs((own == part).sum() - share * len(own)) < 2


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40, unique=True), SHARES)
def test_classes_of_one_row_go_to_train(labels, shares):
    assert (assign(np.array(labels), shares, "random", None, 0) == 0).all()


def test_many_classes_of_two_rows_fill_every_split():
    labels = np.repeat(np.arange(100), 2)
    parts = assign(labels, {"train": 0.6, "validation": 0.2, "test": 0.2}, "random", None, 0)
    assert np.bincount(parts).tolist() == pytest.approx([120, 40, 40], abs=2)
    assert set(labels[parts == 0]) == set(range(100))


@given(st.data(), SHARES, st.sampled_from(["group", "distinct"]))
def test_groups_never_cross_splits_and_their_keys_do_not_matter(data, shares, by):
    keys = np.array(data.draw(st.lists(st.integers(0, 9), min_size=1, max_size=60)))
    labels = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(keys), max_size=len(keys))))
    parts = assign(labels, shares, by, keys, 3)
    assert all(len(set(parts[keys == key])) == 1 for key in set(keys))
    renamed = np.random.default_rng(0).permutation(10)[keys] * 1_000_003
    np.testing.assert_array_equal(parts, assign(labels, shares, by, renamed, 3))


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=60).map(np.array), SHARES)
def test_no_row_of_an_earlier_split_is_later_in_time(times, shares):
    parts = assign(np.zeros(len(times), int), shares, "time", times, 0)
    assert all(np.diff(parts[np.argsort(times, kind="stable")]) >= 0)


def test_the_seed_alone_decides():
    labels = np.arange(60) % 3
    shares = {"train": 0.8, "validation": 0.2, "test": 0.0}
    one, again, other = (assign(labels, shares, "random", None, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "rows"}, r"data.split.by=rows: must be one of random, distinct, group, time"),
        ({"by": "group"}, r"data.split.by=group needs data.split.column=COLUMN"),
        ({"by": "time"}, r"data.split.by=time needs data.split.column=COLUMN"),
        ({"shares": {"validation": 1.5}}, r"data.split.validation=1.5: must be a share from 0 to 1"),
        ({"shares": {"validation": -0.1}}, r"data.split.validation=-0.1: must be a share"),
        ({"shares": {"validation": "half"}}, r"data.split.validation=half: must be a share"),
        ({"shares": {"validation": None}}, r"data.split.validation=None: must be a share"),
        ({"shares": {"validation": 0.5, "test": 0.5}}, r"data.split.test=0.5 leave nothing for train"),
        ({"seed": -1}, r"data.split.seed=-1: must be a whole number from 0"),
        ({"seed": "x"}, r"data.split.seed=x: must be a whole number"),
    ],
)
def test_unusable_split_options_are_named(change, message):
    with pytest.raises(InputError, match=message):
        check(**{"by": "random", "column": None, "shares": {"validation": 0.2}, "seed": 0, **change})


@given(LABELS, st.integers(2, 6), st.integers(0, 3))
def test_every_row_is_the_test_of_exactly_one_fold_in_proportion_by_class(labels, folds, seed):
    shares = {"train": 0.7, "validation": 0.3 - 0.3 / folds, "test": 1 / folds}
    parts = np.stack([assign(labels, shares, "fold", None, seed, (fold, folds)) for fold in range(folds)])
    assert ((parts == 2).sum(axis=0) == 1).all() and set(parts.flat) <= {0, 1, 2}
    for label in set(labels):
        counts = (parts[:, labels == label] == 2).sum(axis=1)
        assert abs(counts - (labels == label).sum() / folds).max() < 2


def test_groups_stay_in_one_split_of_every_fold():
    keys = np.random.default_rng(0).integers(0, 40, 300)
    shares = {"train": 0.6, "validation": 0.2, "test": 0.2}
    for fold in range(5):
        parts = assign(keys % 3, shares, "fold", keys, 0, (fold, 5))
        assert all(len(set(parts[keys == key])) == 1 for key in set(keys)) and set(parts) == {0, 1, 2}


@pytest.mark.parametrize(
    ("given_values", "message"),
    [
        ((1, 0, False), r"data.split.folds=1: must be a whole number from 2"),
        ((5, 5, False), r"data.split.fold=5: must be a whole number from 0 to 4"),
        ((5, 0, True), r"data.split.by=fold: makes the test of a fold of train; leave out data.test"),
    ],
)
def test_folds_that_make_no_sense_are_refused(given_values, message):
    with pytest.raises(InputError, match=message):
        check_fold(*given_values)
