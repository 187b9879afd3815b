"""A change of the structure keeps the function of a network where it can, and says so."""

import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.checks import exported, max_error

from seqclf.models.onnx.export import example_inputs
from seqclf.models.parity_grid import TOLERANCE

from .conftest import COMMON, ENCODERS, SEQUENCE, Case, preserving_change, random_config

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


CHANGED = [  # changes, and the weights that stay the same parameters
    ({"layers": 1}, ["embedding", "encoder", "norm", "output"]),
    ({"hidden_size": 7}, ["embedding"]),
    ({"dropout": 0.5}, ["embedding", "encoder", "norm", "output"]),
]


def lstm(**settings):
    sizes = {"embedding_size": 3, "hidden_size": 5, "layers": 2, "residual_layers": 0}
    rest = {"cell": "lstm", "bidirectional": True, "pooling": "max", "layout": "auto", **settings}
    return Case({**COMMON, "encoder": {"_target_": ENCODERS["recurrent"]}, **sizes, **rest})


@pytest.mark.parametrize(("changes", "kept"), CHANGED, ids=str)
def test_other_changes_keep_what_they_can_and_say_that_the_function_is_another(changes, kept):
    case = lstm()
    before, logits = dict(case.network.named_parameters()), case.logits()
    preserves = case.change(**changes)
    moved = float((case.logits() - logits).abs().max())
    assert preserves == ("dropout" in changes) == (moved == 0)
    for name, weight in case.network.named_parameters():
        if name.startswith(tuple(kept)):
            assert weight is before[name], name


def test_units_that_are_no_multiple_are_exact_where_no_norm_reads_them():
    """Only the norm of the pooled vector sees that some units have more copies than others."""
    case = lstm(pooling="mean")
    case.network.norm = torch.nn.Identity()
    tokens, lengths = torch.randn(3, 6, 9), np.array([6, 2, 4])
    before = case.network.encoder(tokens, torch.from_numpy(lengths), lengths)[0]
    case.network.norm = torch.nn.LayerNorm(10)
    case.change(hidden_size=7)
    after = case.network.encoder(tokens, torch.from_numpy(lengths), lengths)[0]
    units = [0, 1, 2, 3, 4, 0, 1]
    torch.testing.assert_close(after, before[..., units + [5 + unit for unit in units]], rtol=0, atol=1e-6)


def test_a_changed_network_is_exported_as_it_is(tmp_path):
    case = lstm(layers=1, pooling="attention")
    case.change(layers=3, hidden_size=10)
    case.disturb()  # at 0, a mistake in the scales of the residual layers would not show
    session = exported(case.network, tmp_path / "model.onnx", SEQUENCE)
    assert max_error(case.network, session, SEQUENCE, [([1, 7, 4], 7)]) < TOLERANCE


def test_an_adaptive_network_halts_where_it_did():
    drawn = random.Random(3)
    case = Case({**random_config(drawn, "adaptive"), "hidden_size": 6})
    case.network.gain.fill_(0.7)
    lengths = np.array([9, 4, 1, 6])
    inputs = example_inputs(SEQUENCE, lengths, 11, np.random.default_rng(1))
    fields = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}

    def scores():
        with torch.no_grad():
            return case.network.read(fields, torch.from_numpy(lengths), lengths).scores

    before = scores()
    assert case.change(hidden_size=12, layers=case.config["layers"] + 1)
    torch.testing.assert_close(scores(), before, rtol=0, atol=ROUNDING)
    assert float(case.network.gain) == pytest.approx(0.7)
