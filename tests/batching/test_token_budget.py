"""Search for `batching.max_tokens=auto`."""

import numpy as np
import pytest

from seqclf.batching.plan import plan_batches
from seqclf.batching.steps import Limits
from seqclf.batching.token_budget import USABLE, heaviest_batches, search_budget
from seqclf.errors import InputError

LENGTHS = np.clip(np.random.default_rng(0).lognormal(3.5, 0.8, 2000), 1, 600).astype(np.int64)
MOST = 256 * int(LENGTHS.max())


def limits(max_tokens=MOST, max_rows=256):
    return Limits(max_tokens, max_rows, 8.0)


def tokens_of(rows):
    return len(rows) * int(LENGTHS[rows].max())


@pytest.mark.parametrize("max_tokens", [900, 5000, 40_000])
def test_no_batch_of_any_epoch_is_heavier(max_tokens):
    heaviest = heaviest_batches(LENGTHS, limits(max_tokens, 64))
    most, longest = max(map(tokens_of, heaviest)), max(int(LENGTHS[rows].max()) for rows in heaviest)
    options = {"max_tokens": max_tokens, "max_sequences": 64, "pool_batches": 5, "seed": 1}
    planned = [rows for epoch in range(8) for rows in plan_batches(LENGTHS, **options, overhead=8.0, epoch=epoch)]
    assert max(map(tokens_of, planned)) <= most
    assert max(int(LENGTHS[rows].max()) for rows in planned) == longest


@pytest.mark.parametrize("bytes_per_token", [10, 400, 3000])
@pytest.mark.parametrize("constant", [0, 5_000_000])
def test_the_budget_fills_the_memory_and_no_measurement_exceeds_it_by_far(bytes_per_token, constant):
    free, measured = 50_000_000, []

    def measure(rows):
        measured.append(constant + bytes_per_token * tokens_of(rows))
        return measured[-1]

    found = search_budget(LENGTHS, limits(), measure, free)
    assert found.needed <= USABLE * free
    assert max(measured) <= free
    assert found.tokens == MOST or found.needed > 0.8 * USABLE * free


def test_the_search_steps_back_where_memory_grows_with_the_square_of_the_length():
    def measure(rows):
        return 3.0 * len(rows) * int(LENGTHS[rows].max()) ** 2

    found = search_budget(LENGTHS, limits(), measure, 20_000_000)
    assert found.needed <= USABLE * 20_000_000
    assert found.needed == max(measure(rows) for rows in heaviest_batches(LENGTHS, limits(found.tokens)))


def test_a_step_that_runs_out_of_memory_is_too_large():
    def measure(rows):
        return np.inf if tokens_of(rows) > 7000 else 1000.0

    assert 1750 <= search_budget(LENGTHS, limits(), measure, 10**9).tokens <= 7000


def test_a_longest_sequence_that_does_not_fit_is_one_line():
    with pytest.raises(InputError) as raised:
        search_budget(LENGTHS, limits(), lambda rows: np.inf, 10**9)
    assert f"{int(LENGTHS.max())} tokens" in raised.value.problem
    assert "data.max_length" in raised.value.remedy
