"""Logits of a sequence depend on nothing but its tokens, in every layout."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.checks import check_exactness, unused_weights

POOLINGS = ("last", "mean", "max", "attention", "mean+max+last")
CELLS = list(itertools.product(("lstm", "gru", "rnn"), (False, True)))
VARIANTS = [(*cell, POOLINGS[index % len(POOLINGS)]) for index, cell in enumerate(CELLS)]  # each cell, each pooling
CLOSE = {"rtol": 0, "atol": 2e-6}

each_variant = pytest.mark.parametrize(("cell", "bidirectional", "pooling"), VARIANTS)
each_layout = pytest.mark.parametrize("layout", ["padded", "packed"])


@each_variant
@each_layout
def test_logits_ignore_padding_batch_mates_and_their_order(net, inputs, cell, bidirectional, pooling, layout):
    model = net(cell=cell, bidirectional=bidirectional, pooling=pooling, layout=layout, layers=2)
    check_exactness(model, inputs, longest=12, atol=CLOSE["atol"])


@each_variant
def test_packed_equals_padded(net, inputs, cell, bidirectional, pooling):
    options = {"cell": cell, "bidirectional": bidirectional, "pooling": pooling, "layers": 2}
    padded, packed = net(**options, layout="padded"), net(**options, layout="packed")

    @settings(max_examples=5, deadline=None)
    @given(st.lists(st.integers(1, 12), min_size=1, max_size=7))
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


@each_layout
@each_variant
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


@each_variant
def test_every_weight_has_a_gradient(net, inputs, cell, bidirectional, pooling):
    assert unused_weights(net(cell=cell, bidirectional=bidirectional, pooling=pooling, layers=2), inputs) == []
