"""Exports networks and prints a digest of each file. `python -m models.export_digests FOLDER KIND…` in `tests`."""

import hashlib
import sys
from pathlib import Path

import torch
from models.conftest import FIELDS, PLAIN

from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.ensemble import Ensemble
from seqclf.models.onnx.exporter import export_onnx, export_step

TREE = [
    {"name": "tree", "kind": "category", "size": 20},
    {"name": "parents", "kind": "parents", "node_classes": [2, -1, 0]},
]
TREE_LSTM = {"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}}
TRANSFORMER = {"encoder": {"_target_": "seqclf.models.transformer.Transformer"}, "heads": 2, "expansion": 2}
NOT_RECURRENT = ("cell", "bidirectional", "layout")
KINDS = ("lstm", "gru", "adaptive", "tree_lstm", "binary_tree_lstm", "transformer", "ensemble")


def network(kind):
    torch.manual_seed(0)
    shared = {name: value for name, value in PLAIN.items() if name not in NOT_RECURRENT}
    if kind == "adaptive":
        return AdaptiveClassifier(FIELDS, 4, earliness=0.1, **{**PLAIN, "pooling": "max+mean"}).eval(), FIELDS
    if kind.endswith("tree_lstm"):
        composition = "binary" if kind.startswith("binary") else "child_sum"
        del shared["layers"]
        return EncoderClassifier(TREE, 3, **{**shared, **TREE_LSTM, "composition": composition}).eval(), TREE
    if kind == "transformer":
        return EncoderClassifier(FIELDS, 4, **{**shared, **TRANSFORMER}).eval(), FIELDS
    if kind == "ensemble":
        return Ensemble([EncoderClassifier(FIELDS, 4, **PLAIN) for _ in range(2)]).eval(), FIELDS
    return EncoderClassifier(FIELDS, 4, **{**PLAIN, "cell": kind, "bidirectional": True}).eval(), FIELDS


def digests(kind, folder):
    """Export a network of `kind` and its step, if it has one, to `folder`. Return a digest of each file."""
    model, fields = network(kind)
    paths = [folder / "model.onnx", folder / "step.onnx"]
    export_onnx(model, fields, paths[0])
    written = paths if export_step(model, fields, paths[1]) else paths[:1]
    return [hashlib.sha256(path.read_bytes()).hexdigest() for path in written]


if __name__ == "__main__":
    for kind in sys.argv[2:]:
        print(kind, *digests(kind, Path(sys.argv[1])))
