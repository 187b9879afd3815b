"""Recurrent layers for encoders of one's own, against PyTorch's layers of packed tokens, in PyTorch and exported."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from models.checks import eager, exported
from support.random_batches import draw
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.errors import InputError
from seqclf.extend import MaskedGRU, MaskedLSTM, SequenceNetwork
from seqclf.models.onnx.checks import logit_error
from seqclf.models.onnx.exporter import export_onnx

FIELDS: list[Any] = [{"name": "x", "kind": "number", "width": 4}]
PLAIN = {MaskedLSTM: nn.LSTM, MaskedGRU: nn.GRU}
LENGTHS = torch.tensor([3, 7, 1, 6])
TOLERANCE = 1e-6


def packed(masked, kind, layers, bidirectional):
    """PyTorch's layer with the weights of a masked one."""
    plain = PLAIN[kind](4, 3, layers, bidirectional=bidirectional, batch_first=True)
    with torch.no_grad():
        for layer in range(layers):
            directions = {"": masked.stack.forward_layers, "_reverse": masked.stack.backward_layers}
            for suffix, modules in directions.items():
                for name, weight in modules[layer].named_parameters() if bidirectional or not suffix else ():
                    getattr(plain, name.replace("l0", f"l{layer}{suffix}")).copy_(weight)
    return plain


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
def test_outputs_states_and_gradients_equal_those_of_packed_tokens(kind, layers, bidirectional):
    torch.manual_seed(0)
    masked = kind(4, 3, layers=layers, bidirectional=bidirectional)
    plain = packed(masked, kind, layers, bidirectional)
    tokens = torch.randn(4, 9, 4)
    outputs, states = plain(pack_padded_sequence(tokens, LENGTHS, batch_first=True, enforce_sorted=False))
    outputs, _ = pad_packed_sequence(outputs, batch_first=True, total_length=9)
    states = states[0] if isinstance(states, tuple) else states
    last = torch.cat([*states[-2:]], dim=-1) if bidirectional else states[-1]
    inside = torch.arange(9) < LENGTHS[:, None]
    found, found_last = masked(torch.where(inside[..., None], tokens, torch.nan), LENGTHS)
    torch.testing.assert_close(found, outputs)
    torch.testing.assert_close(found_last, last)
    assert found.shape[-1] == masked.size and masked.backward_size == (3 if bidirectional else 0)
    (outputs.square().sum() + last.sum()).backward()
    (found.square().sum() + found_last.sum()).backward()
    gradient = masked.stack.forward_layers[0].weight_ih_l0.grad
    torch.testing.assert_close(gradient, plain.weight_ih_l0.grad)


class Network(SequenceNetwork):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, fields, lengths, host_lengths):
        outputs, last = self.layer(fields["x"], lengths)
        places = torch.arange(1, outputs.shape[1] + 1)[:, None] / 10  # the order of the outputs counts
        return torch.cat([(outputs * places).sum(1) / lengths[:, None], last], dim=-1)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_layer_is_exported_exactly_in_batches_and_alone(kind, tmp_path):
    torch.manual_seed(0)
    network = Network(kind(4, 3, layers=2, bidirectional=True, dropout=0.5)).eval()
    session = exported(network, tmp_path / "model.onnx", FIELDS)
    generator = np.random.default_rng(0)
    for number in range(6):
        inputs = draw(FIELDS, generator, number)
        lengths = inputs["lengths"]
        logits = session.run(["logits"], inputs)[0]
        assert logit_error(logits, eager(network, inputs)) <= TOLERANCE
        for row, length in enumerate(lengths):
            alone = {"x": inputs["x"][row : row + 1, :length], "lengths": lengths[row : row + 1]}
            assert logit_error(session.run(["logits"], alone)[0][0], logits[row]) <= TOLERANCE
    operators = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert operators.count(PLAIN[kind].__name__) == 2, "both directions are one operator"


class Packing(Network):
    def forward(self, fields, lengths, host_lengths):
        tokens = pack_padded_sequence(fields["x"], lengths.cpu(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(tokens)[0], batch_first=True)[0].sum(1)


class Reading(Network):
    def forward(self, fields, lengths, host_lengths):
        return self.layer(fields["x"])[0][:, 0]


def test_a_layer_of_torch_is_refused_by_its_name_with_the_layer_to_use(tmp_path):
    with pytest.raises(InputError) as caught:
        export_onnx(Packing(nn.GRU(4, 3, batch_first=True)), FIELDS, tmp_path / "model.onnx")
    assert caught.value.problem.startswith("cannot be exported to ONNX: layer (GRU) ")
    assert "seqclf.extend.MaskedLSTM" in caught.value.remedy and "export=false" in caught.value.remedy
    assert "\n" not in str(caught.value) and list(tmp_path.iterdir()) == []


class FirstToken(nn.Module):
    def forward(self, tokens):
        return tokens[:, :1], None


class WithForm(nn.LSTM):
    def onnx_form(self):
        return FirstToken()


def test_a_layer_of_torch_with_a_form_is_replaced_by_it(tmp_path):
    export_onnx(Reading(WithForm(4, 3, batch_first=True)), FIELDS, tmp_path / "model.onnx")
    assert "LSTM" not in {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
