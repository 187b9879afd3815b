"""Each pooling against a plain loop over the tokens of each sequence."""

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.models.pooling import Pooling, token_mask

CASES = st.tuples(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.integers(0, 4), st.integers(0, 999))
FORWARD, BACKWARD = 3, 2


def check(kind, plain):
    """Compare a pooling with `plain(row, pooling)`, the pooled vector of one sequence's outputs (length, size)."""
    pooling = Pooling(kind, FORWARD + BACKWARD, BACKWARD)

    @settings(max_examples=60, deadline=None)
    @given(CASES)
    def equal(case):
        lengths, extra, seed = case
        generator = torch.Generator().manual_seed(seed)
        outputs = torch.randn(len(lengths), max(lengths) + extra, FORWARD + BACKWARD, generator=generator) - 1.0
        with torch.no_grad():
            pooled = pooling(outputs, torch.tensor(lengths))
            expected = torch.stack([plain(outputs[row, :length], pooling) for row, length in enumerate(lengths)])
        torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-6)

    equal()


def test_last_takes_the_end_of_each_direction():
    check("last", lambda row, _: torch.cat([row[-1, :FORWARD], row[0, FORWARD:]]))


def test_mean_ignores_padding():
    check("mean", lambda row, _: sum(row[1:], row[0]) / len(row))


def test_max_ignores_padding():
    check("max", lambda row, _: torch.tensor([max(channel) for channel in row.T.tolist()]))


def test_attention_ignores_padding():
    def plain(row, pooling):
        scores = [float(pooling.score(output)) for output in row]
        weights = [math.exp(score - max(scores)) for score in scores]
        return sum(output * weight for output, weight in zip(row, weights, strict=True)) / sum(weights)

    check("attention", plain)


def test_several_poolings_are_concatenated():
    def plain(row, _):
        last = torch.cat([row[-1, :FORWARD], row[0, FORWARD:]])
        return torch.cat([row.mean(dim=0), row.amax(dim=0), last])

    check("mean+max+last", plain)
    assert Pooling("mean+max+last", 5, 2).size == 15


@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 3))
def test_token_mask_is_true_inside_each_length(lengths, extra):
    time = max(lengths) + extra
    expected = [[token < length for token in range(time)] for length in lengths]
    assert token_mask(torch.tensor(lengths), time).tolist() == expected


def test_prefixes_of_a_chunk_continue_those_of_the_chunks_before():
    torch.manual_seed(0)
    pooling = Pooling("last+mean+max+attention", FORWARD, 0)
    outputs, lengths = 5 * torch.randn(4, 20, FORWARD), torch.full((4,), 20)
    states = [torch.full((4, *state.shape), state.initial) for state in pooling.states]
    chunks = []
    with torch.no_grad():
        for part in outputs.split([1, 7, 12], dim=1):
            count = torch.full((4,), part.shape[1])
            chunks.append(pooling.prefixes(part, count, states))
            vector, states = pooling.run(part, count, states)
            torch.testing.assert_close(chunks[-1][:, -1], vector)
        torch.testing.assert_close(torch.cat(chunks, dim=1), pooling.prefixes(outputs, lengths))
