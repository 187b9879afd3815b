"""Dropout of token features."""

import pytest
import torch

from seqclf.models.embedding import TokenDropout


@pytest.mark.parametrize("variational", [True, False])
def test_a_share_is_dropped_and_the_mean_stays(variational):
    tokens = torch.ones(200, 30, 40)
    dropped = TokenDropout(0.25, variational)(tokens)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.03)


def test_variational_drops_the_same_features_of_all_tokens_of_a_sequence():
    dropped = TokenDropout(0.5, True)(torch.ones(50, 7, 16))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    plain = TokenDropout(0.5, False)(torch.ones(50, 7, 16))
    assert not torch.equal(plain, plain[:, :1].expand_as(plain))


@pytest.mark.parametrize("variational", [True, False])
def test_nothing_is_dropped_in_evaluation_or_with_a_share_of_zero(variational):
    tokens = torch.randn(3, 4, 5)
    assert TokenDropout(0.5, variational).eval()(tokens) is tokens
    assert TokenDropout(0.0, variational)(tokens) is tokens
