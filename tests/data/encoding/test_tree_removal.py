"""Removal of nodes from encoded trees: the same as encoding the trees that are written without them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tree_texts import below, postorder, trees, without, written

from seqclf.data.encoding.encoders import encode, fit_encoders, make_encoders
from seqclf.data.field_spec import PARENTS
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION

WORDS, SOME_WORDS, NO_WORDS = ["a", "b", "MAX", "unseen"], ["", "a", "MAX"], [""]
FORMS = {
    "treebank": ({}, NO_WORDS),
    "treebank of two children": ({"binarize": True}, NO_WORDS),
    "expressions": ({"tags": "tokens"}, SOME_WORDS),
    "expressions of two children": ({"tags": "tokens", "binarize": True}, SOME_WORDS),
    "lists": ({}, SOME_WORDS),
    "lists of two children": ({"binarize": True}, SOME_WORDS),
}


def encoder_of(form, texts):
    options = FORMS[form][0]
    columns = ("tokens", "parents") if form.startswith("lists") else ("tree",)
    encoders = make_encoders([Field("tree", "tree", columns, options=options)])
    staged = pa.record_batch({"tree": pa.array(texts)})
    fit_encoders(encoders, lambda *names: iter([staged]))
    return encoders


def encoded(encoders, texts):
    return encode(encoders, pa.record_batch({"tree": pa.array(texts, pa.string())}), NO_TRUNCATION).sequences


def originals(encoder, sequences):
    """Number of the written node of each encoded one, None for a partial node. Both are in postorder."""
    texts = encoder.decode(sequences.fields)
    is_partial = [text.endswith("…") for text in texts]
    numbers = np.cumsum(~np.array(is_partial)) - 1
    return [None if partial else int(number) for partial, number in zip(is_partial, numbers, strict=True)]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=30, deadline=None)
@given(st.data())
def test_a_removed_node_leaves_the_tree_that_is_written_without_it(form, data):
    tree = data.draw(trees(WORDS, FORMS[form][1]))
    text = written(tree, form)
    encoders = encoder_of(form, [text, text.replace("unseen", "a")])
    sequences = encoded(encoders, [text])
    removal = encoders["tree"].token_removal(sequences)
    numbers, paths = originals(encoders["tree"], sequences), postorder(tree)
    rests = []
    for node in range(len(sequences.fields["tree"])):
        nodes = below(sequences.fields[PARENTS].tolist(), node)
        rests.append(without(tree, {paths[numbers[entry]] for entry in nodes if numbers[entry] is not None}))
    assert removal.leaves_nothing.tolist() == [rest is None for rest in rests]
    nodes = np.flatnonzero(~removal.leaves_nothing)
    copies = removal.without(np.zeros_like(nodes), nodes)
    expected = encoded(encoders, [written(rests[node], form) for node in nodes])
    assert copies.lengths.tolist() == expected.lengths.tolist()
    assert copies.parents.tolist() == expected.fields[PARENTS].tolist()
    left = encoders["tree"].without_tokens(sequences.fields, copies)
    assert left.tolist() == expected.fields["tree"].tolist()


@pytest.mark.parametrize("form", ["treebank", "expressions of two children"])
@settings(max_examples=10, deadline=None)
@given(st.data())
def test_trees_do_not_depend_on_the_trees_next_to_them(form, data):
    texts = [written(tree, form) for tree in data.draw(st.lists(trees(WORDS, FORMS[form][1]), min_size=1, max_size=4))]
    encoders = encoder_of(form, texts)
    together = encoded(encoders, texts)
    removal = encoders["tree"].token_removal(together)
    tokens = np.flatnonzero(~removal.leaves_nothing)[::-1]
    rows = np.searchsorted(together.offsets, tokens, side="right") - 1
    copies = removal.without(rows, tokens)
    for copy, (row, token) in enumerate(zip(rows, tokens, strict=True)):
        one = encoded(encoders, [texts[row]])
        alone = encoders["tree"].token_removal(one).without(np.array([0]), np.array([token - together.offsets[row]]))
        part = slice(copies.offsets[copy], copies.offsets[copy + 1])
        assert copies.parents[part].tolist() == alone.parents.tolist()
        assert (copies.kept[part] - together.offsets[row]).tolist() == alone.kept.tolist()


def test_partial_nodes_share_the_word_of_their_node():
    encoders = encoder_of("expressions of two children", ["(MAX (a) (b) (MIN (a) (b)) (a))", "((a) (b) (c))"])
    sequences = encoded(encoders, ["(MAX (a) (b) (MIN (a) (b)) (a))", "((a) (b) (c))"])
    removal = encoders["tree"].token_removal(sequences)
    texts = encoders["tree"].decode(sequences.fields)
    assert texts == ["a", "b", "MAX…", "a", "b", "MIN", "MAX…", "a", "MAX", "a", "b", "[NODE]…", "c", "[NODE]"]
    assert removal.owners.tolist() == [0, 1, 8, 3, 4, 5, 8, 7, 8, 9, 10, 13, 12, 13]
    assert np.flatnonzero(removal.is_silent).tolist() == [11, 13]


def test_deep_and_wide_trees_are_occluded():
    chain = "(x " * 2000 + "a" + ")" * 2000
    encoders = encoder_of("expressions", [chain])
    removal = encoders["tree"].token_removal(encoded(encoders, [chain]))
    copies = removal.without(np.zeros(2000, np.int64), np.arange(2000))
    assert copies.lengths.tolist() == [2000 - node for node in range(2000)]
    assert removal.leaves_nothing.nonzero()[0].tolist() == [2000]
    treebank = encoder_of("treebank", ["(t " * 2000 + "a" + ")" * 2000])
    sequences = encoded(treebank, ["(t " * 2000 + "a" + ")" * 2000])
    assert treebank["tree"].token_removal(sequences).leaves_nothing.all(), "all nodes are above the only word"
    wide = "(t " + " ".join(f"(t w{number})" for number in range(50)) + ")"
    star = treebank["tree"].token_removal(encoded(treebank, [wide]))
    copies = star.without(np.zeros(50, np.int64), np.arange(50))
    assert copies.lengths.tolist() == [50] * 50 and (copies.parents.reshape(50, 50)[:, :-1] == 49).all()
