"""Parsed nodes, parents and tags agree with a recursive reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.encoding.trees import MalformedError, parse
from seqclf.data.prepare_data import prepare

WORDS = st.sampled_from(["The", "Rock", "is", "'s", "21st", "-", "é"])
TAGS = st.sampled_from(["0", "1", "2"])
TREES = st.recursive(
    st.tuples(TAGS, WORDS), lambda below: st.tuples(TAGS, st.lists(below, min_size=2, max_size=4)), max_leaves=12
)


def written(tree):
    tag, content = tree
    inside = content if isinstance(content, str) else " ".join(written(child) for child in content)
    return f"({tag} {inside})"


def nodes(tree):
    """(token, tag, children) of the root and of every node below, children first."""
    tag, content = tree
    below = [] if isinstance(content, str) else [nodes(child) for child in content]
    return [
        *(node for child in below for node in child),
        (content if isinstance(content, str) else "", tag, len(below)),
    ]


@given(TREES)
def test_nodes_come_children_first_with_their_words_and_tags(tree):
    parsed = parse(written(tree))
    assert list(zip(parsed.tokens, parsed.tags, strict=True)) == [(token, tag) for token, tag, _ in nodes(tree)]


@given(TREES)
def test_parents_come_after_their_children_and_have_the_right_number_of_them(tree):
    parsed = parse(written(tree))
    assert parsed.parents[-1] == -1 and (parsed.parents[:-1] > range(len(parsed.parents) - 1)).all()
    counts = [int((parsed.parents == node).sum()) for node in range(len(parsed.tokens))]
    assert counts == [children for _, _, children in nodes(tree)]


def value(tree, node):
    """Value of a ListOps expression, from nodes and parents alone."""
    children = [value(tree, child) for child in range(node) if tree.parents[child] == node]
    operators = {"MAX": max, "MIN": min, "SM": lambda numbers: sum(numbers) % 10}
    return operators[tree.tags[node]](children) if children else int(tree.tokens[node])


def test_expressions_keep_their_operators():
    tree = parse("[MAX 2 [MIN 4 [SM 9 8 ] ] [SM 5 ] ]", tagged_words=False)
    assert value(tree, len(tree.tokens) - 1) == 5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(2 x", r"'\(' is never closed"),
        ("(2 x))", r"'\)' closes nothing"),
        ("[MAX 3 )", r"'\)' cannot close '\['; balance the brackets"),
        ("(2 x) (3 y)", "has 2 roots"),
        ("(2 ())", "a node is empty"),
        ("", "has 0 roots"),
    ],
)
def test_malformed_trees_are_named_with_a_reason(text, reason):
    with pytest.raises(MalformedError, match=f"^is not a tree: .*{reason}"):
        parse(text)


def test_deep_trees_need_no_recursion():
    depth = 20_000
    tree = parse("(1 x " * depth + "(0 end)" + ")" * depth)
    assert len(tree.tokens) == 2 * depth + 1 and tree.tags[-1] == "1"


def test_a_prepared_tree_has_tokens_parents_and_labels(options, tmp_path):
    texts = ["(1 (0 bad) (2 film))", "(2 (2 good) (1 (1 old) (1 film)))"] * 10
    path = write(tmp_path / "t.csv", {"tree": [*texts, "(1 (0 bad)"], "y": ["n", "p"] * 10 + ["n"]})
    dataset = prepare(options(train=path, label="y", fields={"tree": "tree"}))
    split = dataset.splits["train"]
    encoder = dataset.encoders["tree"]
    row = int(split.labels.argmax())
    tokens = slice(split.sequences.offsets[row], split.sequences.offsets[row + 1])
    fields = {name: values[tokens].tolist() for name, values in split.sequences.fields.items()}
    assert [encoder.tokens[id - 1] for id in fields["tree"]] == ["good", "old", "film", "[NODE]", "[NODE]"]
    assert fields["parents"] == [4, 3, 3, 4, -1]
    assert [encoder.tags[label] for label in fields["node_labels"]] == ["2", "1", "1", "1", "2"]
    assert "never closed" in (dataset.folder / "quarantine.jsonl").read_text()
