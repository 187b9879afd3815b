"""Generated ListOps expressions follow the grammar and have the right values."""

from collections import Counter

import pyarrow.parquet as pq
import pytest

from seqclf.data.builtin.listops import OPERATORS, evaluate, write

LIMITS = {"operators": ["MIN", "MAX", "MED", "SM", "FIRST", "LAST"], "max_depth": 6, "max_args": 4, "max_length": 40}


@pytest.fixture(scope="module")
def splits(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listops")
    write(folder, rows={"train": 4000, "validation": 500, "test": 1000}, **LIMITS, seed=0)
    return {file.stem: pq.read_table(file).to_pylist() for file in folder.iterdir()}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("7", 7),
        ("[MAX 2 [FIRST 9 6 ] ]", 9),
        ("[MED 7 8 4 3 ]", 5),  # 5.5, rounded down
        ("[SM 6 5 9 0 ]", 0),
        ("[SM [MIN 4 2 ] [MED [SM 9 9 ] [MAX 1 3 ] 1 ] [LAST 1 [FIRST 7 0 ] ] ]", 2),  # 2 + median(8, 3, 1) + 7
    ],
)
def test_evaluate_agrees_with_values_computed_by_hand(expression, value):
    assert evaluate(expression.split()) == value


def test_no_expression_appears_twice_in_any_split(splits):
    assert {name: len(rows) for name, rows in splits.items()} == {"train": 4000, "validation": 500, "test": 1000}
    expressions = [row["expression"] for rows in splits.values() for row in rows]
    assert len(set(expressions)) == len(expressions) == 5500


def test_values_are_those_of_the_expressions(splits):
    rows = splits["train"]
    assert all(row["value"] == evaluate(row["expression"].split()) for row in rows)
    counts = Counter(row["value"] for row in rows)
    assert set(counts) == set(range(10)) and min(counts.values()) > 300


def test_depth_arguments_and_length_stay_within_their_limits(splits):
    depths, arguments, lengths = Counter(), Counter(), Counter()
    for row in splits["train"]:
        tokens, open_lists, deepest = row["expression"].split(" "), [0], 1
        for token in tokens:
            if token == "]":
                arguments[open_lists.pop()] += 1
                continue
            open_lists[-1] += 1
            deepest = max(deepest, len(open_lists))
            if token in OPERATORS:
                open_lists.append(0)
        assert open_lists == [1]
        depths[deepest] += 1
        lengths[len(tokens)] += 1
    assert set(depths) == set(range(2, LIMITS["max_depth"] + 1))
    assert set(arguments) == set(range(2, LIMITS["max_args"] + 1))
    assert (min(lengths), max(lengths)) == (4, LIMITS["max_length"])


def test_the_same_seed_gives_the_same_expressions(tmp_path):
    read = []
    for number, seed in enumerate([0, 0, 1]):
        folder = tmp_path / str(number)
        folder.mkdir()
        write(folder, rows={"train": 50}, **LIMITS, seed=seed)
        read.append(pq.read_table(folder / "train.parquet"))
    assert read[0].equals(read[1]) and not read[0].equals(read[2])


def test_only_the_operators_that_are_named_are_drawn(tmp_path):
    write(tmp_path, rows={"train": 300}, **{**LIMITS, "operators": ["MED", "SM"]}, seed=0)
    tokens = {
        token for row in pq.read_table(tmp_path / "train.parquet").to_pylist() for token in row["expression"].split()
    }
    assert tokens == {"[MED", "[SM", "]", *"0123456789"}
    for operators in (["MODE"], []):
        with pytest.raises(ValueError, match="must be some of MIN, MAX, MED, SM, FIRST, LAST"):
            write(tmp_path, rows={"train": 1}, **{**LIMITS, "operators": operators}, seed=0)
