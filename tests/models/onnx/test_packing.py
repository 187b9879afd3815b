"""Encoders that pack their tokens for nn.LSTM, nn.GRU and nn.RNN, exported unchanged, against PyTorch."""

import threading
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from support.random_batches import draw
from torch import nn
from torch.nn.utils import rnn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence
from torch.nn.utils.rnn import pack_padded_sequence as pack_tokens

from seqclf.errors import InputError
from seqclf.models.cell_encoder import CellEncoder
from seqclf.models.onnx.export import export_onnx
from seqclf.models.onnx.layers import FORWARDS, use_operators
from seqclf.models.onnx.packing import REPLACEMENTS
from seqclf.models.onnx.replaced_code import replaced_code
from seqclf.models.parity_grid import logit_error
from seqclf.models.pooling import token_mask

FIELDS: list[Any] = [{"name": "x", "kind": "number", "width": 4}]
TOLERANCE = 1e-6
BATCHES = 6


class Packing(nn.Module):
    """Logits (B, C) of a recurrent module that reads packed tokens. `read`: returns outputs (B, T, H) and lengths."""

    def __init__(self, kind, **settings):
        super().__init__()
        self.layer = kind(4, 3, **settings)

    def forward(self, fields, lengths, host_lengths):
        outputs, lengths = self.read(fields["x"], lengths, host_lengths)
        inside = token_mask(lengths, outputs.shape[1])[..., None]
        places = torch.arange(1, outputs.shape[1] + 1)[:, None] / 10  # the order of the outputs counts
        return (torch.where(inside, outputs, 0.0) * places).sum(1) / lengths[:, None]

    def read(self, tokens, lengths, host_lengths) -> Any:
        raise NotImplementedError


class ByTensorOnCpu(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = pack_tokens(tokens, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = self.layer(packed)
        return pad_packed_sequence(outputs, batch_first=True, total_length=tokens.shape[1])[0], lengths


class Scaled(nn.LSTM):
    """A subclass whose own forward calls that of PyTorch."""

    def forward(self, input, hx=None):
        outputs, last = super().forward(input, hx)
        return outputs._replace(data=2 * outputs.data), last


class ScaledByName(nn.GRU):
    """A subclass whose own forward calls that of PyTorch by the name of its class."""

    def forward(self, input, hx=None):
        outputs, last = nn.GRU.forward(self, input, hx)
        return outputs._replace(data=2 * outputs.data), last


class TimeFirst(Packing):
    """Its largest output is chosen among the tokens alone, because padding is minus infinity."""

    def forward(self, fields, lengths, host_lengths):
        tokens = fields["x"].transpose(0, 1)
        packed = nn.utils.rnn.pack_padded_sequence(tokens, lengths.to("cpu"), enforce_sorted=False)
        outputs, ends = nn.utils.rnn.pad_packed_sequence(self.layer(packed)[0], padding_value=-torch.inf)
        return outputs.max(0).values * ends[:, None] / 10


class ByArray(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = rnn.pack_padded_sequence(tokens, torch.from_numpy(host_lengths), True, False)
        longest = int(lengths.max()) if host_lengths is None else host_lengths.max()
        return rnn.pad_packed_sequence(self.layer(packed)[0], True, 0.0, longest)


class ByArrayOfHalves(Packing):
    """Shortens time, and has a layer that reads `host_lengths` in training only."""

    def __init__(self, kind, **settings):
        super().__init__(kind, **settings)
        cell = {"_target_": "support.recurrent_cells.GRU"}
        self.inner = CellEncoder(4, cell=cell, hidden_size=4, bidirectional=False)

    def read(self, tokens, lengths, host_lengths):
        tokens, lengths, host_lengths = self.inner(tokens, lengths, host_lengths)
        tokens, lengths = tokens[:, ::2], (lengths + 1) // 2
        halves = np.maximum((host_lengths + 1) // 2, 1).astype(np.int64)
        packed = rnn.pack_padded_sequence(tokens, torch.as_tensor(halves), batch_first=True, enforce_sorted=False)
        return rnn.pad_packed_sequence(self.layer(packed)[0], batch_first=True)[0], lengths


class FinalStates(Packing):
    def forward(self, fields, lengths, host_lengths):
        packed = pack_tokens(fields["x"], host_lengths, batch_first=True, enforce_sorted=False)
        states = self.layer(packed)[1]
        return torch.cat(states, dim=-1).transpose(0, 1).flatten(1)


class Sorted(Packing):
    """Sorts the sequences itself, and starts from states of its own."""

    def forward(self, fields, lengths, host_lengths):
        lengths, order = lengths.sort(descending=True)
        packed = pack_tokens(fields["x"][order], lengths.cpu(), batch_first=True)
        start = torch.linspace(-1, 1, 3).expand(self.layer.num_layers, order.shape[0], -1)
        outputs, last = self.layer(packed, start.contiguous())
        summed = pad_packed_sequence(outputs, batch_first=True)[0].sum(1)
        return torch.cat([last[-1], summed], dim=-1)[order.argsort()]


class InTheMiddle(Packing):
    """Computes each token between two layers, on the packed data. Padding becomes longer than the tokens."""

    def __init__(self, kind, **settings):
        super().__init__(kind, **settings)
        self.linear = nn.Linear(self.layer.hidden_size * (2 if self.layer.bidirectional else 1), 5)
        self.second = nn.RNN(5, 2, bidirectional=True, nonlinearity="relu")

    def read(self, tokens, lengths, host_lengths):
        packed, _ = self.layer(pack_tokens(tokens, lengths.cpu(), batch_first=True, enforce_sorted=False))
        assert isinstance(packed, PackedSequence)
        packed = PackedSequence(
            self.linear(packed.data), packed.batch_sizes, packed.sorted_indices, packed.unsorted_indices
        )
        packed, _ = self.second(packed._replace(data=packed.data.relu()))
        padded, _ = pad_packed_sequence(packed, batch_first=True, total_length=tokens.shape[1] + 3)
        return padded, lengths


class FixedLength(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = pack_tokens(tokens, lengths.cpu(), batch_first=True, enforce_sorted=False)
        outputs, _ = pad_packed_sequence(self.layer(packed)[0], batch_first=True, total_length=50)
        assert outputs.shape[1] == 50
        return outputs, lengths


NETWORKS = [
    (ByTensorOnCpu, nn.LSTM, {"bidirectional": True, "batch_first": True, "num_layers": 2, "dropout": 0.5}),
    (TimeFirst, nn.GRU, {"bidirectional": True}),
    (ByArray, nn.RNN, {"num_layers": 2}),
    (ByArrayOfHalves, nn.GRU, {"bidirectional": True, "batch_first": True, "bias": False}),
    (ByTensorOnCpu, Scaled, {"bidirectional": True, "batch_first": True}),
    (ByTensorOnCpu, ScaledByName, {"bidirectional": True, "batch_first": True, "num_layers": 2}),
    (FinalStates, nn.LSTM, {"bidirectional": True, "num_layers": 2}),
    (Sorted, nn.GRU, {"num_layers": 2}),
    (InTheMiddle, nn.LSTM, {"bidirectional": True}),
    (FixedLength, nn.LSTM, {}),
]


@pytest.mark.parametrize(("network", "kind", "settings"), NETWORKS, ids=lambda value: getattr(value, "__name__", ""))
def test_packed_tokens_are_exported_exactly_in_batches_and_alone(network, kind, settings, tmp_path):
    torch.manual_seed(0)
    model = network(kind, **settings).eval()
    export_onnx(model, FIELDS, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    for number in range(BATCHES):
        inputs = draw(FIELDS, generator, number)
        lengths = inputs["lengths"]
        with torch.no_grad():
            expected = model({"x": torch.from_numpy(inputs["x"])}, torch.from_numpy(lengths), lengths).numpy()
        logits = session.run(["logits"], inputs)[0]
        assert logit_error(logits, expected) <= TOLERANCE
        for row, length in enumerate(lengths):
            alone = {"x": inputs["x"][row : row + 1, :length], "lengths": lengths[row : row + 1]}
            assert logit_error(session.run(["logits"], alone)[0][0], logits[row]) <= TOLERANCE
    operators = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    name = next(base.__name__ for base in (nn.LSTM, nn.GRU, nn.RNN) if issubclass(kind, base))
    assert operators.count(name) == settings.get("num_layers", 1), "both directions are one operator"


def packs_as_torch():
    packed = pack_tokens(torch.ones(2, 3, 4), torch.tensor([3, 1]), batch_first=True)
    tokens, lengths = pad_packed_sequence(packed, batch_first=True, total_length=5)
    return packed.data.shape == (4, 4) and tokens.shape == (2, 5, 4) and lengths.tolist() == [3, 1]


def test_packing_is_that_of_torch_in_other_threads_and_after_an_export():
    found = []
    thread = threading.Thread(target=lambda: found.append(packs_as_torch()))
    with pytest.raises(KeyError), replaced_code({**REPLACEMENTS, **FORWARDS}):
        thread.start()
        thread.join()
        assert not packs_as_torch()
        raise KeyError
    assert found == [True] and packs_as_torch()


def test_recurrent_modules_are_those_of_torch_in_other_threads_and_after_an_export():
    layer, tokens = nn.GRU(4, 3, batch_first=True), torch.randn(2, 5, 4)
    expected, found = layer(tokens)[0], []
    use_operators(layer, "layer")
    thread = threading.Thread(target=lambda: found.append(layer(tokens)[0]))
    with replaced_code(FORWARDS):
        thread.start()
        thread.join()
        assert not torch.equal(layer(tokens)[0], expected)
    assert torch.equal(found[0], expected) and torch.equal(layer(tokens)[0], expected)


class ByList(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = pack_tokens(tokens, list(host_lengths), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)


class ByListOfTensor(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = pack_tokens(tokens, lengths.tolist(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)


class ByIndex(Packing):
    def read(self, tokens, lengths, host_lengths):
        return tokens[:, : host_lengths.sum()], lengths


class ByNumPy(Packing):
    def read(self, tokens, lengths, host_lengths):
        packed = pack_tokens(tokens, lengths.cpu().numpy(), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layer(packed)[0], batch_first=True)


@pytest.mark.parametrize(
    ("network", "line"),
    [
        (ByList, r"inner \(ByList\) loops over host_lengths; compute with lengths, a tensor"),
        (ByListOfTensor, r"inner \(ByListOfTensor\) packs by a list of lengths; write .*lengths\.cpu\(\)"),
        (ByIndex, r"inner \(ByIndex\) reads host_lengths\.sum; compute with lengths, a tensor"),
        (ByNumPy, r"inner \(ByNumPy\) calls \.numpy\(\) of a tensor; compute with tensors, such as lengths\.cpu\(\)"),
    ],
)
def test_lengths_that_the_export_would_fix_are_one_line_with_the_remedy(network, line, tmp_path):
    with pytest.raises(InputError, match=line) as error:
        export_onnx(Outer(network(nn.GRU)), FIELDS, tmp_path / "model.onnx")
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, fields, lengths, host_lengths):
        return self.inner(fields, lengths, host_lengths)
