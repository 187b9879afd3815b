"""A change of the structure keeps the function of a network where it can, and says so."""

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .conftest import ENCODERS, Case, preserving_change, random_config

EXACT, ROUNDING = 1e-11, 1e-6  # errors of logits in float64, and in float32


@pytest.mark.parametrize("kind", ENCODERS)
@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_wider_and_deeper_networks_have_the_same_logits(kind, seed):
    """In float64, where a mistake cannot hide behind rounding."""
    drawn = random.Random(seed)
    case = Case(random_config(drawn, kind), torch.float64, seed)
    for _ in range(2):
        changes, before = preserving_change(drawn, case.config), case.logits()
        assert case.change(**changes), changes
        assert float((case.logits() - before).abs().max()) <= EXACT, changes
        case.disturb()


@pytest.mark.parametrize("kind", ENCODERS)
def test_rounding_of_a_wider_and_deeper_network_stays_small(kind):
    for seed in range(10):
        drawn = random.Random(seed)
        case = Case({**random_config(drawn, kind), "hidden_size": 16}, seed=seed)
        before = case.logits()
        assert case.change(**preserving_change(drawn, case.config))
        assert float((case.logits() - before).abs().max()) <= ROUNDING
