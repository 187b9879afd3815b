"""Sets: the same ids for staged, canonical and restored rows, for every order of the values and from every format."""

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write, write_csv
from support.untrained_task import data_options

from seqclf.data.encoding.declaration import build_schema
from seqclf.data.encoding.encoders import make_encoder, make_encoders
from seqclf.data.encoding.kinds.set import SetEncoder
from seqclf.data.encoding.row_checks import check_rows
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import INFERENCE_ROWS, Field, Schema
from seqclf.data.schema.truncation import Truncation
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions

VALUES = st.lists(st.sampled_from(["a", "b", "c", "d"]), max_size=5)
ROWS = st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=6)


def set_field(values="text", **options):
    return Field("x", "set", ("x",), values, options=options)


def batch_of(rows, values="text"):
    kind = pa.string() if values == "text" else pa.int64()
    return pa.record_batch({"x": pa.array(rows, pa.list_(pa.list_(kind)))})


def staged(encoder, record_batch):
    return pa.record_batch({"x": encoder.stage(record_batch.column("x"))})


def fitted(rows, values="text", **options):
    encoder = make_encoder(set_field(values, **options))
    train = staged(encoder, batch_of(rows, values))
    encoder.fit(lambda *names: iter([train]))
    return encoder, train


def sets_of(encoder, array):
    """The multiset of values of each token, `?` for unknown ones."""
    return [Counter(encoder.vocabulary.text_of(id - 1) for id in ids if id) for ids in array.tolist()]


@given(ROWS, st.integers(1, 3), st.none() | st.integers(1, 3), st.none() | st.integers(1, 9))
def test_staged_canonical_and_restored_rows_have_the_same_ids(rows, min_count, max_size, hash_size):
    encoder, train = fitted(rows, min_count=min_count, max_size=max_size, hash_size=hash_size)
    from_staged, canonical = encoder.encode_staged(train), encoder.encode(batch_of(rows))
    assert from_staged.lengths.tolist() == canonical.lengths.tolist() == [len(row) for row in rows]
    np.testing.assert_array_equal(from_staged.arrays["x"], canonical.arrays["x"])
    restored = make_encoder(encoder.field)
    restored.restore(json.loads(json.dumps(encoder.state())))
    np.testing.assert_array_equal(restored.encode(batch_of(rows)).arrays["x"], canonical.arrays["x"])
    assert canonical.arrays["x"].max(initial=0) < encoder.spec()["size"]
    if hash_size is None:
        counts = Counter(value for row in rows for token in row for value in token)
        kept = set(encoder.vocabulary.values.to_pylist())
        assert all(counts[value] >= min_count for value in kept) and len(kept) <= (max_size or 99)
        expected = [Counter(value if value in kept else "?" for value in token) for row in rows for token in row]
        assert sets_of(encoder, canonical.arrays["x"]) == expected


@given(ROWS, st.randoms(use_true_random=False), st.none() | st.just(3))
def test_the_order_of_values_counts_neither_for_ids_nor_for_duplicates(rows, random, hash_size):
    encoder, train = fitted(rows, hash_size=hash_size)
    shuffled = [[random.sample(token, len(token)) for token in row] for row in rows]
    np.testing.assert_array_equal(
        encoder.encode(batch_of(rows)).arrays["x"], encoder.encode(batch_of(shuffled)).arrays["x"]
    )
    keys = encoder.token_keys(train.column("x"))
    np.testing.assert_array_equal(keys, encoder.token_keys(staged(encoder, batch_of(shuffled)).column("x")))
    if hash_size is None:
        tokens = [tuple(sorted(token)) for row in rows for token in row]
        assert len(set(keys.tolist())) == len(set(tokens)), "different sets have different keys"


def test_keys_of_hashed_sets_with_equal_sums_differ():
    encoder = make_encoder(set_field("integer", hash_size=10_000))
    tokens = [[first, 200 - first] for first in range(100)]
    keys = encoder.token_keys(staged(encoder, batch_of([tokens], "integer")).column("x"))
    assert len(set(keys.tolist())) == 100


def test_prediction_has_room_for_the_largest_set_at_hand_and_training_for_the_largest_of_all_rows():
    encoder, train = fitted([[["a"], ["a", "b", "c"]]])
    staged(encoder, batch_of([[["a"] * 7]]))  # a row of another split
    assert encoder.encode_staged(train).arrays["x"].shape == (2, 7)
    assert encoder.encode(batch_of([[[], []]])).arrays["x"].tolist() == [[0], [0]]


def test_long_sequences_are_cut_by_whole_tokens():
    encoders = make_encoders((set_field(),))
    rows = batch_of([[["a"], ["b", "c"], []], [["d"]]])
    kept = Truncation(2, "keep_last").cut_lists(rows, encoders)
    assert kept.column("x").to_pylist() == [[["b", "c"], []], [["d"]]]


def test_tokens_are_decoded():
    encoder, train = fitted([[["b", "a", "b"], []]])
    assert encoder.decode(encoder.encode_staged(train).arrays) == ["{b, b, a}", "{}"]
    assert encoder.decode(encoder.encode(batch_of([[["z"]]])).arrays) == ["{?}"]


VISITS = [[["I10", "E11"], []], [["Z99"]], [["E11"], ["I10"], ["I10", "Z99", "0389"]]] * 8
LABELS = ["yes", "no", "yes", "no"] * 6


def test_every_format_gives_the_same_dataset(tmp_path):
    text = ["|".join(" ".join(token) for token in row) for row in VISITS]
    files = {
        "parquet": ({"codes": VISITS, "label": LABELS}, {}),
        "jsonl": ({"codes": VISITS, "label": LABELS}, {}),
        "csv": ({"codes": VISITS, "label": LABELS}, {}),
        "split": (
            {"codes": text, "label": LABELS},
            {"fields": {"codes": {"kind": "set", "separator": " "}}, "list_separator": "|"},
        ),
    }
    digests = {}
    for name, (columns, options) in files.items():
        path = tmp_path / (f"{name}.csv" if name == "split" else f"train.{name}")
        write(path, columns)
        dataset = prepare(data_options(tmp_path / "cache", train=str(path), **options))
        assert dataset.schema.fields[0].kind == "set"
        digests[name] = dataset.digest
    assert len(set(digests.values())) == 1, digests


def event_columns():
    rows = [(visit, row, codes) for row, visits in enumerate(VISITS) for visit, codes in enumerate(visits)]
    return {
        "day": [day for day, _, _ in rows],
        "patient": [row for _, row, _ in rows],
        "codes": [codes for _, _, codes in rows],
        "label": [LABELS[row] for _, row, _ in rows],
    }


@pytest.mark.parametrize("form", ["parquet", "csv", "bracketed csv"])
def test_an_event_may_hold_a_set(form, tmp_path):
    columns = event_columns()
    path = tmp_path / f"events.{form.split()[-1]}"
    options = {"codes": {"kind": "set", "separator": ";", "missing": "empty"}}
    if form == "parquet":
        write(path, columns)
        options = {"codes": "set"}
    else:
        write_csv(path, columns, separator=";" if form == "csv" else None)
        if form != "csv":
            options = {"codes": "set"}
    events = {"group_by": "patient", "order_by": "day", "fields": options}
    dataset = prepare(data_options(tmp_path / "cache", train=str(path), **events))
    encoder = dataset.encoders["codes"]
    decoded = {
        id: sets_of(encoder, split.sequences.fields["codes"][start:stop])
        for split in dataset.splits.values()
        for id, start, stop in zip(
            split.ids.to_pylist(), split.sequences.offsets[:-1], split.sequences.offsets[1:], strict=True
        )
    }
    known = set(encoder.vocabulary.values.to_pylist())
    expected = {
        str(row): [Counter(code if code in known else "?" for code in codes) for codes in visits]
        for row, visits in enumerate(VISITS)
    }
    assert decoded == expected


def unquoted(cell):
    return str(cell).replace("'", "")


@pytest.mark.parametrize("events", [False, True])
def test_codes_beyond_64_bits_are_texts(events):
    tokens = pa.array([[2**63, 1], [5]], pa.list_(pa.uint64()))
    cells = tokens if events else pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), tokens)
    field = SetEncoder.complete(set_field(), pa.table({"x": cells}), None, events)
    assert field.values == "text"


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        ([[["a", "b"], []], [["c"]]], "set", "text"),
        ([[[3, 1], [2]], [[]]], "set", "integer"),
        ([[[3, 1], [2, 2]]], "number", "string"),
        ([[[-3], [2, 2]]], "number", "string"),
        ([["[1, 2]", "[3]"]], "category", "text"),
        ([[[1, 2, 3], [4, 5, 6]]] * 30 + [[[1, 2, 3], [4, 5]]], "number", "string"),
        ([[["1.5", "2.5"], ["3", "4"]]], "number", "string"),
        ([[["0389", "I10"], ["042"]]], "set", "text"),
        ([[["007", "12"], ["042", "7"]]], "set", "text"),
    ],
)
def test_lists_of_texts_and_of_codes_are_sets_and_other_lists_are_not(cells, kind, values):
    table = pa.table({"x": pa.array(cells), "label": ["a"] * len(cells)})
    options = DataOptions.build(label="label")
    (field,) = build_schema(table, "t", options).fields
    assert (field.kind, field.values) == (kind, values)
    spellings = [json.dumps] if kind == "category" else [json.dumps, str, unquoted]  # of JSON, Python and DuckDB
    for write_cell in spellings:
        texts = pa.table({"x": list(map(write_cell, cells)), "label": ["a"] * len(cells)})
        (field,) = build_schema(texts, "t", options).fields
        assert field.kind == kind


def refusals(rows, values="text", **options):
    schema = Schema((set_field(values, **options),))
    problems = check_rows(batch_of(rows, values), schema, make_encoders(schema.fields))
    return {row: problem.reason for row, problem in problems.first_problems.items()}


def test_rows_with_missing_values_or_too_many_are_refused():
    rows = [[["a"], None], [["a", None]], None, [], [["a"] * 4], [["a"], []]]
    refused = refusals(rows, max_values=3)
    assert sorted(refused) == [0, 1, 2, 3, 4]
    assert all("set data.fields.x.missing=empty" in refused[row] for row in (0, 1))
    assert "raise data.fields.x.max_values" in refused[4]
    assert sorted(refusals(rows, max_values=3, missing="empty")) == [2, 3, 4]


def test_missing_tokens_are_empty_sets_and_missing_values_are_left_out():
    encoder, train = fitted([[["a"], None, ["b", None, "a"]]], missing="empty")
    assert sets_of(encoder, encoder.encode_staged(train).arrays["x"]) == [Counter("a"), Counter(), Counter("ab")]


@pytest.mark.parametrize(
    ("values", "value", "expected"),
    [
        ("text", [["a"], ("b", 1), {"c"}, np.array(["d"])], [["a"], ["b", "1"], ["c"], ["d"]]),
        ("integer", [[1, 2.0], np.array([3])], [[1, 2], [3]]),
        ("text", ["ab"], ValueError),
        ("text", "ab", ValueError),
        ("integer", [[1.5]], ValueError),
        ("integer", [3], ValueError),
    ],
)
def test_python_values(values, value, expected):
    encoder = make_encoder(set_field(values))
    if isinstance(expected, list):
        assert encoder.from_python(value) == expected
    else:
        with pytest.raises(expected):
            encoder.from_python(value)


def predicted_sets(path, field, group_by=()):
    """The sets of a file that is read for a field that training has declared."""
    schema = Schema((field,), group_by=group_by)
    with SourceReader(Source(str(path), "input")) as reader:
        return [row for rows in reader.read(schema) for row in rows.columns.column("x").to_pylist()]


def test_values_of_mixed_json_lists_have_no_quotes(tmp_path):
    events = tmp_path / "events.jsonl"
    events.write_text('{"g": 1, "x": ["I10", 5]}\n{"g": 1, "x": [7]}\n')
    assert predicted_sets(events, set_field(), ("g",)) == [[["I10", "5"], ["7"]]]
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"x": [["I10", 5], [7]]}\n')
    assert predicted_sets(rows, set_field()) == [[["I10", "5"], ["7"]]]


def test_separators_at_the_ends_and_twice_make_no_value(tmp_path):
    path = write_csv(tmp_path / "events.csv", {"g": [1, 1], "x": ["I10; E11; ", " ;Z99;;"]})
    assert predicted_sets(path, set_field(separator=";"), ("g",)) == [[["I10", "E11"], ["Z99"]]]
    path = write_csv(tmp_path / "rows.csv", {"x": ['["I10;E11", ";"]', '[["a;b"], ["c"]]']})
    assert predicted_sets(path, set_field(separator=";")) == [[["I10", "E11"], []], [["a;b"], ["c"]]]


def test_sets_are_typed_as_json_or_with_their_separator():
    assert make_encoder(set_field()).parse('[["a", "b"], []]') == [["a", "b"], []]
    assert make_encoder(set_field(separator=";")).parse("a;b; c") == [["a", "b"], ["c"]]
    field = Field("x", "set", ("x",), separator="|", options={"separator": " "})
    assert make_encoder(field).parse("I10  E11|Z99") == [["I10", "E11"], ["Z99"]]


def test_a_text_without_a_separator_is_refused():
    table = pa.table({"x": ["a b|c", "a|b"], "label": ["a", "b"]})
    options = DataOptions.build(label="label", fields={"x": "set"}, list_separator="|")
    with pytest.raises(InputError, match=r"data\.fields\.x=\{kind: set"):
        build_schema(table, "t", options)


def test_integers_that_a_cast_would_round_are_refused(tmp_path):
    after_inference = ["[[1.5], [2]]"] * 2
    columns = {"codes": ["[[1, 2], [3]]"] * INFERENCE_ROWS + after_inference, "label": ["a", "b"] * 501}
    path = write_csv(tmp_path / "train.csv", columns)
    dataset = prepare(data_options(tmp_path / "cache", train=str(path)))
    assert dataset.schema.fields[0].values == "integer"
    assert sum(counts.refused for counts in dataset.report.values()) == 2


def test_a_token_with_several_unknown_values_counts_once(options, tmp_path):
    def file(name, codes):
        rows = {"x": [[[code, code + 1], [code]] for code in codes], "z": [[code, code] for code in codes]}
        return write(tmp_path / f"{name}.parquet", {**rows, "y": ["a", "b"] * (len(codes) // 2)})

    fields = {"x": "set", "z": "category"}
    paths = {"train": file("train", [1] * 20), "test": file("test", [70, 80])}
    counts = prepare(options(**paths, label="y", fields=fields)).report["test"]
    assert (counts.unknown_tokens, counts.tokens) == (4, 4)
