"""The plan of several ranks: equal costs, and steps that do not depend on the number of ranks that are present."""

import hashlib
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.log_normal_lengths import log_normal_lengths

from seqclf.batching.datamodule import PlanSampler
from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.batching.step_bounds import deal

DEFAULTS = {"max_tokens": 16384, "max_sequences": 32, "pool_batches": 50, "overhead": 8.0, "seed": 0}
LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=120).map(np.array)

thorough = settings(max_examples=60, deadline=None)


def steps_of(lengths, *, world_size, **plan):
    """Return the batches of all ranks, step by step."""
    plan = {"epoch": 0, **DEFAULTS, **plan}
    ranks = [plan_batches(lengths, world_size=world_size, rank=rank, **plan) for rank in range(world_size)]
    return list(zip(*ranks, strict=True))


def highest_cost(descending, bounds):
    """Cost of the most expensive block in tokens, padding included."""
    pairs = pairwise(bounds)
    return max((int(end - start) * int(descending[start]) for start, end in pairs if end > start), default=0)


def row_sets(steps):
    return [sorted(np.concatenate(step).tolist()) for step in steps]


# Digests of the plans that version 0.3 made.
RECORDED = [
    ({"overhead": 8.0}, "b40a8f31c1aa2f84"),
    ({"overhead": 8.0, "epoch": 4}, "3f995f01d250fc41"),
    ({"pool_batches": None}, "6b001d43c11851d1"),
    ({"balance": 0.5, "pool_batches": 7}, "01fb8d3fb9f9a9cd"),
    ({"max_tokens": 500, "pool_batches": 3}, "f56399aa5d9a5e1d"),
]


def digest(**changed):
    generator = np.random.default_rng(5)
    lengths = generator.integers(1, 40, 3000) * generator.integers(1, 12, 3000)
    plan = {"max_tokens": 4096, "max_sequences": 32, "pool_batches": 50, "seed": 3, "epoch": 0, **changed}
    batches = plan_batches(lengths, labels=generator.integers(0, 3, 3000), **plan)
    text = " ".join(",".join(map(str, rows.tolist())) for rows in batches)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@pytest.mark.parametrize(("changed", "recorded"), RECORDED, ids=str)
def test_one_rank_reads_the_batches_of_version_0_3(changed, recorded):
    assert digest(**changed) == recorded


@thorough
@given(st.lists(st.integers(1, 30), min_size=1, max_size=9), st.integers(1, 4), st.integers(1, 9))
def test_no_other_parts_have_a_lower_highest_cost(lengths, ranks, max_rows):
    descending = np.sort(lengths)[::-1]
    bounds = deal(descending, ranks, max_tokens=10**6, max_rows=max_rows)
    assert bounds[0] == 0 and bounds[-1] == len(lengths) and (np.diff(bounds) >= 0).all()
    assert (np.diff(bounds) > 0).sum() == min(ranks, len(lengths))
    # A part may exceed its limit only if the rows do not fit otherwise.
    limit = max(max_rows, -(-len(lengths) // ranks))
    assert np.diff(bounds).max() <= limit
    filled = min(ranks, len(lengths))
    candidates = [np.array([0, *cut, len(lengths)]) for cut in combinations(range(1, len(lengths)), filled - 1)]
    costs = [highest_cost(descending, cut) for cut in candidates if np.diff(cut).max() <= limit]
    assert highest_cost(descending, bounds) == min(costs)


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_ranks_have_equal_costs_and_little_padding(world_size):
    lengths = log_normal_lengths(60_000)
    steps = steps_of(lengths, world_size=world_size)
    costs = np.array([[len(rows) * lengths[rows].max(initial=0) for rows in step] for step in steps])
    imbalance = costs.max(axis=1) / costs.mean(axis=1)
    assert imbalance.mean() < 1.03 and imbalance.max() < 1.3
    batches = [rows for step in steps for rows in step]
    assert padding_efficiency(lengths, batches) > 0.95
    assert len(batches) < 1.1 * len(lengths) / 32


@thorough
@given(LENGTHS, st.integers(1, 300), st.none() | st.integers(1, 20), st.none() | st.integers(1, 9), st.integers(1, 5))
def test_the_rows_of_a_step_do_not_depend_on_the_ranks_that_are_present(
    lengths, max_tokens, max_sequences, pool_batches, ranks
):
    plan = {"max_tokens": max_tokens, "max_sequences": max_sequences, "pool_batches": pool_batches, "ranks": ranks}
    planned, *others = [row_sets(steps_of(lengths, world_size=world_size, **plan)) for world_size in (ranks, 1, 2, 3)]
    assert others == [planned] * 3
    assert sorted(row for rows in planned for row in rows) == list(range(len(lengths)))


@pytest.mark.parametrize(("ranks", "present"), [(2, 3), (2, 1), (8, 3)])
def test_steps_are_dealt_by_tokens_to_other_numbers_of_ranks(ranks, present):
    lengths = log_normal_lengths(20_000)
    steps = steps_of(lengths, world_size=present, ranks=ranks)
    costs = np.array([[len(rows) * lengths[rows].max(initial=0) for rows in step] for step in steps])
    assert (costs.max(axis=1) / costs.mean(axis=1)).mean() < 1.05
    assert costs.max() <= 16384 * max(1, ranks / present) + 1
    assert max(len(rows) for step in steps for rows in step) <= 32 * max(1, ranks / present) + 1


def test_a_run_that_changes_its_ranks_inside_an_epoch_reads_every_row_once():
    lengths = log_normal_lengths(4000)
    read, first = [], 0
    for world_size, end in ((2, 11), (3, 30), (1, None)):
        samplers = [
            PlanSampler(lengths, world_size=world_size, rank=rank, ranks=2, **DEFAULTS) for rank in range(world_size)
        ]
        assert len({sampler.mean_rows * world_size for sampler in samplers}) == 1
        for sampler in samplers:
            sampler.set_epoch(3)
            sampler.first = first
            read += [rows for step, rows in enumerate(sampler, start=first) if end is None or step < end]
        first = end
    assert sorted(np.concatenate(read)) == list(range(4000))


@pytest.mark.parametrize("world_size", [2, 3])
def test_balanced_epochs_of_several_ranks_draw_as_many_rows(world_size):
    lengths, labels = log_normal_lengths(3000), (np.arange(3000) % 10 == 0).astype(int)
    steps = steps_of(lengths, world_size=world_size, labels=labels, balance=1.0)
    rows = np.concatenate([rows for step in steps for rows in step])
    assert len(rows) == 3000 and labels[rows].mean() == 0.5


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_fewer_rows_than_ranks_leave_the_last_ranks_without_rows(rows):
    [step] = steps_of(np.full(rows, 7), world_size=4)
    assert [len(part) for part in step] == [1] * rows + [0] * (4 - rows)
