"""early_exit.py: the answer stands early in generated sequences, and all ways are timed."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "early_exit.py"
specification = importlib.util.spec_from_file_location("early_exit", SCRIPT)
early_exit = importlib.util.module_from_spec(specification)
specification.loader.exec_module(early_exit)


def test_the_two_marks_of_a_sequence_stand_early_and_tell_its_class():
    table = early_exit.generate(40, seed=0)
    for tokens, label in zip(table["tokens"].to_pylist(), table["label"].to_pylist(), strict=True):
        marks = [index for index, token in enumerate(tokens) if token in early_exit.MARKS]
        first, second = (early_exit.MARKS.index(tokens[index]) for index in marks)
        assert label == f"c{2 * first + second}" and marks[1] < early_exit.EARLY
        assert early_exit.SHORTEST <= len(tokens) <= early_exit.LONGEST
    assert table.equals(early_exit.generate(40, seed=0)) and not table.equals(early_exit.generate(40, seed=1))


def test_tokens_needed_are_those_up_to_where_positive_rows_differ():
    negative = Counter({(1, 2, 3, 4): 3, (1, 5): 1})
    assert early_exit.tokens_needed(negative, [(1, 2, 9)], 0) == (3 * 3 + 1) / 14
    assert early_exit.tokens_needed(negative, [(1, 2, 9), (1,)], 0) == (3 * 3 + 2) / 14
    assert early_exit.tokens_needed(negative, [(1, 2, 9), (1,)], 1) == (3 * 2 + 2) / 14
    assert early_exit.tokens_needed(negative, [(7, 7)], 0) == 4 / 14, "a token of each row is read"


@pytest.mark.soak
def test_all_ways_are_timed():
    command = [sys.executable, SCRIPT, "--rows", "80", "--epochs", "1", "--rounds", "1"]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    result = json.loads(completed.stdout.splitlines()[-1])
    assert 0 < result["tokens read"] <= 1 and result["lstm, s"] > 0
