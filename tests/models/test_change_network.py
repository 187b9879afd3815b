"""A change of the structure keeps the function of a recurrent network where it can, and says so."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqclf.models.change_network import change_network, changed_config
from seqclf.models.ensemble import build_classifier
from seqclf.models.onnx.exporter import example_inputs

EXACT, ROUNDING = 1e-11, 1e-6  # errors of logits in float64, and in float32
POOLINGS = ("last", "mean", "max", "attention", "mean+max+last", "attention+max")
FIELDS = [
    {"name": "token", "kind": "category", "size": 12},
    {"name": "set", "kind": "bag", "size": 9, "combine": "max"},
    {"name": "value", "kind": "number", "width": 3},
]
LSTM = {
    "_target_": "seqclf.models.classifier.EncoderClassifier",
    "encoder": {"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    **{"cell": "lstm", "embedding_size": 3, "hidden_size": 5, "layers": 2, "residual_layers": 0, "members": 1},
    **{"bidirectional": True, "pooling": "max", "layout": "auto", "dropout": 0.1},
}


class Case:
    def __init__(self, dtype: torch.dtype = torch.float32, seed: int = 0, **settings: Any):
        torch.manual_seed(seed)
        self.config: dict[str, Any] = {**LSTM, **settings}
        self.network = build_classifier(self.config, FIELDS, 4).to(dtype).eval()
        self.disturb()

    def disturb(self) -> None:
        """Move all weights, as training does. What starts at 0 or 1 would hide mistakes."""
        with torch.no_grad():
            for weight in self.network.parameters():
                weight.add_(0.1 * torch.randn_like(weight))

    @torch.no_grad()
    def logits(self) -> torch.Tensor:
        inputs = example_inputs(FIELDS, np.array([9, 4, 1, 6]), 11, np.random.default_rng(1))
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        lengths, dtype = tensors.pop("lengths"), next(self.network.parameters()).dtype
        fields = {name: values.to(dtype) if values.is_floating_point() else values for name, values in tensors.items()}
        return self.network(fields, lengths, lengths.numpy())

    def change(self, **changes: Any) -> bool:
        """Change the structure, and return True if the network says that its function stays."""
        self.config = changed_config(self.config, changes, "structure")
        self.network, _, preserves = change_network(self.network, self.config, FIELDS, 4, seed=1)
        return preserves


def random_case(drawn: random.Random, dtype: torch.dtype, **settings: Any) -> Case:
    layers = drawn.randint(1, 3)
    shape = {"cell": drawn.choice(["lstm", "gru", "rnn"]), "bidirectional": drawn.random() < 0.5, "layers": layers}
    rest = {"residual_layers": drawn.randint(0, layers - 1), "members": drawn.choice([1, 1, 2])}
    return Case(dtype, **{**shape, **rest, "pooling": drawn.choice(POOLINGS), **settings})


def preserving_change(drawn: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    wider = {"hidden_size": drawn.choice([2, 3]) * config["hidden_size"]}
    changes = [wider, {"layers": config["layers"] + drawn.randint(1, 2)}, {"dropout": drawn.random() / 2}]
    return {name: value for change in drawn.sample(changes, drawn.randint(1, 3)) for name, value in change.items()}


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_wider_and_deeper_networks_have_the_same_logits(seed):
    """In float64, where a mistake cannot hide behind rounding."""
    drawn = random.Random(seed)
    case = random_case(drawn, torch.float64, hidden_size=drawn.randint(2, 6))
    for _ in range(2):
        changes, before = preserving_change(drawn, case.config), case.logits()
        assert case.change(**changes), changes
        assert float((case.logits() - before).abs().max()) <= EXACT, changes
        case.disturb()


def test_rounding_of_a_wider_and_deeper_network_stays_small():
    for seed in range(10):
        drawn = random.Random(seed)
        case = random_case(drawn, torch.float32, hidden_size=16)
        before = case.logits()
        assert case.change(**preserving_change(drawn, case.config))
        assert float((case.logits() - before).abs().max()) <= ROUNDING


CHANGED = [  # changes, and the weights that stay the same parameters
    ({"layers": 1}, ["embedding", "encoder", "norm", "output"]),
    ({"hidden_size": 7}, ["embedding"]),
    ({"dropout": 0.5}, ["embedding", "encoder", "norm", "output"]),
]


@pytest.mark.parametrize(("changes", "kept"), CHANGED, ids=str)
def test_other_changes_keep_what_they_can_and_say_that_the_function_is_another(changes, kept):
    case = Case()
    before, logits = dict(case.network.named_parameters()), case.logits()
    assert case.change(**changes) == ("dropout" in changes) == torch.equal(case.logits(), logits)
    for name, weight in case.network.named_parameters():
        if name.startswith(tuple(kept)):
            assert weight is before[name], name


def test_copies_of_a_unit_are_read_by_other_weights_so_that_training_makes_them_different():
    case = Case(layers=1)
    case.change(hidden_size=10)
    for weight in (case.network.encoder.forward_layers[0].weight_hh_l0, case.network.output.weight):
        assert (weight[:, :5] / weight[:, 5:10] - 1).abs().median() > 0.1
