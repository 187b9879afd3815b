"""A model that reads chunk by chunk gives the logits of the whole sequences, however they are cut."""

import itertools

import numpy as np
import pytest
import torch
from models.checks import eager, open_session

from seqclf.bundle.step_model import StepModel, read_chunks
from seqclf.errors import InputError
from seqclf.models.ensemble import Ensemble
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.exporter import EXAMPLE_TIME, example_inputs, export_step
from seqclf.models.pooling import POOLINGS, Pooling
from seqclf.models.rnn.recurrent import RecurrentStep

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
TOLERANCE = 1e-5
LENGTHS = np.array([9, 1, 30, 17, 30, 4])
VARIANTS = [("lstm", "last+mean+max+attention", 2)]
VARIANTS += [
    pytest.param(cell, pooling, 1, marks=pytest.mark.soak)
    for cell, pooling in itertools.product(("lstm", "gru", "rnn"), POOLINGS)
]


def step_model(network, path):
    states = export_step(network, FIELDS, path).states
    return StepModel(open_session(path), [state._asdict() for state in states], FIELDS, 4)


@pytest.mark.parametrize(("cell", "pooling", "layers"), VARIANTS)
def test_chunk_by_chunk_equals_the_whole_sequence(net, tmp_path, cell, pooling, layers):
    network = net(cell=cell, pooling=pooling, layers=layers)
    model = step_model(network, tmp_path / "step.onnx")
    inputs = example_inputs(FIELDS, LENGTHS, 33, np.random.default_rng(0))
    expected = eager(network, inputs)
    fields = {name: inputs[name] for name in ("token", "value")}
    for chunk in (1, 2, 7, 29, 33):
        read = read_chunks(model, fields, LENGTHS, chunk)
        np.testing.assert_allclose(read.logits, expected, atol=TOLERANCE)
    for row in range(len(LENGTHS)):  # padding that holds NaN is not read
        fields["value"][row, LENGTHS[row] :] = np.nan
    np.testing.assert_allclose(read_chunks(model, fields, LENGTHS, 7).logits, expected, atol=TOLERANCE)
    axes = {entry.name: entry.shape for entry in model.session.get_inputs()}
    assert axes["token"] == ["batch", "time"] and axes["state/hidden_0"] == ["batch", 8]


def test_rows_of_a_chunk_may_advance_by_different_numbers_of_tokens(net, tmp_path):
    network = net(cell="gru", pooling="mean+max")
    model = step_model(network, tmp_path / "step.onnx")
    inputs = example_inputs(FIELDS, np.array([7, 7]), 7, np.random.default_rng(0))
    states, read = model.start(2), np.zeros(2, np.int64)
    for lengths in ([2, 4], [5, 3]):
        fields = {name: np.zeros_like(inputs[name]) for name in ("token", "value")}
        for row, length in enumerate(lengths):
            for name, values in fields.items():
                values[row, :length] = inputs[name][row, read[row] : read[row] + length]
        read += lengths
        chunk = model.run(fields, np.array(lengths), states)
        states = chunk.states
    np.testing.assert_allclose(chunk.logits, eager(network, inputs), atol=TOLERANCE)


def test_networks_that_need_the_whole_sequence_have_no_step(net, tmp_path):
    networks = [net(bidirectional=True), Ensemble([net(), net()]), SequenceNetwork()]
    assert [export_step(network, FIELDS, tmp_path / "step.onnx") for network in networks] == [None] * 3
    assert list(tmp_path.iterdir()) == []


def test_a_streaming_that_fixes_the_number_of_tokens_is_refused(net, tmp_path, monkeypatch):
    """The exporter drops the free axis without an error."""

    def fixed(self, tokens, lengths, states):
        return tokens[..., :8] * torch.ones(1, EXAMPLE_TIME, 1), [state + 1 for state in states]

    monkeypatch.setattr(RecurrentStep, "forward", fixed)
    with pytest.raises(InputError, match="streaming fixes the number of sequences or tokens; use sizes of its inputs"):
        export_step(net(), FIELDS, tmp_path / "step.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_pooled_vector_of_each_prefix_is_that_of_a_shorter_sequence():
    pooling = Pooling("last+mean+max+attention", 5, 0)
    outputs, lengths = 30 * torch.randn(3, 9, 5), torch.tensor([9, 4, 1])
    outputs[1, 4:] = torch.nan
    with torch.no_grad():
        prefixes = pooling.prefixes(outputs, lengths)
        for row, length in enumerate(lengths.tolist()):
            for end in range(1, length + 1):
                expected = pooling(outputs[row : row + 1], torch.tensor([end]))[0]
                torch.testing.assert_close(prefixes[row, end - 1], expected, rtol=1e-5, atol=1e-4)


def test_a_running_pooling_keeps_attention_finite_when_scores_grow():
    pooling = Pooling("attention", 5, 0)
    outputs = torch.randn(1, 6, 5) * torch.tensor([1.0, 1, 1, 400, 400, 400])[:, None]
    states = [torch.full((1, *state.shape), state.initial) for state in pooling.states]
    with torch.no_grad():
        for part in outputs.split(2, dim=1):
            pooled, states = pooling.run(part, torch.tensor([2]), states)
        torch.testing.assert_close(pooled, pooling(outputs, torch.tensor([6])), rtol=1e-5, atol=1e-4)
