"""The plan of an epoch: the rows of every batch."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from support.log_normal_lengths import log_normal_lengths

from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.batching.resume_settings import PLAN_KEYS
from seqclf.config.command_keys import default_settings

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=120).map(np.array)
BUDGETS = st.integers(1, 300)
LIMITS = st.none() | st.integers(1, 20)
POOLS = st.none() | st.integers(1, 30)
SEEDS = st.integers(0, 2**31)
OVERHEADS = st.none() | st.integers(0, 40)

thorough = settings(max_examples=60, deadline=None)


def plan(lengths, *, max_tokens=64, max_sequences=8, pool_batches=3, seed=0, epoch=0, **ranks):
    return plan_batches(
        lengths,
        max_tokens=max_tokens,
        max_sequences=max_sequences,
        pool_batches=pool_batches,
        seed=seed,
        epoch=epoch,
        **ranks,
    )


def as_lists(batches):
    return [rows.tolist() for rows in batches]


@thorough
@given(LENGTHS, BUDGETS, LIMITS, POOLS, SEEDS, st.integers(0, 100), OVERHEADS)
def test_every_sequence_appears_once_per_epoch(lengths, max_tokens, max_sequences, pool_batches, seed, epoch, overhead):
    batches = plan(
        lengths,
        max_tokens=max_tokens,
        max_sequences=max_sequences,
        pool_batches=pool_batches,
        seed=seed,
        epoch=epoch,
        overhead=overhead,
    )
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))


@thorough
@given(LENGTHS, BUDGETS, LIMITS, POOLS, OVERHEADS)
def test_no_batch_exceeds_its_budget_unless_one_sequence_does(
    lengths, max_tokens, max_sequences, pool_batches, overhead
):
    limits = {"max_tokens": max_tokens, "max_sequences": max_sequences, "pool_batches": pool_batches}
    batches = plan(lengths, **limits, overhead=overhead)
    for rows in batches:
        assert len(rows) > 0
        assert len(rows) * lengths[rows].max() <= max_tokens or len(rows) == 1
        assert max_sequences is None or len(rows) <= max_sequences


@settings(max_examples=30, deadline=None)
@given(SEEDS, st.integers(0, 20))
def test_epochs_and_seeds_differ(seed, epoch):
    lengths = np.random.default_rng(0).integers(1, 50, 200)
    now = as_lists(plan(lengths, seed=seed, epoch=epoch))
    assert now != as_lists(plan(lengths, seed=seed, epoch=epoch + 1))
    assert now != as_lists(plan(lengths, seed=seed + 1, epoch=epoch))


@thorough
@given(LENGTHS, BUDGETS, LIMITS, POOLS, SEEDS, st.integers(1, 7))
@example(np.array([1, 1, 1, 1, 2, 4]), 2, None, None, 0, 5)  # one row is longer than the budget
def test_ranks_have_as_many_steps_and_all_rows(lengths, max_tokens, max_sequences, pool_batches, seed, world_size):
    arguments = {
        "max_tokens": max_tokens,
        "max_sequences": max_sequences,
        "pool_batches": pool_batches,
        "seed": seed,
    }
    ranks = [plan(lengths, world_size=world_size, rank=rank, **arguments) for rank in range(world_size)]
    assert len({len(batches) for batches in ranks}) == 1
    assert sorted(np.concatenate([np.concatenate(batches) for batches in ranks])) == list(range(len(lengths)))
    for step in zip(*ranks, strict=True):
        # The last ranks have no rows only where a step has fewer rows than ranks.
        assert min(map(len, step)) > 0 or max(map(len, step)) == 1
        for rows in step:
            assert len(rows) * lengths[rows].max(initial=0) <= max_tokens or len(rows) == 1
            assert max_sequences is None or len(rows) <= max_sequences


@thorough
@given(LENGTHS, BUDGETS, LIMITS, SEEDS)
def test_evaluation_is_sorted_and_ignores_the_seed(lengths, max_tokens, max_sequences, seed):
    arguments = {"max_tokens": max_tokens, "max_sequences": max_sequences, "pool_batches": None}
    batches = plan(lengths, seed=seed, **arguments)
    ordered = lengths[np.concatenate(batches)]
    assert (np.diff(ordered) <= 0).all()
    assert as_lists(batches) == as_lists(plan(lengths, seed=seed + 1, epoch=5, **arguments))


def test_no_sequences_make_no_batches():
    assert plan(np.array([], dtype=np.int64)) == []
    assert plan(np.array([], dtype=np.int64), pool_batches=None, world_size=3, rank=1) == []


@thorough
@given(LENGTHS, BUDGETS, POOLS)
def test_padding_efficiency_equals_a_count_of_tokens(lengths, max_tokens, pool_batches):
    batches = plan(lengths, max_tokens=max_tokens, pool_batches=pool_batches)
    real = computed = 0
    for rows in batches:
        longest = max(lengths[row] for row in rows)
        for row in rows:
            for token in range(longest):
                computed += 1
                real += token < lengths[row]
    assert padding_efficiency(lengths, batches) == pytest.approx(real / computed)


@thorough
@given(LENGTHS, st.integers(1, 20), st.integers(0, 20))
def test_a_batch_ends_where_another_costs_less_than_the_padding_it_saves(lengths, max_sequences, overhead):
    def cost(rows):
        return lengths[rows].max() * (len(rows) + overhead) if len(rows) else 0

    limits = {"max_tokens": 10**6, "max_sequences": max_sequences, "pool_batches": None}
    order = np.concatenate(plan(lengths, **limits))
    start = 0
    for rows in plan(lengths, **limits, overhead=overhead):
        reach = order[start : start + max_sequences]
        splits = [cost(reach[:count]) + cost(reach[count:]) for count in range(1, len(reach) + 1)]
        assert cost(rows) + cost(reach[len(rows) :]) == min(splits)
        start += len(rows)
    assert start == len(lengths)


@pytest.mark.parametrize(("overhead", "least", "most"), [(8.0, 0.92, 1.05), (2.0, 0.95, 1.15)])
def test_the_defaults_pad_little_on_log_normal_lengths(overhead, least, most):
    batching = default_settings("batching", "token_budget")
    assert batching["pool_batches"] <= 50 and batching["overhead"] == 8.0
    lengths = log_normal_lengths(20_000)
    settings = {**{key: batching[key] for key in PLAN_KEYS}, "overhead": overhead}
    batches = plan_batches(lengths, **settings, seed=0, epoch=0)
    assert padding_efficiency(lengths, batches) > least
    assert len(batches) < most * 20_000 / batching["max_sequences"]


@thorough
@given(st.lists(st.integers(0, 4), min_size=1, max_size=200).map(np.array), st.sampled_from([0.25, 0.5, 1.0]), SEEDS)
def test_balanced_epochs_draw_classes_by_share_and_their_rows_equally_often(labels, balance, seed):
    lengths = np.random.default_rng(0).integers(1, 30, len(labels))
    rows = np.concatenate(plan(lengths, labels=labels, balance=balance, seed=seed))
    assert len(rows) == len(labels)
    sizes = np.bincount(labels)
    present = np.flatnonzero(sizes)
    shares = sizes[present] ** (1 - balance)
    np.testing.assert_allclose(
        np.bincount(labels[rows], minlength=len(sizes))[present], shares / shares.sum() * len(labels), atol=1
    )
    times = np.bincount(rows, minlength=len(labels))
    for label in present:
        assert np.ptp(times[labels == label]) <= 1
