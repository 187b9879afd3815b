"""The stack of layers against PyTorch's modules with the same weights."""

import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.models.rnn import recurrent as recurrent_module
from seqclf.models.rnn.cell_encoder import CellEncoder
from seqclf.models.rnn.recurrent import Recurrent, flip_order

ORACLES = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


def recurrent(cell="lstm", input_size=5, hidden_size=8, layers=1, bidirectional=False, dropout=0.0, layout="padded"):
    options = {"cell": cell, "hidden_size": hidden_size, "layers": layers, "bidirectional": bidirectional}
    return Recurrent(input_size, **options, layout=layout, dropout=dropout)


def twin(stack: Recurrent, layers: int, bidirectional: bool) -> nn.RNNBase:
    oracle = ORACLES[stack.cell](5, 8, layers, batch_first=True, bidirectional=bidirectional)
    with torch.no_grad():
        for layer in range(layers):
            for modules, suffix in ((stack.forward_layers, ""), (stack.backward_layers, "_reverse")):
                for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"):
                    if len(modules):
                        target = getattr(oracle, f"{name}_l{layer}{suffix}")
                        target.copy_(getattr(modules[layer], f"{name}_l0"))
    return oracle


@pytest.mark.parametrize("cell", ORACLES)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_outputs_equal_those_of_torch_on_packed_input(cell, bidirectional, layers, layout):
    stack = recurrent(cell, layers=layers, bidirectional=bidirectional, layout=layout)
    with torch.no_grad():
        for weight in stack.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    oracle = twin(stack, layers, bidirectional)

    @settings(max_examples=10, deadline=None)
    @given(st.lists(st.integers(1, 15), min_size=1, max_size=6), st.integers(0, 4))
    def check(lengths, extra):
        host = np.array(lengths)
        tokens = torch.randn(len(host), host.max() + extra, 5)
        packed = pack_padded_sequence(tokens, torch.from_numpy(host), batch_first=True, enforce_sorted=False)
        with torch.no_grad():
            expected = pad_packed_sequence(oracle(packed)[0], batch_first=True, total_length=tokens.shape[1])[0]
            outputs, _, _ = stack(tokens, torch.from_numpy(host), host)
        assert outputs.shape == expected.shape
        for row, length in enumerate(host):
            torch.testing.assert_close(outputs[row, :length], expected[row, :length], rtol=0, atol=2e-6)

    check()


@given(st.lists(st.integers(1, 12), min_size=1, max_size=8), st.integers(0, 5))
def test_flip_order_reverses_each_sequence_and_leaves_its_padding(lengths, extra):
    time = max(lengths) + extra
    order = flip_order(torch.tensor(lengths), time)
    for row, length in enumerate(lengths):
        assert order[row].tolist() == [*reversed(range(length)), *range(length, time)]


@pytest.mark.parametrize("cell", ORACLES)
def test_every_module_has_one_layer_and_one_direction(cell):
    """Only those reach the fast kernels."""
    modules = recurrent(cell, layers=3, bidirectional=True).modules()
    layers = [module for module in modules if isinstance(module, nn.RNNBase)]
    assert len(layers) == 6
    assert all(layer.num_layers == 1 and not layer.bidirectional for layer in layers)


def test_dropout_between_layers_applies_in_training_only():
    stack = recurrent(layers=2, dropout=0.9)
    tokens, lengths = torch.randn(2, 4, 5), torch.tensor([4, 4])
    run = lambda: stack(tokens, lengths, lengths.numpy())[0]  # noqa: E731
    assert not torch.equal(run(), run())
    stack.eval()
    assert torch.equal(run(), run())


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_an_lstm_trains_in_mixed_precision_on_any_processor(layout):
    """PyTorch has an LSTM in bfloat16 only for processors with AVX-512."""
    torch.manual_seed(0)
    stack = recurrent(layers=2, bidirectional=True, layout=layout)
    tokens, lengths = torch.randn(2, 6, 5), np.array([6, 2])
    expected = stack(tokens, torch.from_numpy(lengths), lengths)[0].detach()
    with torch.autocast("cpu", torch.bfloat16):
        outputs = stack(tokens, torch.from_numpy(lengths), lengths)[0]
    outputs.float().sum().backward()
    inside = np.arange(6) < lengths[:, None]
    np.testing.assert_allclose(outputs.float().detach()[inside], expected[inside], atol=0.02)


def test_an_lstm_that_the_processor_lacks_is_computed_in_float32(monkeypatch):
    torch.manual_seed(0)
    stack, tokens = recurrent(), torch.randn(2, 6, 5)
    lengths = torch.tensor([6, 2])
    expected = stack(tokens, lengths, None)[0].detach()
    monkeypatch.setattr(recurrent_module, "_cpu_runs_lstm_in", lambda dtype: False)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = stack(tokens.bfloat16().float(), lengths, None)[0]
    assert outputs.dtype == torch.float32
    np.testing.assert_allclose(outputs.detach(), expected, atol=0.01)


def test_trying_mixed_precision_leaves_the_random_state():
    before = torch.get_rng_state()
    recurrent_module._cpu_runs_lstm_in.__wrapped__(torch.bfloat16)
    assert torch.equal(before, torch.get_rng_state())


def test_an_encoder_of_cells_declares_the_arguments_of_a_stack_as_recurrent_does():
    """Its constructor lists them, with the same types and defaults."""
    own, of_stack = {"cell", "field_specs"}, dict(inspect.signature(Recurrent).parameters)
    declared = {name: part for name, part in inspect.signature(CellEncoder).parameters.items() if name not in own}
    assert declared == {name: of_stack[name] for name in declared}
    assert of_stack.keys() - declared.keys() <= own | {"layout"}
