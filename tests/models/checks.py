"""Checks of networks: logits of a sequence are those of its tokens alone, in PyTorch and in ONNX Runtime."""

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.models.onnx.exporter import example_inputs, export_onnx

PADDING = (float("nan"), float("inf"), 1e4)


def check_exactness(model, inputs, longest=40, atol=1e-5, examples=15):
    """Logits ignore padding of any amount and value, batch mates and their order. `inputs`: the fixture."""

    @settings(max_examples=examples, deadline=None)
    @given(
        st.lists(st.integers(1, longest), min_size=1, max_size=6),
        st.integers(0, 9),
        st.sampled_from(PADDING),
        st.randoms(use_true_random=False),
    )
    def check(lengths, extra, garbage, random):
        fields, on_device, host = inputs(lengths, time=max(lengths) + extra)
        for row, length in enumerate(lengths):
            fields["value"][row, length:] = garbage
        order = random.sample(range(len(lengths)), len(lengths))
        with torch.no_grad():
            together = model(fields, on_device, host)
            shuffled = model({name: tokens[order] for name, tokens in fields.items()}, on_device[order], host[order])
            torch.testing.assert_close(shuffled, together[order], rtol=0, atol=atol)
            for row, length in enumerate(lengths):
                one = {name: tokens[row : row + 1, :length] for name, tokens in fields.items()}
                alone = model(one, on_device[row : row + 1], host[row : row + 1])
                torch.testing.assert_close(alone[0], together[row], rtol=0, atol=atol)

    check()


def check_gradients_of_tokens(encoder, lengths=(20, 3, 9)):
    """Padding has no gradient, and tokens have one. The encoder reads 3 channels."""
    lengths = torch.tensor(lengths)
    tokens = torch.randn(3, int(lengths.max()), 3, requires_grad=True)
    outputs, kept, _ = encoder(tokens, lengths, lengths.numpy())
    sum((outputs[row, :length] * torch.randn(encoder.size)).sum() for row, length in enumerate(kept)).backward()
    inside = torch.arange(tokens.shape[1]) < lengths[:, None]
    assert (tokens.grad[~inside] == 0).all() and (tokens.grad[inside].abs().sum(dim=-1) > 0).any()


def unused_weights(model, inputs):
    (model(*inputs([5, 8, 2])) * torch.randn(3, 4)).sum().backward()
    unused = [name for name, weight in model.named_parameters() if weight.grad is None or not weight.grad.any()]
    return [name for name in unused if name != "pooling.score.bias"]  # softmax is the same for any bias


def open_session(path: Path) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def exported(model, path: Path, fields) -> onnxruntime.InferenceSession:
    export_onnx(model, fields, path)
    return open_session(path)


def eager(model, inputs):
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    with torch.no_grad():
        return model(tensors, tensors.pop("lengths"), inputs["lengths"]).numpy()


def max_error(model, session, fields, cases):
    """Return the largest difference of a logit between PyTorch and ONNX, over `cases` of (lengths, time).

    The padding of number fields is NaN.
    """
    generator, errors = np.random.default_rng(1), []
    for lengths, time in cases:
        inputs = example_inputs(fields, np.asarray(lengths), time, generator)
        for values in inputs.values():
            for row, length in enumerate(lengths):
                if values.dtype == np.float32:
                    values[row, length:] = np.nan
        errors.append(np.abs(session.run(["logits"], inputs)[0] - eager(model, inputs)).max())
    return max(errors)
