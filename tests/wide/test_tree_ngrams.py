"""N-grams of trees: pairs of a parent and a child, and words that follow one another in the text."""

import numpy as np
import onnxruntime
import pytest
import torch

from seqclf.batching.collate import pad
from seqclf.data.encoding.trees import parse
from seqclf.data.ragged import Ragged
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.export import example_inputs, export_onnx
from seqclf.wide.ngram_terms import terms_of_ngrams
from seqclf.wide.ngrams import Ngrams
from seqclf.wide.tree_nodes import compacted, placeholder

PARENTS = {"name": "parents", "kind": "parents", "node_classes": []}
WORDS = {"name": "word", "kind": "category", "size": 12}
EMPTY = 1  # the id of inner nodes without a word


def tree_rows(rng, count, is_phrase):
    """Random trees. The inner nodes of phrases have one id, and those of other trees have any."""
    lengths = rng.integers(1, 14, count)
    offsets = np.append(0, np.cumsum(lengths))
    parents = np.concatenate(
        [[*(rng.integers(node + 1, length) for node in range(length - 1)), -1] for length in lengths]
    )
    words = rng.integers(2, 12, offsets[-1])
    if is_phrase:
        above = parents + np.repeat(offsets[:-1], lengths)
        words[above[parents >= 0]] = EMPTY
    return Ragged(offsets, {"word": words.astype(np.int32), "parents": parents.astype(np.int32)})


@pytest.fixture(scope="module", params=[True, False], ids=["phrases", "words at all nodes"])
def fitted(request, labels_of, split_of):
    sequences = tree_rows(np.random.default_rng(0), 150, request.param)
    split = split_of(sequences, labels_of(sequences, 3))
    return split, Ngrams.fit(split, [WORDS, PARENTS], 3, 0).path


def test_pairs_decide_where_words_and_their_order_tell_nothing(split_of):
    """A node 2 is below a node 3, and a node 4 below a node 5, or the other way round."""
    rng = np.random.default_rng(1)
    texts = {0: "[0 [3 {} 2] {} [5 4 {}]]", 1: "[0 [3 {} 4] {} [5 2 {}]]"}
    labels = rng.integers(0, 2, 300)
    trees = [parse(texts[label].format(*rng.integers(6, 12, 3)), tagged_words=False) for label in labels]
    sequences = Ragged(
        np.append(0, np.cumsum([len(tree.parents) for tree in trees])),
        {
            "word": np.array([int(token or tag) for tree in trees for token, tag in zip(*tree[:2], strict=True)]),
            "parents": np.concatenate([tree.parents for tree in trees]),
        },
    )
    fields = [{**WORDS, "size": 12}, PARENTS]
    path, held_out, _ = Ngrams.fit(split_of(sequences, labels), fields, 2, 0)
    assert (held_out.argmax(1) == labels).all()
    assert [index.title for index in path.indices] == ["word", "parent > child"]
    texts = {"word": lambda ids: [f"w{value}" for value in ids]}
    found = {term.text for of_class in terms_of_ngrams(path, sequences, labels, texts) for term in of_class}
    assert {"parent > child: w3>w2", "parent > child: w5>w2", "parent > child: w5>w4"} <= found


def test_the_report_names_the_place_above_a_root(split_of):
    """The class of a tree is the word of its root."""
    labels = np.arange(200) % 2
    words = np.stack([np.random.default_rng(1).integers(6, 12, 200), 2 + labels], axis=1)
    sequences = Ragged(np.arange(0, 401, 2), {"word": words.ravel(), "parents": np.tile([1, -1], 200)})
    path = Ngrams.fit(split_of(sequences, labels), [WORDS, PARENTS], 2, 0).path
    names = {"word": lambda ids: [f"w{value}" for value in ids]}
    found = [{term.text for term in of_class} for of_class in terms_of_ngrams(path, sequences, labels, names)]
    assert "parent > child: <root>>w2" in found[0] and "parent > child: <root>>w3" in found[1]


def test_ngrams_of_phrases_are_those_of_the_words_in_the_text(split_of, labels_of, logits_of):
    sequences = tree_rows(np.random.default_rng(2), 150, True)
    labels = labels_of(sequences, 3)
    is_word = sequences.fields["word"] != EMPTY
    offsets = np.append(0, np.cumsum(is_word))[sequences.offsets]
    text = Ragged(offsets, {"word": sequences.fields["word"][is_word]})
    of_trees = Ngrams.fit(split_of(sequences, labels), [WORDS, PARENTS], 3, 0)
    of_text = Ngrams.fit(split_of(text, labels), [WORDS], 3, 0)
    np.testing.assert_array_equal(of_trees.held_out, of_text.held_out)
    torch.testing.assert_close(logits_of(of_trees.path, sequences), logits_of(of_text.path, text), rtol=0, atol=2e-6)


def test_inner_nodes_of_one_id_hold_no_word():
    above = np.array([2, 4, 4, 4, -1])
    assert placeholder(np.array([5, 6, 1, 7, 1]), above) == 1
    assert placeholder(np.array([5, 6, 1, 1, 1]), above) is None  # a leaf has the id too
    assert placeholder(np.array([5, 6, 1, 7, 2]), above) is None  # operators
    assert placeholder(np.array([5, 6]), np.array([-1, -1])) is None  # trees of one leaf


@pytest.mark.parametrize("shape", [(4, 9), (2, 3, 5), (1, 1)])
def test_tokens_that_stay_move_to_the_front(shape):
    rng = np.random.default_rng(3)
    ids, stays = rng.integers(1, 9, shape), rng.random(shape) < 0.6
    found = compacted(torch.from_numpy(ids), torch.from_numpy(stays)).numpy()
    for row, mask, moved in zip(*(values.reshape(-1, shape[-1]) for values in (ids, stays, found)), strict=True):
        assert moved.tolist() == [*row[mask], *[0] * (~mask).sum()]


def test_pairs_of_a_row_are_those_of_a_plain_loop(split_of, labels_of):
    sequences = tree_rows(np.random.default_rng(4), 60, False)
    split = split_of(sequences, labels_of(sequences, 2))
    path = Ngrams.fit(split, [WORDS, PARENTS], 2, 0).path
    for row in (0, 7, 31):
        first, last = sequences.offsets[row], sequences.offsets[row + 1]
        words, parents = sequences.fields["word"][first:last], sequences.fields["parents"][first:last]
        pairs = [(words[parent] if parent >= 0 else 12, word) for word, parent in zip(words, parents, strict=True)]
        index = path.indices[1]
        fields, lengths = pad(sequences, np.array([row]))
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        ((numbers, _),), _ = index(tensors, torch.from_numpy(lengths), None)
        found = [index.ids_of(index.gram(0, number)[0]) for number in numbers[0].tolist()]
        assert found == pairs


def test_padding_and_batch_mates_reach_no_logit(fitted, logits_of):
    split, path = fitted
    lengths = split.sequences.lengths
    alone = torch.cat([logits_of(path, split.sequences, [row]) for row in range(len(lengths))])
    padded, _ = pad(split.sequences, np.arange(len(lengths)), np.array([20]))
    for form in (path, path.onnx_form()):
        for value in (0, EMPTY, 5, -7, 10**6):
            for values in padded.values():
                values[np.arange(values.shape[1]) >= lengths[:, None]] = value
            fields = {name: torch.from_numpy(values) for name, values in padded.items()}
            with torch.inference_mode():
                torch.testing.assert_close(form(fields, torch.from_numpy(lengths)), alone, rtol=2e-6, atol=2e-6)


def test_rows_whose_nodes_are_all_left_out_have_finite_logits(fitted):
    _, path = fitted
    fields = {"word": torch.tensor([[EMPTY, EMPTY], [3, EMPTY]]), "parents": torch.tensor([[1, -1], [1, -1]])}
    lengths = torch.tensor([2, 2])
    assert path(fields, lengths).isfinite().all()
    torch.testing.assert_close(path.onnx_form()(fields, lengths), path(fields, lengths), rtol=2e-6, atol=2e-6)


def test_a_path_of_trees_needs_whole_rows(fitted):
    assert fitted[1].chunk_states() is None


def test_an_empty_path_takes_the_buffers_of_a_fitted_one(fitted, logits_of):
    split, path = fitted
    again = Ngrams([WORDS, PARENTS], 3, **path.settings())
    again.load_state_dict(path.state_dict())
    assert torch.equal(logits_of(again, split.sequences), logits_of(path, split.sequences))


def test_settings_of_a_path_without_trees_name_nothing_of_trees(split_of, labels_of, rows_of):
    fields = [WORDS, {**WORDS, "name": "other"}]
    sequences = rows_of(np.random.default_rng(5), 40, fields)
    streams = Ngrams.fit(split_of(sequences, labels_of(sequences, 2)), fields, 2, 0).path.settings()["streams"]
    assert {key for stream in streams for key in stream} == {"parts", "pairs", "grams"}
    assert {key for stream in streams for part in stream["parts"] for key in part} == {"field", "size", "channel"}


class Network(SequenceNetwork):
    def __init__(self, path):
        super().__init__()
        self.path = path.onnx_form()

    def forward(self, fields, lengths, host_lengths):
        return self.path(fields, lengths)


def test_onnx_takes_trees_of_any_number_and_size(fitted, tmp_path):
    _, path = fitted
    fields = [WORDS, PARENTS]
    export_onnx(Network(path), fields, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    inputs_of_graph = {entry.name for entry in session.get_inputs()}
    rng = np.random.default_rng(6)
    for rows, time in ((1, 1), (2, 9), (7, 30)):
        inputs = example_inputs(fields, rng.integers(1, time + 1, rows), time, rng)
        (found,) = session.run(None, {name: values for name, values in inputs.items() if name in inputs_of_graph})
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        expected = path(tensors, tensors.pop("lengths"))
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)
