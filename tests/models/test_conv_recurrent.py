"""Strided convolutions before the recurrence: exact lengths, and nothing of padding or batch mates in the logits."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.checks import check_exactness, check_gradients_of_tokens, exported, max_error

from seqclf.errors import InputError
from seqclf.models.rnn.conv_recurrent import ConvRecurrent, StridedConvolution, shortened

CONVOLUTIONS = {"channels": 6, "kernel": 5, "strides": [4, 2]}
OPTIONS = {
    "encoder": {"_target_": "seqclf.models.rnn.conv_recurrent.ConvRecurrent"},
    "bidirectional": True,
    **CONVOLUTIONS,
}
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=6)

few = settings(max_examples=15, deadline=None)


def encoder(**options):
    stack = {"cell": "gru", "hidden_size": 5, "layers": 2, "bidirectional": True, "layout": "auto"}
    return ConvRecurrent(3, **{**CONVOLUTIONS, **stack, "dropout": 0.0, **options}).eval()


@given(st.lists(st.integers(1, 3000), min_size=1), st.integers(1, 7))
def test_a_sequence_keeps_its_length_over_the_stride_rounded_up(lengths, stride):
    expected = [len(range(0, length, stride)) for length in lengths]
    assert shortened(np.array(lengths), stride).tolist() == expected
    assert shortened(torch.tensor(lengths), stride).tolist() == expected


@pytest.mark.parametrize(("kernel", "stride"), [(1, 1), (3, 2), (5, 4), (5, 2), (7, 3), (9, 4)])
def test_an_output_equals_the_filter_of_the_tokens_around_it(kernel, stride):
    """Against a plain loop over one sequence, with zeros beyond its ends."""
    module = StridedConvolution(2, 3, kernel, stride)
    for length in (1, 2, 7, 12):
        tokens = torch.randn(1, length, 2)
        with torch.no_grad():
            outputs = module(tokens, torch.tensor([length]))[0]
            assert len(outputs) == len(range(0, length, stride))
            for index, output in enumerate(outputs):
                total = module.convolution.bias.clone()
                for tap in range(kernel):
                    token = index * stride - (kernel - 1) // 2 + tap
                    if 0 <= token < length:
                        total += module.convolution.weight[:, :, tap] @ tokens[0, token]
                torch.testing.assert_close(output, total.relu(), rtol=0, atol=1e-5)


@pytest.mark.parametrize("layout", ["padded", "packed"])
@pytest.mark.parametrize("pooling", ["last", "max", "mean+attention"])
def test_logits_ignore_padding_and_batch_mates(net, inputs, layout, pooling):
    check_exactness(net(**OPTIONS, layout=layout, pooling=pooling), inputs)


def test_padding_gets_no_gradient():
    check_gradients_of_tokens(encoder())


@given(LENGTHS)
@few
def test_lengths_on_the_host_and_on_the_device_agree(lengths):
    host = np.array(lengths)
    module = encoder()
    outputs, kept, kept_host = module(torch.randn(len(host), host.max(), 3), torch.from_numpy(host), host)
    assert kept.tolist() == kept_host.tolist()
    assert outputs.shape == (len(host), max(kept), module.size)


@pytest.mark.parametrize("strides", [[4, 2], pytest.param([8, 8, 8], marks=pytest.mark.soak)], ids=str)
def test_the_exported_model_equals_torch(net, tmp_path, strides):
    fields = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
    model = net(fields, **{**OPTIONS, "strides": strides, "kernel": 9}, layout="packed", pooling="last+max")
    session = exported(model, tmp_path / "model.onnx", fields)
    cases = [([1], 1), ([2], 2), ([1, 7, 3], 7), ([33, 4, 8, 32, 1], 40), ([700], 700)]
    assert max_error(model, session, fields, cases) < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strides": []}, r"model\.strides=\[\]: must have an entry"),
        ({"strides": [2, 0]}, r"model\.strides=0: must be at least 1"),
        ({"kernel": 4}, r"model\.kernel=4: is even or skips tokens; set an odd number"),
        ({"strides": [8, 2]}, r"model\.kernel=5: .*at least the largest of model\.strides"),
    ],
)
def test_invalid_settings_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        encoder(**options)
