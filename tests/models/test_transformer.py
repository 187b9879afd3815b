"""Transformer: nothing of padding or batch mates in the logits, relative positions, and the same numbers in ONNX."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.checks import check_exactness, check_gradients_of_tokens, exported, max_error, unused_weights

from seqclf.models import transformer
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.onnx.checks import TOLERANCE, grid
from seqclf.models.transformer import SelfAttention, Transformer, rotary_angles, rotate

BLOCKS = {"hidden_size": 16, "layers": 2, "heads": 2, "expansion": 2}
ENCODER = {"_target_": "seqclf.models.transformer.Transformer"}
FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
POOLINGS = ["last", "attention", "mean+max"]
CLOSE = {"rtol": 0, "atol": 1e-5}

few = settings(max_examples=15, deadline=None)


def classifier(**options):
    torch.manual_seed(1)
    noise = {"dropout": 0.0, "token_dropout": 0.0, "number_noise": 0.0}
    network = EncoderClassifier(FIELDS, 4, **{"encoder": ENCODER, "embedding_size": 6, **BLOCKS, **noise, **options})
    with torch.no_grad():  # biases of norms start at zero; a test must notice when one is lost
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return network.eval()


def encoder(**options):
    return Transformer(3, **{**BLOCKS, "dropout": 0.0, **options}).eval()


@pytest.mark.parametrize("pooling", POOLINGS)
def test_logits_ignore_padding_batch_mates_and_their_order(inputs, pooling):
    check_exactness(classifier(pooling=pooling), inputs)


def test_padding_gets_no_gradient():
    check_gradients_of_tokens(encoder())


def test_lengths_on_the_host_only_save_the_mask():
    """The host knows that nothing is padding, as the export and modes without host lengths do not."""
    module = encoder()
    for lengths in (np.array([7, 7]), np.array([7, 4]), np.array([3, 4])):
        tokens = torch.randn(2, 7, 3)
        with torch.no_grad():
            known, _, _ = module(tokens, torch.from_numpy(lengths), lengths)
            unknown, _, _ = module(tokens, torch.from_numpy(lengths), None)
        for row, length in enumerate(lengths):
            torch.testing.assert_close(known[row, :length], unknown[row, :length], **CLOSE)


def test_the_order_of_the_tokens_matters(inputs):
    model = classifier(pooling="mean")
    fields, lengths, host = inputs([9])
    with torch.no_grad():
        forward = model(fields, lengths, host)
        backward = model({name: tokens.flip(1) for name, tokens in fields.items()}, lengths, host)
    assert (forward - backward).abs().max() > 1e-3


@given(st.integers(1, 60), st.integers(0, 5000), st.sampled_from([2, 8, 24]))
@few
def test_products_of_rotated_channels_depend_on_distances_only(length, shift, head_size):
    queries, keys = torch.randn(2, 1, 2, length, head_size, dtype=torch.float64)
    angles = rotary_angles(length + shift, head_size).double()
    here = rotate(queries, angles[:length]) @ rotate(keys, angles[:length]).mT
    later = rotate(queries, angles[shift:]) @ rotate(keys, angles[shift:]).mT
    # Angles are float32 numbers, of up to 5000 radians.
    torch.testing.assert_close(here, later, rtol=0, atol=5e-4 * head_size)


def test_rotation_turns_each_pair_of_channels_by_the_angle_of_its_position():
    heads, angles = torch.randn(1, 1, 50, 6), rotary_angles(50, 6)
    pairs = torch.complex(heads[..., :3], heads[..., 3:]) * torch.polar(torch.ones(50, 3), angles)
    torch.testing.assert_close(rotate(heads, angles), torch.cat([pairs.real, pairs.imag], dim=-1), **CLOSE)


def test_attention_equals_that_of_pytorch_on_the_first_position():
    """With all angles 0 there is nothing to rotate, and PyTorch's module is an oracle for the rest."""
    ours, theirs = SelfAttention(8, 2), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(ours.inputs.weight)
        theirs.in_proj_bias.zero_()
        theirs.out_proj.load_state_dict(ours.output.state_dict())
        tokens = torch.randn(3, 6, 8)
        inside = torch.arange(6) < torch.tensor([6, 2, 5])[:, None]
        expected, _ = theirs(tokens, tokens, tokens, key_padding_mask=~inside, need_weights=False)
        result = ours(tokens, torch.zeros(6, 2), inside[:, None, None])
    torch.testing.assert_close(result[inside], expected[inside], **CLOSE)


def test_attention_needs_no_matrix_of_all_pairs_of_tokens():
    """PyTorch's tiled kernel, in training too; with a mask of (B, H, T, T) or dropped weights it would not run."""
    tokens, lengths = torch.randn(2, 300, 3), torch.tensor([300, 200])
    module = encoder(dropout=0.1).train()
    with torch.profiler.profile(profile_memory=True, acc_events=True) as profile:
        module(tokens, lengths, lengths.numpy())[0].sum().backward()
    names = {event.name for event in profile.events()}
    assert any("flash_attention" in name for name in names) and not any("attention_math" in name for name in names)
    allocated = [event.cpu_memory_usage for event in profile.events() if event.name.startswith("aten::empty")]
    assert 0 < max(allocated) < 2 * 2 * 300 * 300, "not even of booleans"


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_weight_has_a_gradient(inputs, pooling):
    assert unused_weights(classifier(pooling=pooling), inputs) == []


def test_precision_of_positions_does_not_follow_that_of_the_weights(monkeypatch):
    """In bfloat16, positions beyond 256 would be rounded to even numbers and more."""
    used = []
    monkeypatch.setattr(transformer, "rotate", lambda heads, angles: used.append(angles) or rotate(heads, angles))
    lengths = torch.tensor([600])
    with torch.no_grad():
        outputs, _, _ = encoder().bfloat16()(torch.randn(1, 600, 3).bfloat16(), lengths, lengths.numpy())
    assert outputs.dtype == torch.bfloat16 and outputs.isfinite().all()
    assert used and all(angles[:, 0].tolist() == list(range(600)) for angles in used)


@pytest.mark.parametrize(
    ("pooling", "layers"), [("mean+max+last", 1), pytest.param("attention", 2, marks=pytest.mark.soak)]
)
def test_the_exported_model_equals_torch(tmp_path, pooling, layers):
    model = classifier(pooling=pooling, layers=layers)
    session = exported(model, tmp_path / "model.onnx", FIELDS)
    assert session.get_inputs()[0].shape == ["batch", "time"]
    cases = [(lengths, time) for _, lengths, time in grid(np.random.default_rng(0))]
    assert max_error(model, session, FIELDS, [*cases, ([300, 1, 299], 300), ([900], 1000)]) <= TOLERANCE
