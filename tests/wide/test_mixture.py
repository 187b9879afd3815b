"""A network beside wide paths, in PyTorch and in ONNX."""

from types import SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch

from seqclf.models.classifier import SequenceClassifier
from seqclf.models.onnx.export import example_inputs, export_onnx, export_step
from seqclf.wide import boosted_trees
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.mixture import Mixture, WideModel, mixed
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.row_features import BLOCKS
from seqclf.wide.statistics import Statistics

FIELDS = [
    {"name": "letter", "kind": "category", "size": 6},
    {"name": "amount", "kind": "number", "width": 2},
    {"name": "tags", "kind": "bag", "size": 5, "combine": "mean"},
]


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    encoder = {"_target_": "seqclf.models.recurrent.Recurrent"}
    options = {"cell": "gru", "hidden_size": 8, "bidirectional": False, "embedding_size": 4}
    return SequenceClassifier(FIELDS, 3, encoder=encoder, **options).eval()


@pytest.fixture(scope="module")
def wide(rows_of, labels_of, split_of):
    """A wide model whose trees read all blocks of features of the order."""
    sequences = rows_of(np.random.default_rng(0), 100, FIELDS)
    split = split_of(sequences, labels_of(sequences, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boosted_trees, "_choose_blocks", lambda *arguments: SimpleNamespace(blocks=list(BLOCKS)))
        model = WideModel([kind.fit(split, FIELDS, 3, 0).path for kind in (Ngrams, Statistics, BoostedTrees)], 3)
    model.prior.copy_(torch.tensor([0.1, -0.2, 0.3]))
    return model


@pytest.fixture(scope="module", params=[0.3, 1.0])
def mixture(request, network, wide):
    return Mixture(network, wide, request.param).eval()


def batch(lengths, time, seed=0):
    inputs = example_inputs(FIELDS, np.array(lengths), time, np.random.default_rng(seed))
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
    return inputs, {name: tensors[name] for name in tensors if name != "lengths"}, tensors["lengths"]


def test_logits_are_the_weighted_sum(network, wide):
    _, fields, lengths = batch([5, 1, 9], 9)
    with torch.inference_mode():
        parts = network(fields, lengths, lengths.numpy()), wide(fields, lengths)
        found = Mixture(network, wide, 0.3)(fields, lengths, lengths.numpy())
    torch.testing.assert_close(found, 0.7 * parts[0] + 0.3 * parts[1])


def test_onnx_gives_the_logits_of_pytorch(mixture, tmp_path):
    export_onnx(mixture, FIELDS, tmp_path / "model.onnx")
    nodes = len(onnx.load(tmp_path / "model.onnx").graph.node)
    assert nodes < 700, "streams of n-grams have operators in common"
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    for number, (lengths, time) in enumerate([([1], 1), ([4], 4), ([3, 1, 2], 5), (list(range(1, 41)), 64)]):
        inputs, fields, on_device = batch(lengths, time, number)
        with torch.inference_mode():
            expected = mixture(fields, on_device, on_device.numpy())
        (logits,) = session.run(None, inputs)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_onnx_reads_chunk_by_chunk(mixture, tmp_path):
    step = export_step(mixture, FIELDS, tmp_path / "step.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "step.onnx")
    inputs, fields, lengths = batch([12, 12, 12], 12)
    states = {f"state/{state.name}": np.full((3, *state.shape), state.initial, np.float32) for state in step.states}
    for start in range(0, 12, 4):
        part = {name: values[:, start : start + 4] for name, values in inputs.items() if name != "lengths"}
        names = ["logits", *(name.replace("state/", "next/") for name in states)]
        logits, *after = session.run(names, {**part, "lengths": np.full(3, 4), **states})
        states = dict(zip(states, after, strict=True))
    with torch.inference_mode():
        np.testing.assert_allclose(logits, mixture(fields, lengths, lengths.numpy()), rtol=0, atol=1e-5)


def test_settings_and_weights_rebuild_the_mixture(mixture, network):
    again = mixed(network, mixture.settings(), FIELDS, 3)
    again.load_state_dict(mixture.state_dict())
    _, fields, lengths = batch([5, 1, 9], 9)
    with torch.inference_mode():
        assert torch.equal(again.eval()(fields, lengths, lengths.numpy()), mixture(fields, lengths, lengths.numpy()))
