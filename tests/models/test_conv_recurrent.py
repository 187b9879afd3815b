"""Strided convolutions before the recurrence: exact lengths, and nothing of padding or batch mates in the logits."""

import numpy as np
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.errors import InputError
from seqclf.models.onnx.export import example_inputs, export_onnx
from seqclf.models.rnn.conv_recurrent import ConvRecurrent, StridedConvolution, shortened

CONVOLUTIONS = {"channels": 6, "kernel": 5, "strides": [4, 2]}
OPTIONS = {
    "encoder": {"_target_": "seqclf.models.rnn.conv_recurrent.ConvRecurrent"},
    "bidirectional": True,
    **CONVOLUTIONS,
}
LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=6)
CLOSE = {"rtol": 0, "atol": 1e-5}  # that of exports: without a norm, logits exceed 2, of which 2e-6 is rounding

few = settings(max_examples=15, deadline=None)


def encoder(**options):
    stack = {"cell": "gru", "hidden_size": 5, "layers": 2, "bidirectional": True, "layout": "auto"}
    return ConvRecurrent(3, **{**CONVOLUTIONS, **stack, "dropout": 0.0, "variational": False, **options}).eval()


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
    model = net(**OPTIONS, layout=layout, pooling=pooling)

    @few
    @given(LENGTHS, st.integers(0, 9), st.sampled_from([float("nan"), float("inf"), 1e4]))
    def check(lengths, extra, garbage):
        fields, on_device, host = inputs(lengths, time=max(lengths) + extra)
        for row, length in enumerate(lengths):
            fields["value"][row, length:] = garbage
        with torch.no_grad():
            together = model(fields, on_device, host)
            for row, length in enumerate(lengths):
                one = {name: tokens[row : row + 1, :length] for name, tokens in fields.items()}
                alone = model(one, on_device[row : row + 1], host[row : row + 1])
                torch.testing.assert_close(alone[0], together[row], **CLOSE)

    check()


def test_padding_gets_no_gradient():
    tokens, lengths = torch.randn(3, 20, 3, requires_grad=True), torch.tensor([20, 3, 9])
    outputs, kept, _ = encoder()(tokens, lengths, lengths.numpy())
    sum(outputs[row, :length].square().sum() for row, length in enumerate(kept)).backward()
    inside = torch.arange(20) < lengths[:, None]
    assert (tokens.grad[~inside] == 0).all() and (tokens.grad[inside].abs().sum(dim=-1) > 0).any()


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
    export_onnx(model, fields, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(0)
    for lengths, time in (([1], 1), ([2], 2), ([1, 7, 3], 7), ([33, 4, 8, 32, 1], 40), ([700], 700)):
        values = example_inputs(fields, np.array(lengths), time, random)
        tensors = {name: torch.from_numpy(value) for name, value in values.items()}
        with torch.no_grad():
            expected = model(tensors, tensors.pop("lengths"), values["lengths"]).numpy()
        np.testing.assert_allclose(session.run(["logits"], values)[0], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"channels": 0}, r"model\.channels=0: must be at least 1"),
        ({"strides": []}, r"model\.strides=\[\]: must be a list of whole numbers from 1"),
        ({"strides": 4}, r"model\.strides=4: must be a list"),
        ({"strides": [2, 0]}, r"model\.strides=\[2, 0\]: must be a list"),
        ({"kernel": 4}, r"model\.kernel=4: must be an odd number"),
        ({"strides": [8, 2]}, r"model\.kernel=5: skips tokens; set it to at least the largest of model\.strides"),
    ],
)
def test_invalid_settings_are_refused_by_name(options, message):
    with pytest.raises(InputError, match=message):
        encoder(**options)
