"""Every row goes to one split. Classes keep their proportion, and groups stay together."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.config.command_keys import default_settings
from seqclf.data.splitting.assignment import assign, check_filled
from seqclf.errors import InputError
from seqclf.settings.base import parse_options
from seqclf.settings.data_settings import SplitOptions

SHARES = st.tuples(st.floats(0, 0.5), st.floats(0, 0.45)).map(
    lambda pair: {"train": 1 - sum(pair), "validation": pair[0], "test": pair[1]}
)
LABELS = st.lists(st.integers(0, 4), min_size=1, max_size=80).map(np.array)


@given(LABELS, SHARES, st.integers(0, 9))
def test_every_row_is_in_exactly_one_split_in_proportion_by_class(labels, shares, seed):
    splits = assign(labels, shares, "random", None, seed)
    assert splits.shape == labels.shape and set(splits) <= {0, 1, 2}
    for label in set(labels):
        of_class = splits[labels == label]
        for split, share in enumerate(shares.values()):
            assert abs((of_class == split).sum() - share * len(of_class)) < 2


@given(st.lists(st.integers(0, 30), min_size=1, max_size=40, unique=True), SHARES)
def test_classes_of_one_row_go_to_train(labels, shares):
    assert (assign(np.array(labels), shares, "random", None, 0) == 0).all()


def test_many_classes_of_two_rows_fill_every_split():
    labels = np.repeat(np.arange(100), 2)
    splits = assign(labels, {"train": 0.6, "validation": 0.2, "test": 0.2}, "random", None, 0)
    assert np.bincount(splits).tolist() == pytest.approx([120, 40, 40], abs=2)
    assert set(labels[splits == 0]) == set(range(100))


GROUPED = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), min_size=1, max_size=60)
WAYS_WITH_KEYS = st.sampled_from(["group", "distinct", "random", "fold"])


@given(GROUPED, SHARES, WAYS_WITH_KEYS, st.randoms(use_true_random=False))
def test_groups_stay_together_for_every_order_of_the_rows(rows, shares, by, random):
    fold = (1, 3) if by == "fold" else None

    def splits_of(rows):
        keys, labels = np.array(rows).T * 1_000_003
        splits = assign(labels // 1_000_003, shares, by, keys, 3, fold)
        assert set(splits) <= {0, 1, 2}
        return set(zip(keys.tolist(), splits.tolist(), strict=True))

    expected = splits_of(rows)
    assert len(expected) == len({key for key, _ in rows}), "a split for each group"
    random.shuffle(rows)
    assert splits_of(rows) == expected


TIMES = st.lists(st.one_of(st.integers(0, 5), st.floats(-1e9, 1e9)), min_size=1, max_size=60)


@given(TIMES, SHARES)
def test_rows_of_a_later_split_are_later_in_time(times, shares):
    times = np.array(times, float)
    splits = assign(np.zeros(len(times), int), shares, "time", times, 0)
    for split in (0, 1):
        assert times[splits <= split].max(initial=-np.inf) < times[splits > split].min(initial=np.inf)


@given(TIMES, SHARES)
def test_a_time_split_fills_every_split_if_there_are_enough_times(times, shares):
    required = [split for split, share in enumerate(shares.values()) if split == 0 or share > 0]
    splits = assign(np.zeros(len(times), int), shares, "time", np.array(times, float), 0)
    if len(set(times)) >= len(required):
        assert set(splits) == set(required)


@given(TIMES, st.floats(0.05, 0.95))
def test_a_time_split_cuts_at_the_time_nearest_to_its_share(times, share):
    times = np.array(times, float)
    splits = assign(np.zeros(len(times), int), {"train": share, "test": 1 - share}, "time", times, 0)
    possible = [(times <= time).sum() for time in np.unique(times)[:-1]]
    if possible:
        assert abs((splits == 0).sum() - share * len(times)) <= min(abs(np.array(possible) - share * len(times))) + 1e-6


def test_the_result_depends_on_the_seed_only():
    labels = np.arange(60) % 3
    shares = {"train": 0.8, "validation": 0.2, "test": 0.0}
    one, again, other = (assign(labels, shares, "random", None, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


DEFAULTS = default_settings("data", "files")["split"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"by": "rows"}, r"data.split.by=rows: must be one of random, distinct, group, time"),
        ({"by": "group"}, r"data.split.by=group: needs data.group=COLUMN"),
        ({"by": "time"}, r"data.split.by=time: needs data.split.column=COLUMN"),
        ({"validation": 1.5}, r"data.split.validation=1.5: must be at most 1"),
        ({"validation": "half"}, r"data.split.validation=half: must be a number"),
        ({"validation": 0.5, "test": 0.5}, r"data.split.test=0.5: nothing is left for train"),
        ({"validation": 0.0}, r"data.split.validation=0: no validation rows"),
        ({"by": "fold", "folds": 5, "fold": 5}, r"data.split.fold=5: must be all, or a number from 0 to 4"),
    ],
)
def test_unusable_split_options_are_named(change, message):
    with pytest.raises(InputError, match=message):
        parse_options(SplitOptions, {**DEFAULTS, **change}, "data.split").check(None, set())


def folds_of(labels, folds, keys=None, seed=0):
    """(N,) fold in which each row is in the test, and (folds, N) splits of every fold."""
    shares = {"train": 0.8 - 0.8 / folds, "validation": 0.2 - 0.2 / folds, "test": 1 / folds}
    splits = np.stack([assign(labels, shares, "fold", keys, seed, (fold, folds)) for fold in range(folds)])
    assert ((splits == 2).sum(axis=0) == 1).all() and set(splits.flat) <= {0, 1, 2}
    return (splits == 2).argmax(axis=0), splits


@given(LABELS, st.integers(2, 6), st.integers(0, 3))
def test_folds_are_even_in_rows_and_in_every_class(labels, folds, seed):
    tested, _ = folds_of(labels, folds, seed=seed)
    for subset in (tested, *(tested[labels == label] for label in set(labels))):
        assert np.ptp(np.bincount(subset, minlength=folds)) <= 1


@pytest.mark.parametrize("counts", [[3] * 100, [1] * 10, [1, 2, 3] * 13])
def test_folds_of_many_small_classes_are_even(counts):
    labels = np.repeat(np.arange(len(counts)), counts)
    tested, splits = folds_of(labels, 5)
    assert np.ptp(np.bincount(tested, minlength=5)) <= 1
    for fold in range(5):
        remaining = set(labels[splits[fold] != 2])
        assert set(labels[splits[fold] == 0]) == remaining, "every class that is not only in the test is in train"


@given(GROUPED, st.integers(2, 6))
def test_every_fold_has_a_test_if_there_are_enough_groups(rows, folds):
    keys, labels = np.array(rows).T
    tested, _ = folds_of(labels, folds, keys)
    if len(set(keys)) >= folds:
        assert set(tested) == set(range(folds))


def grouped(groups, spread, purity, classes=3, seed=0):
    """Labels and keys of groups of log-normal size, in which `purity` of the rows have the label of the group."""
    generator = np.random.default_rng(seed)
    keys = np.repeat(np.arange(groups), np.maximum(1, generator.lognormal(1.5, spread, groups)).astype(int))
    class_of_group = generator.integers(0, classes, groups)
    labels = np.where(
        generator.random(len(keys)) < purity, class_of_group[keys], generator.integers(0, classes, len(keys))
    )
    return labels, keys


@pytest.mark.parametrize("purity", [0.0, 0.9, 1.0])
def test_groups_of_unequal_size_and_class_keep_proportions(purity):
    labels, keys = grouped(300, 1.0, purity)
    shares = {"train": 0.64, "validation": 0.16, "test": 0.2}
    splits = assign(labels, shares, "group", keys, 0)
    for rows_of_class in (splits, *(splits[labels == label] for label in range(3))):
        np.testing.assert_allclose(
            np.bincount(rows_of_class, minlength=3) / len(rows_of_class), list(shares.values()), atol=0.01
        )
    tested, _ = folds_of(labels, 5, keys)
    for rows_of_class in (tested, *(tested[labels == label] for label in range(3))):
        np.testing.assert_allclose(np.bincount(rows_of_class, minlength=5) / len(rows_of_class), 0.2, atol=0.01)


def test_a_distinct_split_keeps_shares_although_one_sequence_has_a_third_of_the_rows():
    keys = np.concatenate([np.zeros(500, int), np.repeat(np.arange(1, 11), 50), np.arange(11, 511)])
    labels = np.random.default_rng(0).integers(0, 2, len(keys))
    for seed in range(5):
        splits = assign(labels, {"train": 0.64, "validation": 0.16, "test": 0.2}, "distinct", keys, seed)
        np.testing.assert_allclose(np.bincount(splits) / len(splits), [0.64, 0.16, 0.2], atol=0.005)


@given(GROUPED, SHARES)
def test_every_class_of_a_group_split_is_in_train(rows, shares):
    keys, labels = np.array(rows).T
    splits = assign(labels, shares, "group", keys, 0)
    assert set(labels[splits == 0]) == set(labels)


def test_different_seeds_hold_out_different_groups():
    labels, keys = grouped(50, 1.0, 0.5)
    shares = {"train": 0.8, "validation": 0.2}
    held_out = {tuple(np.unique(keys[assign(labels, shares, "group", keys, seed) == 1])) for seed in range(5)}
    assert len(held_out) == 5


def test_folds_validate_on_different_groups():
    _, splits = folds_of(np.zeros(200, int), 5, np.arange(200))
    in_two = ((splits == 1).sum(axis=0) > 1).mean()
    assert in_two < 0.4, "four fifths of the groups if every fold drew the same ones"


@pytest.mark.parametrize(
    ("by", "keys", "folds", "message"),
    [
        ("fold", [1, 2, 2], 5, r"folds=5: there are only 2 different values of user; set fewer folds, or"),
        ("time", [1, 1, 1], None, r"none of 3 rows for train; there are only 1 different values of user; give more"),
    ],
)
def test_errors_for_too_few_rows_or_groups_name_a_remedy(by, keys, folds, message):
    labels, shares = np.array([0, 1, 1]), {"train": 0.6, "validation": 0.2, "test": 0.2}
    keys = None if keys is None else np.array(keys)
    splits = assign(labels, shares, by, keys, 0, folds and (0, folds))
    with pytest.raises(InputError, match=message):
        check_filled(splits, shares, by, "user", keys, folds)
