"""Trees as lists of tokens and parents, in memory: tables and Python values give the same predictions and errors."""

import re

import numpy as np
import pandas as pd
import pytest
from support.untrained_task import export_table

from seqclf.errors import InputError

WORDS = ["good", "bad"]


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp("indexed")
    table = {"words": [WORDS, ["bad"]] * 10, "heads": [[-1, 0], [-1]] * 10, "label": ["a", "b"] * 10}
    return export_table(folder, table, fields={"tree": {"kind": "tree", "columns": ["words", "heads"]}})


@pytest.mark.parametrize(
    ("heads", "refused"),
    [
        ([-1.0, 0.0], None),
        ([np.nan, 0.0], None),
        ([None, 0], None),
        ([pd.NA, 0], None),
        (["-1", "0"], None),
        (["-1.0", "0."], None),
        (np.array([-1, 0]), None),
        (np.array([np.nan, 0], np.float32), None),
        (["x", "0"], "the parent of node 0 is 'x'"),
        ([np.inf, 0.0], "the parent of node 0 is"),
        ([-1.0, 0.6], "the parent of node 1 is"),
        (np.array([False, True]), "the parent of node 0 is"),
        ([], "has 2 tokens, 0 parents"),
    ],
)
def test_a_frame_gives_the_predictions_of_its_records(classifier, heads, refused):
    frame = pd.DataFrame({"words": [WORDS, WORDS], "heads": pd.Series([heads, heads], dtype=object)})
    if refused is not None:
        for data in (frame, frame.to_dict("records")):
            with pytest.raises(InputError, match=re.escape(refused)):  # as all rows are
                classifier.predict(data)
        return
    table, (row, _) = classifier.predict(frame), classifier.predict(frame.to_dict("records"))
    (expected,) = classifier.predict([{"words": WORDS, "heads": [-1, 0]}])
    assert row == expected and table["error"].isna().all()
    assert table["probability"][0] == pytest.approx(row["probability"], abs=1e-6)


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"words": "ab", "heads": [-1, 0]}, "tree has words that are 'ab', not a list; give one entry per node"),
        ({"words": WORDS, "heads": b"ab"}, "tree has heads that are b'ab', not a list; give one entry per node"),
        ({"words": WORDS}, "tree has no heads; give the lists words and heads"),
        ({"heads": [-1]}, "tree has no words; give the lists words and heads"),
        (
            {"words": WORDS, "tokens": WORDS, "heads": [-1, 0]},
            "tree has words and tokens, two names of one list; give it once",
        ),
    ],
)
def test_values_that_are_not_the_lists_of_a_tree_are_refused_alone(classifier, row, error):
    refused, predicted = classifier.predict([row, {"words": WORDS, "heads": [-1, 0]}])
    assert refused["error"] == error and predicted["error"] is None


def test_an_infinite_parent_that_was_typed_refuses_its_row(classifier):
    typed = classifier.parse('{"words": ["good", "bad"], "heads": [-1, 1e999]}')
    refused, predicted = classifier.predict([typed, {"words": WORDS, "heads": [-1, 0]}])
    assert "the parent of node 1 is inf; give whole numbers" in refused["error"] and predicted["error"] is None
