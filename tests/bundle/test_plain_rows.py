"""Python rows that are encoded without Arrow: the same predictions, errors included, as through Arrow columns."""

from datetime import UTC, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from support.untrained_task import export_table

from seqclf.bundle import model
from seqclf.bundle.python_rows import PythonRows
from seqclf.bundle.sequence_reader import batches_by_length

LABELS = ["yes", "no"] * 8
SHOPS = [["a", "b", "é"], ["c"], ["a", "a"], ["b", "c", "a", "b"]] * 4
FLAGS = [[True, False, True], [True], [False, False], [True] * 4] * 4
COUNTS = [[1, 2, 3], [2], [7, 7], [1, 1, 2, 3]] * 4
AMOUNTS = [[1.0, 2.5, -3.0], [0.5], [2.0, 1e6], [0.0, 1.0, 2.0, 3.0]] * 4
TIMES = [[0.0, 1.5, 60.0], [5.0], [7.0, 9.0], [1.0, 2.0, 3.0, 4e5]] * 4
VECTORS = [[[value, -value, 1.0] for value in values] for values in AMOUNTS]
GAPPY = [[[value, None, 1.0] for value in values] for values in AMOUNTS]
TEXTS = ["Good food, rude staff", "clean", "a noisy street!", "good"] * 4
TABLES = {
    "text categories": ({"x": SHOPS}, {"x": "category"}),
    "integers": ({"x": COUNTS}, {"x": "category"}),
    "booleans": ({"x": FLAGS}, {"x": "category"}),
    "hashed": ({"x": SHOPS}, {"x": {"kind": "category", "hash_size": 20}}),
    "missing categories": ({"x": SHOPS}, {"x": {"kind": "category", "missing": "value"}}),
    "numbers": ({"x": AMOUNTS}, {"x": "number"}),
    "options": ({"x": AMOUNTS}, {"x": {"kind": "number", "log": True, "clip": 2, "scale": "robust"}}),
    "by sequence": ({"x": AMOUNTS}, {"x": {"kind": "number", "scale": "sequence"}}),
    "missing numbers": ({"x": AMOUNTS}, {"x": {"kind": "number", "missing": "last", "since": "tokens"}}),
    "codes": ({"x": AMOUNTS}, {"x": {"kind": "number", "missing": "mean", "missing_values": [-3]}}),
    "vectors": ({"x": VECTORS}, {"x": "number"}),
    "gappy vectors": ({"x": GAPPY}, {"x": {"kind": "number", "missing": "last"}}),
    "times": ({"x": TIMES}, {"x": {"kind": "time", "cycles": ["hour"]}}),
    "events": (
        {"shop": SHOPS, "amount": AMOUNTS, "at": TIMES, "count": COUNTS},
        {
            "shop": "category",
            "at": "time",
            "count": {"kind": "category", "column": "count"},
            "amount": {"kind": "number", "missing": "last", "since": "at"},
        },
    ),
    "words": ({"x": TEXTS}, {"x": "text"}),
    "characters": ({"x": TEXTS}, {"x": {"kind": "text", "tokenizer": "character"}}),
    "subwords": ({"x": TEXTS}, {"x": {"kind": "text", "tokenizer": "bpe", "max_size": 60, "min_count": 1}}),
    "sets": ({"x": [[[1, 2], [3]], [[1]], [[2, 3], [1]], [[7]]] * 4}, {"x": "set"}),
    "trees": ({"x": ["(0 (1 good) (0 food))", "(1 rude)"] * 8}, {"x": "tree"}),
}
VALUES = [
    *("a", "b", "zebra", "", " ", "é", "\ud800", "1", "7.0", "2024-01-02 03:04:05", "true", "(0 (1 good) (0 rude))"),
    *(1, 0, -5, 2**53 + 1, 2**63, -(2**63), True, 1.5, 7.0, 1e300, float("nan"), float("inf"), None),
    *(b"a", Decimal("1.5"), datetime(2026, 1, 2, tzinfo=UTC), np.float32(1.5), np.int64(2), pd.Timestamp("2026-01-02")),
    *([1.0, 2.0, 3.0], [1, None, 2], [1.0, 2.0], [[1]], {"a": 1}, (), pd.NaT),
]


@pytest.fixture(scope="module", params=TABLES)
def classifier(request, tmp_path_factory):
    columns, fields = TABLES[request.param]
    folder = tmp_path_factory.mktemp("plain")
    found = export_table(folder, {**columns, "label": LABELS}, None, fields=fields)
    return found, columns


def both(monkeypatch, classifier, rows):
    direct = classifier.predict(rows)
    with monkeypatch.context() as patch:
        patch.setattr(model, "PLAIN_ROWS", 0)
        return direct, classifier.predict(rows)


def used(monkeypatch, calls):
    original = PythonRows.to_columns

    def counting(self, sequences):
        calls.append(len(sequences))
        return original(self, sequences)

    monkeypatch.setattr(PythonRows, "to_columns", counting)


def rows_of(columns):
    return pd.DataFrame(columns).to_dict("records")


def test_rows_of_training_need_no_arrow_and_have_the_same_predictions(monkeypatch, classifier, request):
    found, columns = classifier
    direct, expected = both(monkeypatch, found, rows_of(columns))
    assert direct == expected and all(row["error"] is None for row in direct)
    calls = []
    used(monkeypatch, calls)
    found.predict(rows_of(columns)[:3])
    kind = request.node.callspec.params["classifier"]
    slow = {"booleans", "codes", "events", "gappy vectors", "sets", "trees"}
    assert bool(calls) == (kind in slow)


def test_any_value_has_the_same_prediction_or_error(monkeypatch, classifier, request):
    found, columns = classifier
    kind = request.node.callspec.params["classifier"]
    row = rows_of(columns)[0]
    for name in columns:
        for value in VALUES:
            for cell in (value, [value], [value, row[name][-1]] if isinstance(row[name], list) else value):
                changed = [{**row, name: cell}]
                direct, expected = both(monkeypatch, found, changed)
                assert repr(direct) == repr(expected), (name, cell)
        arrays = [
            np.array(row[name], None if kind != "sets" else object),
            pd.Series(row[name]),
            tuple(row[name]),
            np.array(row[name], object),
        ]
        for cell in arrays if isinstance(row[name], list) else []:
            direct, expected = both(monkeypatch, found, [{**row, name: cell}])
            assert repr(direct) == repr(expected), (name, cell)


def test_rows_that_are_rejected_or_of_other_lengths(monkeypatch, classifier):
    found, columns = classifier
    row = rows_of(columns)[0]
    name = next(iter(columns))
    empty = "" if isinstance(row[name], str) else []
    for rows in (
        [{**row, name: empty}],
        [row, {}],
        [row, {**row, "other": 1}],
        [row, 7],
        [row[name]],
        [row, row[name]],
    ):
        direct, expected = both(monkeypatch, found, rows)
        assert repr(direct) == repr(expected)
    if len(columns) > 1:
        direct, expected = both(monkeypatch, found, [{**row, name: row[name][:1]}])
        assert repr(direct) == repr(expected) and direct[0]["error"]


@pytest.mark.parametrize("truncate", ["error", "keep_first", "keep_last"])
def test_long_rows_are_cut_or_rejected_as_in_training(monkeypatch, tmp_path, truncate):
    options = {"fields": {"x": "category"}, "max_length": 4, "truncate": truncate}
    found = export_table(tmp_path, {"x": COUNTS, "label": LABELS}, None, **options)
    direct, expected = both(monkeypatch, found, [[1, 2, 3, 7], [1, 2, 3, 7, 1], [7]])
    assert direct == expected and [row["error"] is None for row in direct] == [True, truncate != "error", True]


def test_padding_is_cut_off_into_batches_of_their_own():
    lengths = np.array([100, *[2] * 15])
    batches = batches_by_length(lengths, 2048)
    assert [sorted(lengths[rows].tolist()) for rows in batches] == [[100], [2] * 15]
    assert [rows.tolist() for rows in batches_by_length(np.array([5]), 2)] == [[0]]
    assert len(batches_by_length(np.array([5, 4, 5]), 2048)) == 1
