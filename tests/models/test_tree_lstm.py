"""Tree-LSTM: levels of a batch of trees give what a recursion over each node gives, in PyTorch and in ONNX."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models.checks import exported

from seqclf.config.command_keys import default_settings
from seqclf.models.ensemble import build_classifier
from seqclf.models.onnx.checks import TOLERANCE, logit_error
from seqclf.models.onnx.exporter import example_inputs
from seqclf.models.tree_lstm import DOUBLINGS, TreeLSTM, sort_nodes
from seqclf.training.network_checks import padding_error

FIELDS = [
    {"name": "tree", "kind": "category", "size": 20},
    {"name": "parents", "kind": "parents", "node_classes": [2, -1, 0]},
]
COMPOSITIONS = ["child_sum", "binary"]
SHAPES = {
    "one node": [-1],
    "chain": [1, 2, 3, 4, -1],
    "flat": [5, 5, 5, 5, 5, -1],
    "binary": [2, 2, 6, 5, 5, 6, -1],
    "late child": [4, 2, 4, 4, -1],
}


def classifier(**settings):
    torch.manual_seed(0)
    model = default_settings("model", "tree_lstm")
    return build_classifier({**model, "embedding_size": 6, "hidden_size": 7, **settings}, FIELDS, 3)


def batch(trees, extra=0, generator=None):
    """Ids, parents and lengths of trees, padded with wrong values to `extra` tokens more than the longest."""
    generator = generator or np.random.default_rng(0)
    lengths = np.array([len(tree) for tree in trees])
    time = int(lengths.max()) + extra
    parents = generator.integers(-1, time, (len(trees), time))
    for row, tree in enumerate(trees):
        parents[row, : len(tree)] = tree
    ids = generator.integers(0, 20, (len(trees), time))
    fields = {"tree": torch.from_numpy(ids), "parents": torch.from_numpy(parents)}
    return fields, torch.from_numpy(lengths), lengths


def recursion(encoder, tokens, parents):
    """State of every node of one tree, computed one node after another by the formulas of the paper."""
    size, states, children = encoder.size, [], [[] for _ in parents]
    for node, parent in enumerate(parents):
        if parent >= 0:
            children[parent].append(node)
    for node in range(len(parents)):
        own = encoder.input(tokens[node])
        gates, forget = own[: 3 * size], own[3 * size :]
        below = [states[child] for child in children[node]]
        if encoder.composition == "child_sum":
            gates = gates + encoder.cell.hidden(sum((state for state, _ in below), torch.zeros(size)))
            kept = sum(
                (torch.sigmoid(forget + encoder.cell.forget(state)) * cell for state, cell in below), torch.zeros(size)
            )
        else:
            pairs = [below[:1], below[1:]]
            state, cell = (
                [sum((entry[part] for entry in pair), torch.zeros(size)) for pair in pairs] for part in (0, 1)
            )
            added = encoder.cell.hidden(torch.cat(state))
            gates = gates + added[: 3 * size]
            forgets = added[3 * size :].view(2, size)
            kept = sum(torch.sigmoid(forget + forgets[side]) * cell[side] for side in (0, 1))
        entry, exit, update = gates.split(size)
        cell = torch.sigmoid(entry) * torch.tanh(update) + kept
        states.append((torch.sigmoid(exit) * torch.tanh(cell), cell))
    return torch.stack([state for state, _ in states])


@st.composite
def trees(draw):
    """Parents of a tree of 1 to 25 nodes: each node is below any later one."""
    count = draw(st.integers(1, 25))
    return [draw(st.integers(node + 1, count - 1)) for node in range(count - 1)] + [-1]


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_levels_give_the_states_of_a_recursion_over_the_nodes(composition):
    encoder = TreeLSTM(4, composition=composition, hidden_size=5).eval()

    @settings(max_examples=40, deadline=None)
    @given(st.lists(trees(), min_size=1, max_size=5), st.integers(0, 4))
    def check(forest, extra):
        fields, lengths, host = batch(forest, extra)
        tokens = torch.randn(*fields["parents"].shape, 4)
        for row, length in enumerate(host):
            tokens[row, length:] = float("nan")
        with torch.no_grad():
            outputs, output_lengths, _ = encoder(tokens, lengths, host, parents=fields["parents"])
            roots, states, positions = encoder.node_states(tokens, lengths, fields["parents"])
            assert output_lengths.tolist() == [1] * len(forest)
            torch.testing.assert_close(outputs[:, 0], roots, rtol=0, atol=0)
            by_position = dict(zip(positions.tolist(), states, strict=True))
            assert len(by_position) == host.sum()
            for row, tree in enumerate(forest):
                expected = recursion(encoder, tokens[row], tree)
                torch.testing.assert_close(outputs[row, 0], expected[-1], rtol=0, atol=1e-6)
                found = torch.stack([by_position[row * tokens.shape[1] + node] for node in range(len(tree))])
                torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)

    check()


@given(st.lists(trees(), min_size=1, max_size=4), st.integers(0, 5))
def test_nodes_are_sorted_by_their_distance_from_the_root(forest, extra):
    fields, lengths, _ = batch(forest, extra)
    time = fields["parents"].shape[1]
    for doublings in (None, DOUBLINGS):
        nodes = sort_nodes(fields["parents"], lengths, doublings)
        for row, tree in enumerate(forest):
            for node in range(time):
                distance, above = 0, node
                while node < len(tree) and tree[above] >= 0:
                    distance, above = distance + 1, tree[above]
                assert nodes.depths[row * time + node] == (distance if node < len(tree) else time)
        ordered = nodes.depths[nodes.order].tolist()
        assert ordered == sorted(ordered) and sorted(nodes.order.tolist()) == list(range(len(ordered)))
        assert int(nodes.is_inner.sum()) == len(
            {(row, up) for row, tree in enumerate(forest) for up in tree if up >= 0}
        )


@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_logits_ignore_padding_and_batch_mates(composition):
    assert padding_error(classifier(composition=composition), FIELDS) < 1e-6


def test_the_order_of_children_counts_for_binary_composition_alone():
    """Two leaves that change places, with their tokens."""
    ids = torch.tensor([[3, 4, 5], [4, 3, 5]])
    fields = {"tree": ids, "parents": torch.tensor([[2, 2, -1], [2, 2, -1]])}
    lengths = np.array([3, 3])
    for composition, equal in (("child_sum", True), ("binary", False)):
        with torch.no_grad():
            first, second = classifier(composition=composition).eval()(fields, torch.from_numpy(lengths), lengths)
        assert torch.allclose(first, second, atol=1e-6) == equal


@pytest.mark.parametrize("composition", ["child_sum", pytest.param("binary", marks=pytest.mark.soak)])
def test_the_exported_model_equals_torch_at_any_depth_and_width(composition, tmp_path):
    network = classifier(composition=composition, members=2 if composition == "binary" else 1).eval()
    session = exported(network, tmp_path / "model.onnx", FIELDS)
    assert {entry.name for entry in session.get_inputs()} == {"tree", "parents", "lengths"}
    forests = [[shape] for shape in SHAPES.values()] + [list(SHAPES.values())]
    forests += [[[*range(1, 2000), -1], [50] * 50 + [-1], [-1]]]
    generator = np.random.default_rng(1)
    for count, time in ((1, 1), (5, 40), (16, 90)):
        lengths = generator.integers(1, time + 1, count)
        inputs = example_inputs(FIELDS, lengths, time, generator)
        forests.append([row[:length].tolist() for row, length in zip(inputs["parents"], lengths, strict=True)])
    for extra, forest in enumerate(forests):
        fields, lengths, host = batch(forest, extra % 3)
        with torch.no_grad():
            expected = network(fields, lengths, host).numpy()
        inputs = {name: values.numpy() for name, values in fields.items()}
        (logits,) = session.run(["logits"], {**inputs, "lengths": host})
        assert logit_error(logits, expected) < TOLERANCE


def test_labelled_nodes_are_classified_too():
    """Tags 0 and 2 are the classes 2 and 0, tag 1 is none, and -1 is no tag."""
    fields, lengths, host = batch([SHAPES["binary"], SHAPES["one node"]], extra=2)
    fields["node_labels"] = torch.tensor([[0, 1, 2, -1, 0, 1, 2, 0, 0], [2, 0, 0, 0, 0, 0, 0, 0, 0]])
    network = classifier(node_loss=0.5).eval()  # without dropout
    labels, loss = torch.tensor([0, 1]), torch.nn.functional.cross_entropy
    result = network.training_loss(fields, lengths, host, labels, loss)
    torch.testing.assert_close(result.logits, network(fields, lengths, host))
    torch.testing.assert_close(result.loss, loss(result.logits, labels))
    tokens = network.embedding(fields)
    known = {(0, 0): 2, (0, 2): 0, (0, 4): 2, (0, 6): 0, (1, 0): 0}
    states = [recursion(network.encoder, tokens[row], fields["parents"][row, : host[row]].tolist()) for row in (0, 1)]
    logits = network.head(torch.stack([states[row][node] for row, node in known]))
    of_nodes = loss(logits, torch.tensor(list(known.values())), reduction="sum")
    torch.testing.assert_close(result.total, (2 * result.loss + 0.5 * of_nodes) / (2 + 0.5 * 5))  # of 2 trees, 5 nodes
    for without in (classifier(node_loss=0.0), classifier()):
        if without.node_loss:
            del fields["node_labels"]
        plain = without.eval().training_loss(fields, lengths, host, labels, loss)
        torch.testing.assert_close(plain.total, plain.loss)


def test_every_weight_gets_a_gradient():
    for composition in COMPOSITIONS:
        network = classifier(composition=composition, members=2)
        fields, lengths, host = batch(list(SHAPES.values()), extra=1)
        fields["node_labels"] = torch.zeros_like(fields["tree"])
        result = network.training_loss(fields, lengths, host, torch.zeros(5).long(), torch.nn.functional.cross_entropy)
        result.total.backward()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in network.parameters())
        moved = [name for name, weight in network.named_parameters() if not weight.grad.any()]
        assert moved == []
