"""Logits of a sequence depend on nothing but its tokens, in every layout."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

CELLS = ("lstm", "gru", "rnn")
POOLINGS = ("last", "mean", "max", "attention", "mean+max+last")
VARIANTS = list(itertools.product(CELLS, (False, True), POOLINGS))
LENGTHS = st.lists(st.integers(1, 12), min_size=1, max_size=7)
CLOSE = {"rtol": 0, "atol": 2e-6}

few = settings(max_examples=5, deadline=None)
each_variant = pytest.mark.parametrize(("cell", "bidirectional", "pooling"), VARIANTS)
each_layout = pytest.mark.parametrize("layout", ["padded", "packed"])


def take(fields, rows, time=None):
    return {name: tokens[rows, :time] for name, tokens in fields.items()}


@each_variant
@each_layout
def test_logits_ignore_padding_and_its_values(net, inputs, cell, bidirectional, pooling, layout):
    model = net(cell=cell, bidirectional=bidirectional, pooling=pooling, layout=layout, layers=2)

    @few
    @given(LENGTHS, st.integers(1, 9), st.floats(-1e4, 1e4))
    def check(lengths, extra, garbage):
        fields, on_device, host = inputs(lengths)
        longer, _, _ = inputs(lengths, time=max(lengths) + extra, seed=5)
        for name in fields:
            longer[name][:, : max(lengths)] = fields[name]
        for row, length in enumerate(lengths):
            longer["value"][row, length:] = garbage
        with torch.no_grad():
            torch.testing.assert_close(model(longer, on_device, host), model(fields, on_device, host), **CLOSE)

    check()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("garbage", [float("nan"), float("inf")])
def test_padding_of_nan_or_infinity_reaches_no_logit(net, inputs, pooling, garbage):
    """A mask that multiplies would turn zero times NaN into NaN."""
    model = net(pooling=pooling, bidirectional=True, layers=2)
    fields, lengths, host = inputs([3, 6, 1])
    with torch.no_grad():
        expected = model(fields, lengths, host)
        for row, length in enumerate(host):
            fields["value"][row, length:] = garbage
        torch.testing.assert_close(model(fields, lengths, host), expected, **CLOSE)


@each_variant
@each_layout
def test_logits_ignore_batch_mates_and_their_order(net, inputs, cell, bidirectional, pooling, layout):
    model = net(cell=cell, bidirectional=bidirectional, pooling=pooling, layout=layout, layers=2)

    @few
    @given(LENGTHS, st.randoms(use_true_random=False))
    def check(lengths, random):
        fields, on_device, host = inputs(lengths)
        order = random.sample(range(len(lengths)), len(lengths))
        with torch.no_grad():
            together = model(fields, on_device, host)
            shuffled = model(take(fields, order), on_device[order], host[order])
            torch.testing.assert_close(shuffled, together[order], **CLOSE)
            for row, length in enumerate(lengths):
                alone = model(take(fields, [row], length), on_device[row : row + 1], host[row : row + 1])
                torch.testing.assert_close(alone[0], together[row], **CLOSE)

    check()


@each_variant
@pytest.mark.parametrize("layers", [1, 2])
def test_packed_equals_padded(net, inputs, cell, bidirectional, pooling, layers):
    options = {"cell": cell, "bidirectional": bidirectional, "pooling": pooling, "layers": layers}
    padded, packed = net(**options, layout="padded"), net(**options, layout="packed")

    @few
    @given(LENGTHS)
    def check(lengths):
        fields, on_device, host = inputs(lengths, time=max(lengths) + 2)
        one, other = padded(fields, on_device, host), packed(fields, on_device, host)
        torch.testing.assert_close(one, other, **CLOSE)
        for model, logits in ((padded, one), (packed, other)):
            model.zero_grad()
            logits.square().sum().backward()
        for weight, packed_weight in zip(padded.parameters(), packed.parameters(), strict=True):
            # A small gradient is the difference of large terms, so rounding is measured by the largest gradient.
            scale = max(1.0, float(weight.grad.abs().max()))
            torch.testing.assert_close(weight.grad, packed_weight.grad, rtol=0, atol=1e-5 * scale)

    check()


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize(("cell", "bidirectional"), itertools.product(CELLS, (False, True)))
def test_gradients_ignore_padding(net, inputs, cell, bidirectional, pooling, layout):
    model = net(cell=cell, bidirectional=bidirectional, pooling=pooling, layout=layout, layers=2)
    fields, lengths, host = inputs([1, 7, 4], time=9)
    fields["value"].requires_grad_()
    logits = model(fields, lengths, host)
    (logits * torch.randn_like(logits)).sum().backward()
    gradient = fields["value"].grad
    inside = np.arange(9) < host[:, None]
    assert (gradient[~torch.from_numpy(inside)] == 0).all(), "padding took part in the gradient"
    assert torch.isfinite(gradient).all()
    if pooling != "max":  # max pooling leaves out tokens that are highest in no channel
        assert (gradient.abs().sum(dim=-1) > 0).numpy()[inside].all(), "a token did not"


def test_every_weight_has_a_gradient(net, inputs):
    for cell, pooling in itertools.product(CELLS, POOLINGS):
        model = net(cell=cell, bidirectional=True, pooling=pooling, layers=2)
        fields, lengths, host = inputs([5, 8, 2])
        model(fields, lengths, host).square().sum().backward()
        unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
        unused = [name for name in unused if name != "pooling.score.bias"]  # softmax is the same for any bias
        assert not unused, f"{cell} {pooling}: {unused}"
