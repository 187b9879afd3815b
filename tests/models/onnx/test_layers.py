"""Plain nn.LSTM, nn.GRU and nn.RNN inside of other modules, exported, against PyTorch."""

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

from seqclf.errors import InputError
from seqclf.models.onnx.export import EXAMPLE_BATCH, EXAMPLE_TIME, example_inputs, export_onnx

FIELDS: list[Any] = [{"name": "x", "kind": "number", "width": 4}]
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
CASES = (([EXAMPLE_TIME, 1], EXAMPLE_TIME), ([1], 1), ([1, 1, 1], 1), ([9], 9), ([2, 12, 7, 5], 12))


class Reader(nn.Module):
    """A recurrent module on the padded tokens. Returns everything it does: all outputs, and the last states."""

    def __init__(self, module, start=False):
        super().__init__()
        self.inner = nn.ModuleDict({"stack": module})
        self.start = nn.Parameter(torch.randn(2, 1, module.hidden_size)) if start else None

    def forward(self, tokens):
        stack: Any = self.inner["stack"]
        batch = tokens.shape[0]
        stack.flatten_parameters()  # as much code does before each run
        tokens = tokens if stack.batch_first else tokens.transpose(0, 1)
        count = stack.num_layers * (2 if stack.bidirectional else 1)
        states = None
        if self.start is not None:
            states = tuple(state.expand(count, batch, -1).contiguous() for state in self.start)
        outputs, last = stack(tokens, states if isinstance(stack, nn.LSTM) or states is None else states[0])
        outputs = outputs if stack.batch_first else outputs.transpose(0, 1)
        last = last if isinstance(last, tuple) else (last,)
        weights = torch.arange(1, outputs.shape[1] + 1) / outputs.shape[1]  # the order of the outputs counts
        return torch.cat(
            [(outputs * weights[:, None]).sum(1), *(state.transpose(0, 1).flatten(1) for state in last)], 1
        )


class Network(nn.Module):
    def __init__(self, readers):
        super().__init__()
        self.readers = nn.ModuleList(readers)

    def forward(self, fields, lengths, host_lengths):
        return torch.cat([reader(fields["x"]) for reader in self.readers], dim=1)


def check(network, path):
    """Export a network and compare it with PyTorch on batches unlike the example. Return the operators of the graph."""
    network = network.eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    # The modules of the copy that is exported have been replaced, so `Reader` must find their attributes there too.
    export_onnx(network, FIELDS, path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    assert any(time != EXAMPLE_TIME and len(lengths) != EXAMPLE_BATCH for lengths, time in CASES)
    for lengths, time in CASES:
        inputs = example_inputs(FIELDS, np.array(lengths), time, np.random.default_rng(0))
        with torch.no_grad():
            expected = network({"x": torch.from_numpy(inputs["x"])}, None, None).numpy()
        np.testing.assert_allclose(session.run(["logits"], inputs)[0], expected, atol=1e-5)
    return [node.op_type for node in onnx.load(path).graph.node]


# Layers, both directions, batch axis first, initial states given: each value of each with each other one.
VARIANTS = [(1, False, False, True), (2, True, False, False), (2, False, True, True), (1, True, True, False)]
VARIANTS += [(3, True, False, True)]


@pytest.mark.parametrize("cell", ["lstm", *(pytest.param(cell, marks=pytest.mark.soak) for cell in ("gru", "rnn"))])
def test_outputs_and_last_states_equal_those_of_torch(cell, tmp_path):
    readers = [
        Reader(KINDS[cell](4, 3, layers, bidirectional=bidirectional, batch_first=batch_first), start)
        for layers, bidirectional, batch_first, start in VARIANTS
    ]
    operators = check(Network(readers), tmp_path / "model.onnx")
    assert operators.count(cell.upper()) == sum(reader.inner["stack"].num_layers for reader in readers)
    assert not {"Loop", "Scan", "If"} & set(operators)


@pytest.mark.soak
def test_other_settings_of_the_modules_are_exported(tmp_path):
    readers = [
        Reader(nn.RNN(4, 3, 2, nonlinearity="relu", bidirectional=True)),
        Reader(nn.LSTM(4, 3, 2, bias=False, dropout=0.5, batch_first=True)),
        Reader(weight_norm(nn.GRU(4, 3), "weight_hh_l0")),
    ]
    check(Network(readers), tmp_path / "model.onnx")


@pytest.mark.slow
def test_a_module_that_is_used_twice_is_stored_once(tmp_path):
    shared = nn.LSTM(4, 30, batch_first=True)
    network = Network([Reader(shared), Reader(shared)])
    check(network, tmp_path / "model.onnx")
    initializers = onnx.load(tmp_path / "model.onnx").graph.initializer
    stored = sum(math.prod(initializer.dims) for initializer in initializers)
    weights = sum(weight.numel() for weight in shared.parameters())
    assert weights <= stored < 1.1 * weights


class Unbatched(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 3, batch_first=True)

    def forward(self, fields, lengths, host_lengths):
        return self.gru(fields["x"][0])[0]


def test_tokens_without_a_batch_axis_are_refused_by_the_name_of_the_module(tmp_path):
    with pytest.raises(InputError, match=r"gru \(GRU\): gets tokens without a batch axis; add it by unsqueeze"):
        export_onnx(Unbatched(), FIELDS, tmp_path / "model.onnx")


class Projecting(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.lstm = kind(4, 6, batch_first=True, proj_size=3)

    def forward(self, fields, lengths, host_lengths):
        return self.lstm(fields["x"])[0].sum(1)


def test_a_projection_is_refused_by_the_name_of_the_module(tmp_path):
    line = (
        r"^model: cannot be exported to ONNX: lstm \(LSTM\): has a proj_size, which ONNX lacks; set it to 0 and "
        r"project the outputs by an nn\.Linear, or set export=false$"
    )
    with pytest.raises(InputError, match=line):
        export_onnx(Projecting(nn.LSTM), FIELDS, tmp_path / "model.onnx")


class LastToken(nn.Module):
    def forward(self, tokens):
        return tokens[:, -1:], None


class WithForm(nn.LSTM):
    def onnx_form(self):
        return LastToken()


def test_a_projection_with_a_form_is_replaced_by_it(tmp_path):
    export_onnx(Projecting(WithForm), FIELDS, tmp_path / "model.onnx")
    assert "LSTM" not in {node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node}
