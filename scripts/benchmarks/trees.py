"""Time a Tree-LSTM: all nodes of a depth together against node by node, and its ONNX form against PyTorch.

    python scripts/benchmarks/trees.py [ROWS [HIDDEN_SIZE [ROUNDS]]]

Random binary trees of 2 to 35 leaves, as long as the sentences of a treebank. Rounds are interleaved, figures are
medians on one thread. Prints one JSON line. Quiet machines give higher ratios.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor

from seqclf import load_config
from seqclf.models.ensemble import build_classifier
from seqclf.models.onnx.exporter import export_onnx
from seqclf.models.tree_lstm import TreeLSTM

VOCABULARY = 1000
FIELDS = [
    {"name": "tree", "kind": "category", "size": VOCABULARY},
    {"name": "parents", "kind": "parents", "node_classes": []},
]


def binary_tree(leaves: int, generator: np.random.Generator) -> list[int]:
    """Return the parents of the nodes of a random binary tree, children before their parents."""
    if leaves == 1:
        return [-1]
    left = int(generator.integers(1, leaves))
    first, second = binary_tree(left, generator), binary_tree(leaves - left, generator)
    root = len(first) + len(second)
    shifted = [parent + len(first) if parent >= 0 else root for parent in second]
    return [parent if parent >= 0 else root for parent in first] + shifted + [-1]


def node_by_node(encoder: TreeLSTM, tokens: Tensor, parents: Tensor, lengths: np.ndarray) -> Tensor:
    """Return the states of the roots of child-sum trees, by a loop over the nodes."""
    size, roots = encoder.size, []
    for row, length in enumerate(lengths.tolist()):
        states: list[tuple[Tensor, Tensor]] = []
        children: list[list[int]] = [[] for _ in range(length)]
        for node in range(length):
            gates, forget = encoder.input(tokens[row, node]).split([3 * size, size])
            below = [states[child] for child in children[node]]
            kept = torch.zeros(size)
            if below:
                gates = gates + encoder.cell.hidden(torch.stack([state for state, _ in below]).sum(dim=0))
                for state, cell in below:
                    kept = kept + torch.sigmoid(forget + encoder.cell.forget(state)) * cell
            entry, exit, update = gates.split(size)
            cell = torch.sigmoid(entry) * torch.tanh(update) + kept
            states.append((torch.sigmoid(exit) * torch.tanh(cell), cell))
            if (parent := int(parents[row, node])) >= 0:
                children[parent].append(node)
        roots.append(states[-1][0])
    return torch.stack(roots)


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main(rows: int, hidden_size: int, rounds: int) -> None:
    """Print the medians of all ways."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    trees = [binary_tree(int(generator.integers(2, 36)), generator) for _ in range(rows)]
    lengths = np.array([len(tree) for tree in trees])
    parents = np.zeros((rows, lengths.max()), np.int64)
    for row, tree in enumerate(trees):
        parents[row, : len(tree)] = tree
    ids = generator.integers(0, VOCABULARY, parents.shape)
    model = {**load_config(["model=tree_lstm"])["model"], "hidden_size": hidden_size, "dropout": 0.0}
    network = build_classifier(model, FIELDS, 5).eval()
    fields = {"tree": torch.from_numpy(ids), "parents": torch.from_numpy(parents)}
    counts = torch.from_numpy(lengths)
    with tempfile.TemporaryDirectory() as folder:
        export_onnx(network, FIELDS, Path(folder) / "model.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(str(Path(folder) / "model.onnx"), options)
    inputs = {"tree": ids, "parents": parents, "lengths": lengths}

    def batched() -> Tensor:
        return network.encoder(network.embedding(fields), counts, lengths, parents=fields["parents"])[0][:, 0]

    def recursive() -> Tensor:
        return node_by_node(network.encoder, network.embedding(fields), fields["parents"], lengths)

    def predict() -> Tensor:
        with torch.inference_mode():
            return network(fields, counts, lengths)

    difference = float((batched() - recursive()).abs().max())
    error = float(np.abs(session.run(["logits"], inputs)[0] - predict().numpy()).max())
    ways = {
        "node by node, training s": lambda: recursive().sum().backward(),
        "by depth, training s": lambda: batched().sum().backward(),
        "torch, inference s": predict,
        "onnx, inference s": lambda: session.run(["logits"], inputs),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, work in ways.items():
            times[name].append(seconds(work))
    medians = {name: statistics.median(values) for name, values in times.items()}
    first, second, torch_s, onnx_s = medians.values()
    result = {
        "nodes": int(lengths.sum()),
        **{name: round(value, 5) for name, value in medians.items()},
        "times as fast": round(first / second, 1),
        "onnx over torch": round(onnx_s / torch_s, 2),
        "difference of states": difference,
        "difference of logits": error,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:4]]
    main(*given, *(64, 128, 5)[len(given) :])
