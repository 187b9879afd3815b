"""The exported model equals PyTorch at any batch size, time and lengths."""

import itertools
import threading

import numpy as np
import onnx
import pytest
import torch
from models.checks import eager, exported, max_error

from seqclf.errors import InputError
from seqclf.models.ensemble import Ensemble
from seqclf.models.onnx.checks import grid
from seqclf.models.onnx.exporter import EXAMPLE_BATCH, EXAMPLE_TIME, example_inputs, export_onnx

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
POOLINGS = ("last", "mean", "max", "attention", "mean+max+last")
CELLS = list(itertools.product(("lstm", "gru", "rnn"), (False, True)))
QUICK = {(*cell, POOLINGS[index % len(POOLINGS)]) for index, cell in enumerate(CELLS)}  # each cell, each pooling
VARIANTS = [
    pytest.param(*variant, marks=[] if variant in QUICK else pytest.mark.soak)
    for variant in ((*cell, pooling) for cell in CELLS for pooling in POOLINGS)
]
TOLERANCE = 1e-5


@pytest.mark.parametrize(("cell", "bidirectional", "pooling"), VARIANTS)
def test_onnx_matches_torch_on_ragged_batches(net, tmp_path, cell, bidirectional, pooling):
    model = net(cell=cell, bidirectional=bidirectional, pooling=pooling, layout="packed")
    session = exported(model, tmp_path / "model.onnx", FIELDS)
    cases = [(lengths, time) for _, lengths, time in grid(np.random.default_rng(0))]
    shapes = {(len(lengths), time) for lengths, time in cases}
    assert {(1, 1), (16, 48)} <= shapes, "a single token, and a batch unlike the example"
    assert any(time != EXAMPLE_TIME and len(lengths) != EXAMPLE_BATCH for lengths, time in cases)
    assert any(max(lengths) < time for lengths, time in cases), "time beyond the longest sequence"
    assert max_error(model, session, FIELDS, cases) <= TOLERANCE


# Attributes of modules, names that the exporter uses itself, Python keywords, and names that are no identifiers.
NAMES = ["items", "type", "forward", "encoder", "linear", "val_0", "cat", "batch", "class", "fields", "prénom", "a.b"]


def test_fields_may_have_any_name(net, tmp_path):
    fields = [
        {"name": name, "kind": "category", "size": 5} if index % 2 else {"name": name, "kind": "number", "width": 2}
        for index, name in enumerate(NAMES)
    ]
    model = net(fields)
    session = exported(model, tmp_path / "model.onnx", fields)
    assert [entry.name for entry in session.get_inputs()] == [*NAMES, "lengths"]
    assert max_error(model, session, fields, [([4, 1, 9], 11), ([1], 1)]) <= TOLERANCE


@pytest.mark.parametrize("combine", ["mean", *(pytest.param(how, marks=pytest.mark.soak) for how in ("sum", "max"))])
def test_tokens_may_have_any_number_of_values(net, tmp_path, combine):
    fields = [{"name": "codes", "kind": "bag", "size": 9, "combine": combine}, FIELDS[1]]
    model = net(fields)
    session = exported(model, tmp_path / "model.onnx", fields)
    generator = np.random.default_rng(2)
    for values, lengths, time in [(1, [1], 1), (2, [3, 1], 3), (7, [4, 1, 9], 11)]:
        inputs = example_inputs(fields, np.array(lengths), time, generator)
        inputs["codes"] = generator.integers(0, 9, (len(lengths), time, values))
        np.testing.assert_allclose(session.run(["logits"], inputs)[0], eager(model, inputs), atol=TOLERANCE)


def test_an_ensemble_is_one_graph(net, tmp_path):
    ensemble = Ensemble([net(bidirectional=True), net(bidirectional=True, cell="gru", pooling="mean")]).eval()
    session = exported(ensemble, tmp_path / "model.onnx", FIELDS)
    cases = [(lengths, time) for _, lengths, time in grid(np.random.default_rng(0))]
    assert max_error(ensemble, session, FIELDS, cases) <= TOLERANCE
    kinds = [node.op_type for node in onnx.load(tmp_path / "model.onnx").graph.node]
    assert (kinds.count("LSTM"), kinds.count("GRU")) == (1, 1)


@pytest.fixture(scope="module")
def attentive(net, tmp_path_factory):
    """Folder and session of a bidirectional model with attention, exported once for several tests."""
    folder = tmp_path_factory.mktemp("attentive")
    return folder, exported(net(bidirectional=True, pooling="attention"), folder / "model.onnx", FIELDS)


def test_inputs_have_the_names_of_the_fields_and_free_axes(attentive):
    _, session = attentive
    token, value, lengths = session.get_inputs()
    assert [entry.name for entry in (token, value, lengths)] == ["token", "value", "lengths"]
    assert (token.type, token.shape) == ("tensor(int64)", ["batch", "time"])
    assert (value.type, value.shape) == ("tensor(float)", ["batch", "time", 3])
    assert (lengths.type, lengths.shape) == ("tensor(int64)", ["batch"])
    logits, embedding = session.get_outputs()
    assert (logits.name, logits.shape) == ("logits", ["batch", 4])
    assert (embedding.name, embedding.shape[0]) == ("embedding", "batch")


def test_export_does_not_change_the_model(net, inputs, tmp_path):
    model = net(dropout=0.3, cell="gru").train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export_onnx(model, FIELDS, tmp_path / "model.onnx")
    assert model.training
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(torch.equal(after[name], value) for name, value in before.items())


def test_the_file_is_valid_and_holds_the_weights(attentive):
    folder, _ = attentive
    assert [path.name for path in folder.iterdir()] == ["model.onnx"], "weights are in the same file"
    onnx.checker.check_model(str(folder / "model.onnx"))


def test_a_network_that_cannot_be_copied_is_one_line(net, tmp_path):
    model = net()
    model.lock = threading.Lock()
    with pytest.raises(
        InputError, match=r"^model: cannot be exported to ONNX: the network cannot be copied .TypeError"
    ):
        export_onnx(model, FIELDS, tmp_path / "model.onnx")
