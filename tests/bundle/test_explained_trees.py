"""Contributions of the nodes of trees: those of predicting trees in which a node has an unknown word."""

import copy
import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import yaml
from bundle.conftest import TREES
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tree_texts import node_at, postorder, written
from support.tree_texts import trees as tree_strategy

from seqclf.batching.collate import pad
from seqclf.bundle.occlusion import log_odds, occlude
from seqclf.config.documentation import CONF
from seqclf.data.encoding.encoders import encode, fit_encoders, input_specs, load_encoders, make_encoders
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.errors import InputError
from seqclf.models.ensemble import build_classifier
from seqclf.predict import explain_text

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


def test_trees_of_any_shape_are_explained(trees):
    for form in WORDS:
        classifier = trees(form).classifier
        wide = "(x " + " ".join(f"(pos w{number})" for number in range(50)) + ")"
        *large, single = classifier.explain(["(x " * 300 + "a" + ")" * 300, wide, "never-seen"])
        for explanation in large:
            assert np.isfinite(explanation["contributions"]).all()
        assert single["contributions"] == pytest.approx([0.0], abs=1e-6), "it is unknown already"


def test_the_command_writes_the_parents_of_a_tree(trees):
    result = explain_text(trees("treebank").classifier, "(pos (neg not) (pos (neg bad) (pos film)))", by_field=True)
    assert result.to_dict()["parents"] == [4, 3, 3, 4, -1] and result.contributions_by_field == {}


def test_the_word_that_decides_has_the_largest_contribution_of_all_words():
    """A tree is positive if it holds the word key anywhere. Trained by hand, without an export."""
    generator = np.random.default_rng(0)

    def tree(has_key):
        words = generator.choice(["a", "b", "c"], generator.integers(3, 9)).tolist()
        words[generator.integers(len(words))] = "key" if has_key else "d"
        nodes = [(word, []) for word in words]
        while len(nodes) > 1:
            left = int(generator.integers(len(nodes) - 1))
            nodes[left : left + 2] = [("", nodes[left : left + 2])]
        return written(nodes[0], "treebank")

    labels = torch.arange(120) % 2
    columns = pa.record_batch({"tree": pa.array([tree(label) for label in labels.tolist()])})
    encoders = make_encoders([Field("tree", "tree", ("tree",))])
    fit_encoders(encoders, lambda *names: iter([columns]))
    sequences = encode(encoders, columns, NO_TRUNCATION).sequences
    torch.manual_seed(0)
    settings_of_model = yaml.safe_load((CONF / "model" / "tree_lstm.yaml").read_text())
    settings_of_model |= {"embedding_size": 8, "hidden_size": 8, "dropout": 0.0, "token_dropout": 0.0}
    model = build_classifier(settings_of_model, input_specs(encoders, ["no", "yes"]), 2)

    def logits(sequences, rows):
        fields, lengths = pad(sequences, rows)
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        return model(tensors, torch.from_numpy(lengths), lengths)

    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(25):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits(sequences, np.arange(120)), labels).backward()
        optimizer.step()
    with torch.no_grad():
        assert (logits(sequences, np.arange(120)).argmax(dim=1) == labels).all()

        def score(copies, rows):
            return log_odds(logits(copies, np.arange(len(copies))).double().numpy(), labels.numpy()[rows])

        contributions = occlude(encoders, sequences, score, by_field=False).tokens
    texts = np.array(encoders["tree"].decode(sequences.fields))
    for row in np.flatnonzero(labels.numpy()):
        nodes = np.arange(*sequences.offsets[row : row + 2])
        words = nodes[texts[nodes] != "[NODE]"]
        assert texts[words[contributions[words].argmax()]] == "key"


def reading(classifier, columns, **options):
    """The classifier, with a tree field of these columns and options and the same vocabulary."""
    field, result = Field("tree", "tree", columns, options=options), copy.copy(classifier)
    result.encoders = load_encoders([field], lambda name: classifier.encoders[name].state())
    result.schema = replace(classifier.schema, fields=(field,))
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
    assert misspelt["error"] == "has the field haeds; the fields of the model are tree (words, heads)"
    for wrong in ("a", ["a"], {"word": ["a"]}):
        refused = indexed.explain([{"tree": wrong}])[0]
        assert refused["error"] == "tree is not a mapping of the lists tokens and parents" and not refused["parents"]
    with pytest.raises(InputError, match=r'is not JSON .* write \{"words": \[…\], "heads": \[…\]\}$'):
        indexed.parse("[MAX 2 3 ]")
