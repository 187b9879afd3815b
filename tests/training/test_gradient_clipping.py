"""Clipping by norm: bit-equal to PyTorch's and Lightning's, and stock where it could differ."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from seqclf.training.gradient_clipping import clip_norm
from seqclf.training.module import SequenceTask

from .conftest import QUIET

pytestmark = QUIET


def weights_with_gradients(seed: int, scale: float) -> list[nn.Parameter]:
    """Return weights of several shapes with random gradients. One weight has none."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(40, 7), (5,), (1,), (3, 2, 4), (300, 200)]
    weights = [nn.Parameter(torch.zeros(shape)) for shape in shapes]
    for weight in weights[:-1] if seed % 2 else weights:
        weight.grad = scale * torch.randn(weight.shape, generator=generator)
    return weights


def assert_clipped_alike(seed: int, scale: float, limit: float, spoil: float | None = None) -> None:
    """Compare with PyTorch's function bit by bit."""
    ours, stock = weights_with_gradients(seed, scale), weights_with_gradients(seed, scale)
    if spoil is not None:
        for weights in (ours, stock):
            weights[1].grad[2] = spoil
    clip_norm(ours, limit)
    nn.utils.clip_grad_norm_(stock, limit)
    for one, other in zip(ours, stock, strict=True):
        assert (one.grad is None) == (other.grad is None)
        if one.grad is not None:
            assert torch.equal(one.grad.view(torch.int32), other.grad.view(torch.int32))


@given(st.integers(0, 2**31), st.floats(1e-6, 1e6), st.floats(1e-3, 1e3))
def test_gradients_are_bit_equal_to_those_that_pytorch_clips(seed, scale, limit):
    assert_clipped_alike(seed, scale, limit)


@pytest.mark.parametrize("spoil", [float("nan"), float("inf"), 3e38, 1e-42])
def test_odd_gradients_end_as_with_pytorch(spoil):
    assert_clipped_alike(0, 1e-4, 1.0, spoil)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_types_are_clipped_by_pytorch(dtype):
    ours, stock = ([nn.Parameter(torch.zeros(9, dtype=dtype))] for _ in range(2))
    for (weight,) in (ours, stock):
        weight.grad = torch.arange(9, dtype=dtype)
    clip_norm(ours, 1.0)
    nn.utils.clip_grad_norm_(stock, 1.0)
    assert torch.equal(ours[0].grad, stock[0].grad)
    assert not torch.equal(ours[0].grad, torch.arange(9, dtype=dtype))


@pytest.fixture
def fast_calls(monkeypatch):
    """Return a list that gets the limit of each call of the task to `clip_norm`."""
    calls = []

    def counted(weights, limit):
        calls.append(limit)
        clip_norm(weights, limit)

    monkeypatch.setattr("seqclf.training.module.clip_norm", counted)
    return calls


@pytest.mark.parametrize("limit", [0.05, 100.0])
@pytest.mark.parametrize("optimizer", [{"fused": True}, {"_target_": "torch.optim.SGD"}], ids=["adamw", "sgd"])
def test_a_training_ends_with_the_weights_of_lightnings_clipping(task, fit, fast_calls, monkeypatch, limit, optimizer):
    trained = []
    for stock in (False, True):
        if stock:
            monkeypatch.delattr(SequenceTask, "configure_gradient_clipping")
        module = task(optimizer=optimizer)
        fit(module, max_epochs=3, gradient_clip_val=limit)
        trained.append(module.model.state_dict())
    assert set(fast_calls) == {limit}, "the first run took the fast path"
    for name, weight in trained[0].items():
        assert torch.equal(weight, trained[1][name]), name


@pytest.mark.parametrize(
    "settings",
    [
        {"gradient_clip_val": None},
        {"gradient_clip_val": 0.1, "gradient_clip_algorithm": "value"},
        {"gradient_clip_val": 0.1, "precision": "bf16-true"},
    ],
    ids=str,
)
def test_other_modes_and_precisions_are_clipped_by_lightning(task, fit, fast_calls, settings):
    fit(task(model={"number_noise": 0.0}), max_epochs=1, limit_train_batches=2, limit_val_batches=0, **settings)
    assert fast_calls == []
