"""Dropout of steps."""

import pytest
import torch

from seqclf.models.dropout import StepDropout


@pytest.mark.parametrize("variational", [True, False])
def test_it_drops_its_share_and_keeps_the_mean(variational):
    steps = torch.ones(200, 30, 40)
    dropped = StepDropout(0.25, variational)(steps)
    assert set(dropped.unique().tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert float((dropped == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert float(dropped.mean()) == pytest.approx(1.0, abs=0.03)


def test_variational_is_the_same_at_all_steps_and_differs_between_sequences():
    dropped = StepDropout(0.5, True)(torch.ones(50, 7, 16))
    assert torch.equal(dropped, dropped[:, :1].expand_as(dropped))
    assert not torch.equal(dropped[0], dropped[1])
    plain = StepDropout(0.5, False)(torch.ones(50, 7, 16))
    assert not torch.equal(plain, plain[:, :1].expand_as(plain))


@pytest.mark.parametrize("variational", [True, False])
def test_nothing_is_dropped_in_evaluation_or_without_a_share(variational):
    steps = torch.randn(3, 4, 5)
    assert StepDropout(0.5, variational).eval()(steps) is steps
    assert StepDropout(0.0, variational)(steps) is steps


def test_gradients_pass_where_values_do():
    steps = torch.ones(4, 5, 6, requires_grad=True)
    dropped = StepDropout(0.5, True)(steps)
    dropped.sum().backward()
    assert torch.equal(steps.grad, dropped.detach())
