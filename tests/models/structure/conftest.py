"""Random networks, batches for them, and changes of their structure."""

import random
from typing import Any

import numpy as np
import torch

from seqclf.models.ensemble import build_classifier
from seqclf.models.onnx.export import example_inputs
from seqclf.models.structure.change_network import change_network
from seqclf.models.structure.options import changed_config
from seqclf.models.trees.tree_classifier import TreeClassifier

CLASSES = 4
POOLINGS = ("last", "mean", "max", "attention", "mean+max+last", "attention+max")
SEQUENCE = [
    {"name": "token", "kind": "category", "size": 12},
    {"name": "set", "kind": "bag", "size": 9, "combine": "max"},
    {"name": "value", "kind": "number", "width": 3},
]
TREE = [
    {"name": "tree", "kind": "category", "size": 12},
    {"name": "parents", "kind": "parents", "node_classes": [2, -1, 0]},
]
COMMON = {
    "_target_": "seqclf.models.classifier.SequenceClassifier",
    "dropout": 0.1,
    "token_dropout": 0.1,
    "number_noise": 0.1,
    "members": 1,
}
ENCODERS = {
    "recurrent": "seqclf.models.rnn.recurrent.Recurrent",
    "transformer": "seqclf.models.transformer.Transformer",
    "tree": "seqclf.models.trees.tree_lstm.TreeLSTM",
    "adaptive": "seqclf.models.rnn.recurrent.Recurrent",
}


class Case:
    """A network with the config that it was built from, whose structure changes again and again."""

    def __init__(self, config: dict[str, Any], dtype: torch.dtype = torch.float32, seed: int = 0):
        self.fields = TREE if config["encoder"]["_target_"] == ENCODERS["tree"] else SEQUENCE
        self.config, self.seed = config, seed
        torch.manual_seed(seed)
        self.network = build_classifier(config, self.fields, CLASSES).to(dtype).eval()
        self.disturb()

    def disturb(self) -> None:
        """Move all weights, as training does. What starts at 0 or 1 would hide mistakes."""
        with torch.no_grad():
            for weight in self.network.parameters():
                weight.add_(0.1 * torch.randn_like(weight))

    def logits(self) -> torch.Tensor:
        with torch.no_grad():
            return self.forward()

    def loss(self) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.forward(), torch.arange(4))

    def forward(self) -> torch.Tensor:
        lengths = np.array([9, 4, 1, 6])
        inputs = example_inputs(self.fields, lengths, 11, np.random.default_rng(1))
        dtype = next(self.network.parameters()).dtype
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
        fields = {name: values.to(dtype) if values.is_floating_point() else values for name, values in tensors.items()}
        return self.network(fields, torch.from_numpy(lengths), lengths)

    def change(self, **changes: Any) -> bool:
        """Change the structure, and return True if the network says that its function stays."""
        self.config = changed_config(self.config, changes, "structure")
        self.seed += 1
        changed = change_network(self.network, self.config, self.fields, CLASSES, self.seed)
        self.network = changed.network
        return changed.preserves


def random_config(drawn: random.Random, kind: str) -> dict[str, Any]:
    """Return the config of a small random network."""
    config = {**COMMON, "encoder": {"_target_": ENCODERS[kind]}, "embedding_size": drawn.randint(1, 5)}
    config |= {"pooling": drawn.choice(POOLINGS), "members": drawn.choice([1, 1, 2])}
    if kind == "tree":
        target = "seqclf.models.trees.tree_classifier.TreeClassifier"
        composition = drawn.choice(["child_sum", "binary"])
        of_tree = {"_target_": target, "node_loss": 1.0, "composition": composition, "hidden_size": drawn.randint(2, 6)}
        return {**{name: config[name] for name in config if name not in TreeClassifier.fixed_arguments}, **of_tree}
    if kind == "transformer":
        heads = drawn.randint(1, 2)
        of_blocks = {"heads": heads, "hidden_size": heads * drawn.choice([2, 4]), "layers": drawn.randint(1, 2)}
        return {**config, **of_blocks, "expansion": 2}
    config |= {"cell": drawn.choice(["lstm", "gru", "rnn"]), "hidden_size": drawn.randint(2, 7)}
    config |= {"layers": drawn.randint(1, 3), "bidirectional": drawn.random() < 0.5}
    config["layout"] = drawn.choice(["auto", "packed"])
    config["residual_layers"] = drawn.randint(0, config["layers"] - 1)
    if kind == "adaptive":
        target = "seqclf.models.adaptive.AdaptiveClassifier"
        return {**config, "_target_": target, "earliness": 0.1, "bidirectional": False, "members": 1}
    return config


def preserving_change(drawn: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Return a random change of a random network that leaves its function."""
    changes = [
        {"embedding_size": config["embedding_size"] + drawn.randint(1, 4)},
        {"token_dropout": drawn.random() / 2},
    ]
    if "layers" in config:
        changes.append({"layers": config["layers"] + drawn.randint(1, 2)})
    if config["encoder"]["_target_"] == ENCODERS["recurrent"] and config["hidden_size"] < 20:
        changes.append({"hidden_size": drawn.choice([2, 3]) * config["hidden_size"]})
    chosen = drawn.sample(changes, drawn.randint(1, len(changes)))
    return {name: value for change in chosen for name, value in change.items()}
