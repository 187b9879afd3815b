"""Static fields: the logits depend on them, and else on the tokens of the sequence alone, in PyTorch and in ONNX."""

from typing import Any

import numpy as np
import pytest
import torch
from models.auto.conftest import PLAIN, random_split, training_rows
from models.checks import exported

from seqclf.errors import InputError
from seqclf.models.change_network import change_network, changed_config
from seqclf.models.ensemble import build_classifier
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.exporter import example_inputs

STATIC: list[dict[str, Any]] = [
    {"name": "country", "kind": "category", "size": 5, "static": True},
    {"name": "shop", "kind": "category", "size": 90, "static": True},
    {"name": "age", "kind": "number", "width": 2, "masked": 1, "scaled": [True, False], "static": True},
]
TOKENS: list[dict[str, Any]] = [
    {"name": "token", "kind": "category", "size": 12},
    {"name": "value", "kind": "number", "width": 3},
]
TREE: list[dict[str, Any]] = [
    {"name": "tree", "kind": "category", "size": 12},
    {"name": "parents", "kind": "parents", "node_classes": [2, -1, 0]},
]
CLASSIFIER = "seqclf.models.classifier.EncoderClassifier"
COMMON = {
    "embedding_size": 6, "hidden_size": 8, "dropout": 0.0, "token_dropout": 0.0, "members": 1,
}  # fmt: skip
SINGLE = COMMON | {"_target_": CLASSIFIER, "pooling": "mean+max", "number_noise": 0.0, "layers": 1}
RECURRENT = SINGLE | {
    "encoder": {"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    "cell": "lstm",
    "bidirectional": False,
    "layout": "padded",
}
NETWORKS: dict[str, dict[str, Any]] = {
    "lstm": RECURRENT | {"bidirectional": True},
    "gru": RECURRENT | {"cell": "gru", "layout": "packed"},
    "adaptive": RECURRENT | {"_target_": "seqclf.models.adaptive.AdaptiveClassifier", "earliness": 0.1},
    "ensemble": RECURRENT | {"members": 2},
    "transformer": SINGLE
    | {"encoder": {"_target_": "seqclf.models.transformer.Transformer"}, "heads": 2}
    | {"expansion": 2},
    "tree": COMMON
    | {"_target_": "seqclf.models.tree_classifier.TreeClassifier", "node_loss": 1.0, "composition": "child_sum"}
    | {"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}},
    "auto": PLAIN
    | {"_target_": "seqclf.models.auto.heads_classifier.HeadsClassifier", "members": 1}
    | {"heads": ["recurrent", "kernels", "statistics", "categories", "ngrams"]},
}


def fields_of(name: str) -> list[dict[str, Any]]:
    return [*(TREE if name == "tree" else TOKENS), *STATIC]


def build(name: str) -> Any:
    """A network in evaluation mode whose weights have moved, as by training."""
    torch.manual_seed(1)
    network = build_classifier(NETWORKS[name], fields_of(name), 3)
    if name == "auto":
        network.fit_to(training_rows(random_split(fields_of(name))))
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(0.2 * torch.randn_like(weight))
    return network.eval()


def inputs_of(name: str, lengths: Any, time: int, seed: int = 0) -> dict[str, np.ndarray]:
    return example_inputs(fields_of(name), np.asarray(lengths), time, np.random.default_rng(seed))


@torch.no_grad()
def logits(network: Any, inputs: dict[str, np.ndarray]) -> torch.Tensor:
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    return network(tensors, torch.from_numpy(inputs["lengths"]), inputs["lengths"])


@pytest.fixture(params=NETWORKS)
def name(request):
    return request.param


LENGTHS = [9, 1, 5, 7]


def test_inputs_have_no_axis_of_tokens():
    inputs = inputs_of("lstm", LENGTHS, 12)
    assert inputs["country"].shape == (4,) and inputs["age"].shape == (4, 2) and inputs["token"].shape == (4, 12)


@pytest.mark.parametrize("length", [1, 6])
def test_logits_depend_on_tokens_and_static_fields_of_the_row_alone(name, length):
    """A batch of any order, with padding, gives the logits of the rows alone: (1, T), also with one token."""
    network, inputs = build(name), inputs_of(name, [9, length, 5, 7], 12)
    together = logits(network, inputs)
    order = [2, 0, 3, 1]
    shuffled = logits(network, {key: values[order] for key, values in inputs.items()})
    torch.testing.assert_close(shuffled, together[order], rtol=0, atol=1e-5)
    for row, count in enumerate([9, length, 5, 7]):
        alone = {
            key: values[row : row + 1] if values.ndim == 1 or key == "age" else values[row : row + 1, :count]
            for key, values in inputs.items()
        }
        torch.testing.assert_close(logits(network, alone)[0], together[row], rtol=0, atol=1e-5)


@pytest.mark.parametrize("field", ["country", "shop", "age"])
def test_a_static_value_changes_the_logits_of_its_row_only(name, field):
    network, inputs = build(name), inputs_of(name, LENGTHS, 9)
    before = logits(network, inputs)
    changed = {**inputs, field: inputs[field].copy()}
    changed[field][1] = (changed[field][1] + 1) % 5
    difference = (logits(network, changed) - before).abs().amax(dim=1)
    assert difference[1] > 1e-4 and difference[[0, 2, 3]].max() < 1e-5


def test_onnx_equals_pytorch_at_other_sizes_than_those_of_the_example(name, tmp_path):
    network = build(name)
    session = exported(network, tmp_path / "model.onnx", fields_of(name))
    shapes = {each.name: len(each.shape) for each in session.get_inputs()}
    assert shapes["country"] == 1 and shapes["age"] == 2
    for lengths, time in ((LENGTHS, 9), ([1], 1), ([3, 30], 31), ([2] * 11, 2)):
        inputs = inputs_of(name, lengths, time, seed=len(lengths))
        difference = session.run(["logits"], inputs)[0] - logits(network, inputs).numpy()
        assert np.abs(difference).max() < 1e-4


@pytest.mark.parametrize("changes", [{"hidden_size": 16}, {"layers": 2}, {"hidden_size": 24, "layers": 3}])
@pytest.mark.parametrize("name", ["lstm", "gru", "ensemble", "auto"])
def test_growing_networks_keep_their_logits(name, changes):
    config = NETWORKS[name] | ({"cell": "lstm", "layers": 1, "residual_layers": 0} if name == "auto" else {})
    network, inputs = build(name).double(), inputs_of(name, LENGTHS, 9)
    inputs = {key: values.astype(float) if values.dtype == np.float32 else values for key, values in inputs.items()}
    before = logits(network, inputs)
    changed = change_network(network, changed_config(config, changes, "structure[0]"), fields_of(name), 3, seed=0)
    assert changed.preserves
    torch.testing.assert_close(logits(changed.network.eval(), inputs), before, rtol=0, atol=1e-6)


def test_nodes_of_a_tree_have_the_static_fields_of_their_tree():
    """The loss of a batch is the mean of the losses of its trees alone, weighted by 1 and their labelled nodes."""
    network, inputs = build("tree"), inputs_of("tree", LENGTHS, 9)
    inputs["node_labels"] = np.random.default_rng(0).integers(0, 4, inputs["tree"].shape)
    labels = torch.arange(4) % 3

    def total(rows: list[int]) -> torch.Tensor:
        part = {key: torch.from_numpy(values[rows]) for key, values in inputs.items()}
        lengths = part.pop("lengths")
        with torch.no_grad():
            cross_entropy = torch.nn.functional.cross_entropy
            return network.training_loss(part, lengths, lengths.numpy(), labels[rows], cross_entropy).total

    inside = np.arange(9) < np.asarray(LENGTHS)[:, None]
    weights = 1 + (np.isin(inputs["node_labels"], [0, 2]) & inside).sum(axis=1)
    alone = np.array([float(total([row])) for row in range(4)])
    assert float(total([0, 1, 2, 3])) == pytest.approx((weights * alone).sum() / weights.sum(), abs=1e-5)


class Blind(SequenceNetwork):
    def __init__(self, fields, num_classes):
        super().__init__()
        self.output = torch.nn.Linear(1, num_classes)

    def forward(self, fields, lengths, host_lengths):
        return self.output(lengths[:, None].float())


def test_a_network_that_reads_no_static_fields_is_not_built_with_them():
    model = {"_target_": f"{__name__}.Blind", "members": 1}
    with pytest.raises(InputError, match="reads no static fields; set reads_static = True in the class"):
        build_classifier(model, fields_of("lstm"), 3)
    assert isinstance(build_classifier(model, TOKENS, 3), Blind)
