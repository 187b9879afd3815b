"""Trees as lists of tokens and parents are the trees that brackets write."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.untrained_task import data_options

from seqclf.data.encoding.trees import MalformedError, parse, parse_indexed
from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError


@st.composite
def shuffled_trees(draw):
    """Lists of a tree in any order of the nodes, and its bracketed text. Tokens are those of leaves."""
    count = draw(st.integers(1, 14))
    parents = [draw(st.integers(0, node - 1)) for node in range(1, count)]
    children = [[child for child, parent in enumerate(parents, start=1) if parent == node] for node in range(count)]
    places = draw(st.permutations(range(count)))

    def written(node):
        below = sorted(children[node], key=lambda child: places[child])  # children keep their order
        return f"(t{node} {' '.join(map(written, below)) if below else f'w{node}'})"

    lists = {"tokens": [""] * count, "parents": [-1] * count, "labels": [""] * count}
    for node, place in enumerate(places):
        lists["tokens"][place] = "" if children[node] else f"w{node}"
        lists["parents"][place] = -1 if node == 0 else places[parents[node - 1]]
        lists["labels"][place] = f"t{node}"
    return lists, written(0)


@given(shuffled_trees())
def test_lists_in_any_order_are_the_tree_of_its_brackets(tree):
    lists, text = tree
    indexed, bracketed = parse_indexed(json.dumps(lists)), parse(text)
    assert indexed.tokens == bracketed.tokens and indexed.tags == bracketed.tags
    assert indexed.parents.tolist() == bracketed.parents.tolist()


@pytest.mark.parametrize(
    ("tokens", "parents", "reason"),
    [
        (["a", "b"], [-1, 2], "the parent of node 1 is 2, of 2 nodes"),
        (["a", "b"], [-1, None], "nodes 0 and 1 have no parent"),
        (["a", "b", "c"], [-1, 2, 1], "node 1 is not below the root but in a cycle or below it"),
        (["It", "is", "good"], [2, 0, 2], "no node is the root; count from 0, and give the root -1"),
        (["a", "b"], [-1], "has 2 tokens, 1 parents; give as many of each"),
        ("a b", [-1], "its tokens are the text 'a b'; write lists as"),
        (["a", "b"], [-1, 0.6], "the parent of node 1 is 0.6; give whole numbers"),
    ],
)
def test_lists_that_are_no_tree_are_refused_with_the_reason(tokens, parents, reason):
    with pytest.raises(MalformedError, match=f"^is not a tree: {reason}"):
        parse_indexed(json.dumps({"tokens": tokens, "parents": parents}))


@pytest.mark.parametrize("root", [-1, -1.0, "-1", " -1. ", None, float("nan"), "nan", "NA", ""])
@pytest.mark.parametrize("parent", [0, 0.0, "0", "+0", "0.0"])
def test_parents_are_whole_numbers_however_they_are_written(root, parent):
    tree = parse_indexed(json.dumps({"tokens": ["a", "b"], "parents": [root, parent]}))
    assert tree.tokens == ["b", "a"] and tree.parents.tolist() == [1, -1]


def test_deep_and_wide_trees_are_read():
    chain = parse_indexed(json.dumps({"tokens": ["a"] * 2000, "parents": [*range(1, 2000), -1]}))
    assert chain.parents.tolist() == [*range(1, 2000), -1]
    star = parse_indexed(json.dumps({"tokens": ["a"] * 51, "parents": [-1] + [0] * 50}))
    assert star.parents.tolist() == [50] * 50 + [-1]


def test_lists_may_be_texts_with_a_separator(tmp_path):
    rows = "label,words,heads\n" + "pos,not bad,1 -1\nneg,end,-1\n" * 10 + "neg,a b,-1 x\n"
    (tmp_path / "train.csv").write_text(rows)
    fields = {"tree": {"kind": "tree", "columns": ["words", "heads"]}}
    train = {"train": str(tmp_path / "train.csv"), "list_separator": " ", "on_bad_row": "drop"}
    dataset = prepare(data_options(tmp_path / "cache", **train, fields=fields))
    assert [report.refused for report in dataset.report.values()].count(1) == 1
    sequences = dataset.splits["train"].sequences
    trees = np.split(sequences.fields["parents"], sequences.offsets[1:-1])
    assert {tuple(tree.tolist()) for tree in trees} == {(1, -1), (-1,)}
    assert sorted(dataset.encoders["tree"].tokens) == ["bad", "end", "not"]


INDEXED = {"tree": {"kind": "tree", "columns": ["words", "heads"]}}


@pytest.mark.parametrize(
    ("kind", "root", "heads", "parent"),
    [
        (pa.string(), "-1", ["x", "0"], "the parent of node 0 is 'x'"),
        (pa.float64(), -1, [-1, 0.6], "the parent of node 1 is '0.6'"),
        (pa.uint64(), None, [None, 2**64 - 1], "the parent of node 1 is 18446744073709551615, of 2 nodes"),
    ],
)
def test_tables_refuse_rows_whose_parents_are_not_indices(tmp_path, kind, root, heads, parent):
    words = [["good"], ["bad"]] * 10 + [["good", "bad"]]
    table = {
        "words": words,
        "heads": pa.array([[root]] * 20 + [heads], pa.list_(kind)),
        "label": ["a", "b"] * 10 + ["a"],
    }
    pq.write_table(pa.table(table), tmp_path / "train.parquet")
    train = {"train": str(tmp_path / "train.parquet"), "fields": INDEXED, "on_bad_row": "quarantine"}
    dataset = prepare(data_options(tmp_path / "cache", **train))
    (line,) = (dataset.folder / "quarantine.jsonl").read_text().splitlines()
    assert parent in json.loads(line)["reason"] and json.loads(line)["row"] == 21
    with pytest.raises(InputError, match=r"the parent of node 0 is 'good'; give whole numbers.*\(all 21 rows"):
        swapped = {"tree": {"kind": "tree", "columns": ["heads", "words"]}}
        prepare(data_options(tmp_path / "swapped", **{**train, "fields": swapped}))


def test_columns_of_lists_are_prepared_as_bracketed_text_is(tmp_path):
    rows = [
        ("(pos (neg not) (pos bad))", ["not", "bad", ""], [2, 2, -1], ["neg", "pos", "pos"]),
        ("(neg (pos good) (neg end))", ["", "good", "end"], [None, 0, 0], ["neg", "pos", "neg"]),
    ] * 10
    table = pa.table(
        {
            "tree": [row[0] for row in rows] + ["(x"],
            "words": [row[1] for row in rows] + [["a", "b"]],
            "heads": pa.array([row[2] for row in rows] + [[1, 0]], pa.list_(pa.int32())),
            "tags": [row[3] for row in rows] + [["x", "x"]],
            "label": ["pos", "neg"] * 10 + ["neg"],
        }
    )
    pq.write_table(table, tmp_path / "train.parquet")
    kinds = {"bracketed": {"kind": "tree", "column": "tree"}}
    kinds["indexed"] = {"kind": "tree", "columns": ["words", "heads", "tags"]}
    train = str(tmp_path / "train.parquet")
    datasets = [
        prepare(data_options(tmp_path / name, train=train, fields={"tree": kind}, infer=False, on_bad_row="drop"))
        for name, kind in kinds.items()
    ]
    first, second = (dataset.splits["train"].sequences for dataset in datasets)
    assert datasets[0].digest == datasets[1].digest
    for name in ("tree", "parents", "node_labels"):
        np.testing.assert_array_equal(first.fields[name], second.fields[name])
    assert [dataset.report["train"].refused for dataset in datasets] == [1, 1]
    encoder = datasets[1].encoders["tree"]
    lists = {"words": ["not", "bad", ""], "heads": [2, 2, -1]}
    assert json.loads(encoder.from_python({**lists, "tags": ["a"] * 3}))["labels"] == ["a"] * 3
    assert json.loads(encoder.from_python(lists))["parents"][2] == -1
