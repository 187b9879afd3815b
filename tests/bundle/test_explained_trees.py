"""Contributions of the nodes of trees: those of predicting trees in which a node has an unknown word."""

import copy
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from bundle.conftest import TREES
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tree_texts import node_at, postorder, written
from support.tree_texts import trees as tree_strategy

from seqclf.bundle.python_rows import PythonRows
from seqclf.data.encoding.encoders import load_encoders
from seqclf.data.schema.schema import Field
from seqclf.errors import InputError

WORDS = {  # of leaves and inner nodes
    "treebank": (["not", "good", "film", "unseen"], [""]),
    "expressions": (["1", "7", "MAX", "unseen"], ["", "MIN", "MAX"]),
}


def odds(result, label):
    return np.log(result["probabilities"][label]) - np.log(1 - result["probabilities"][label])


def changes(classifier, text, others):
    """Log-odds of the label that is predicted for `text`, minus those of the same label in each other text."""
    complete, *results = classifier.predict([text, *others])
    label = complete["prediction"]
    return np.array([odds(complete, label) - odds(result, label) for result in results])


def with_unknown_word(tree, path):
    word, children = tree
    if not path:
        return "unseen", children
    return word, [with_unknown_word(child, path[1:]) if n == path[0] else child for n, child in enumerate(children)]


@pytest.mark.parametrize("form", WORDS)
def test_contributions_equal_those_of_predicting_the_tree_with_an_unknown_word(trees, form):
    classifier = trees(form).classifier

    @settings(max_examples=6)
    @given(st.lists(tree_strategy(*WORDS[form]), min_size=1, max_size=3))
    def check(drawn):
        texts = [written(tree, form) for tree in drawn]
        for tree, text, explanation in zip(drawn, texts, classifier.explain(texts), strict=True):
            is_written = ~np.array([token.endswith("…") for token in explanation["tokens"]])
            paths = [path for path in postorder(tree) if node_at(tree, path)[0]]
            has_word = np.array([node_at(tree, path)[0] != "" for path in postorder(tree)])
            contributions = np.array(explanation["contributions"])[is_written]
            shapes = dict(zip(postorder(tree), np.flatnonzero(is_written), strict=True))
            single = [path for path in paths if len(node_at(tree, path)[1]) <= 2]  # no partial nodes repeat the word
            expected = changes(classifier, text, [written(with_unknown_word(tree, path), form) for path in single])
            actual = [explanation["contributions"][shapes[path]] for path in single]
            np.testing.assert_allclose(actual, expected, atol=2e-5)
            assert (contributions[~has_word] == 0).all(), "a node without a word says nothing"
            assert explanation["contributions_by_field"] == {}

    check()


def test_a_table_has_the_parents_that_rebuild_each_tree(trees):
    classifier, texts = trees("treebank").classifier, TREES["treebank"]
    table = classifier.explain(pd.DataFrame({"tree": [*texts, "(neg"]}))
    assert list(table) == ["id", "prediction", "probability", "position", "parent", "token", "contribution", "error"]
    for row, (text, explanation) in enumerate(zip(texts, classifier.explain(texts), strict=True), start=1):
        nodes = table[table["id"] == row]
        assert nodes["position"].tolist() == list(range(1, len(nodes) + 1))
        np.testing.assert_allclose(nodes["contribution"], explanation["contributions"], atol=1e-5)
        built = {}
        for node in nodes.itertuples():
            built[node.position] = f"(x {' '.join(built.get(node.position, [])) or node.token})"
            if not pd.isna(node.parent):
                built.setdefault(int(node.parent), []).append(built.pop(node.position))
        (rebuilt,) = built.values()
        np.testing.assert_allclose(classifier.predict_proba([rebuilt]), classifier.predict_proba([text]), atol=1e-6)
    refused = table[table["id"] == len(texts) + 1]
    assert len(refused) == 1 and refused["parent"].isna().all() and "never closed" in refused["error"].item()
    assert classifier.explain(["(neg"])[0]["parents"] is None


def reading(classifier, columns, **options):
    field, result = Field("tree", "tree", columns, options=options), copy.copy(classifier)
    result.encoders = load_encoders([field], lambda name: classifier.encoders[name].state())
    result.schema = replace(classifier.schema, fields=(field,))
    result.python_rows = PythonRows(result.schema, result.encoders)
    return result


def test_trees_given_as_lists_are_explained_like_bracketed_trees(trees):
    loaded = trees("expressions").classifier
    indexed = reading(loaded, ("words", "heads"))
    words, heads = ["4", "MAX", "7", "MIN", "5", "2"], [3, -1, 3, 1, 1, 1]
    rows = [{"tree": {"words": words, "heads": heads}}, {"tree": {"words": ["7"], "heads": [None]}}]
    explanation, single = indexed.explain(rows)
    (expected,) = reading(loaded, ("tree",), tags="tokens").explain(["(MAX (MIN (4) (7)) (5) (2))"])
    assert single["parents"] == [-1]
    for name in ("tokens", "parents"):
        assert explanation[name] == expected[name]
    np.testing.assert_allclose(explanation["contributions"], expected["contributions"], atol=2e-5)
    table = indexed.explain(pa.table({"words": [words], "heads": [heads]})).to_pydict()
    assert table["token"] == explanation["tokens"] and table["position"] == list(range(1, len(words) + 1))
    assert table["parent"] == [parent + 1 or None for parent in explanation["parents"]]


def test_trees_given_as_lists_are_read_from_python_rows(trees):
    indexed = reading(trees("expressions").classifier, ("words", "heads"))
    words, heads = ["4", "MAX", "7", "MIN", "5", "2"], [3, -1, 3, 1, 1, 1]
    row = {"tree": {"words": words, "heads": heads}}
    typed = indexed.parse('{"words": ["a", "b"], "heads": [null, 0]}')
    assert indexed.predict(typed) == indexed.predict({"tree": {"tokens": ["a", "b"], "parents": [-1, 0]}})
    assert indexed.predict([{"words": words, "heads": heads}]) == indexed.predict([row])
    assert indexed.predict(indexed.parse(json.dumps(row))) == indexed.predict(row)
    (misspelt,) = indexed.predict([{"words": words, "haeds": heads}])
    assert misspelt["error"] == "tree has no heads; give the lists words and heads"
    for wrong in ("a", ["a"], {"word": ["a"]}):
        refused = indexed.explain([{"tree": wrong}])[0]
        assert refused["error"] == "tree is not a mapping of the lists tokens and parents" and not refused["parents"]
    with pytest.raises(InputError, match=r'is not JSON .* write \{"words": \[…\], "heads": \[…\]\}$'):
        indexed.parse("[MAX 2 3 ]")
