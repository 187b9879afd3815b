"""Rows that are shown: of a file, typed, or of a split, with their texts, labels and refusals."""

import numpy as np
import pytest

from seqclf.errors import InputError
from seqclf.walkthrough.inspect_rows import data_stages
from seqclf.walkthrough.shown_rows import RowReader


@pytest.fixture
def reader(datasets):
    return RowReader(datasets["words"].description())


def test_a_file_gives_its_first_rows_with_labels_and_names_those_it_refuses(reader, lists_file):
    rows = reader.of_file(str(lists_file), 5)
    assert rows.names == ["a", "b", "d", "e"] and rows.labels == ["k0", "k1", "k1", "k0"]
    assert rows.token_texts == [["1", "2"], ["3"], ["1", "?"], ["4", "5", "6"]]
    (reason,) = rows.refused
    assert reason == "id c: x has no tokens; a sequence needs at least one"
    assert [cells["x"] for cells in rows.cells] == ["[1, 2]", "[3]", "[1, 99]", "[4, 5, 6]"]


def test_rows_of_a_file_without_ids_are_named_by_their_numbers_in_it(reader, tmp_path):
    path = tmp_path / "some.jsonl"
    path.write_text('{"x": [1]}\n{"x": []}\n{"x": [2]}\n')
    rows = reader.of_file(str(path), 3)
    assert rows.names == ["1", "3"] and rows.refused[0].startswith("row 2: x has no tokens")


def test_unknown_tokens_are_marked(reader):
    rows = reader.of_text("[1, 99, 2]")
    lengths = rows.sequences.lengths
    fields = {"x": rows.sequences.fields["x"][None].astype(np.int64)}
    _, encoded, _ = data_stages(rows, fields, lengths)
    (tokens, cells) = (line for _, line in encoded.blocks[-1].maps[0].rows)
    assert [cell.text for cell in tokens] == ["1", "?", "2"]
    assert [cell.kind for cell in cells] == ["", "unknown", ""] and cells[1].text == "0 ?"
    assert encoded.blocks[0].text == "1 value is unknown, with a question mark."


def test_a_typed_sequence_that_does_not_fit_is_one_error_line(reader):
    with pytest.raises(InputError, match=r"^sequence=\[1, x\]: x is not a list of integers$"):
        reader.of_text("[1, x]")
    with pytest.raises(InputError, match=r"^sequence=\[\]: x has no tokens; a sequence needs at least one$"):
        reader.of_text("[]")


def test_a_typed_sequence_is_refused_where_the_query_would_change_it(datasets):
    description = datasets["words"].description()

    def reader(query):
        return RowReader({**description, "reader": {**description["reader"], "query": query}})

    with pytest.raises(InputError) as caught:
        reader("SELECT * REPLACE (list_reverse(x) AS x) FROM input").of_text("[1, 2]")
    assert caught.value.where == "sequence=[1, 2]" and "data.query" in caught.value.problem
    assert reader("SELECT * FROM input WHERE label IS NOT NULL").of_text("[1, 2]").token_texts == [["1", "2"]]


def test_a_field_that_the_model_lacks_is_named_without_a_bundle(datasets):
    mixed = RowReader(datasets["mixed"].description())
    with pytest.raises(InputError, match=r"has no field y; the fields of the model are x, y$"):
        mixed.of_text('{"x": [1], "z": [0.5]}')


def test_rows_of_a_split_are_spread_over_it(reader, datasets):
    dataset = datasets["words"]
    split = dataset.splits["train"]
    rows = reader.of_split(split, dataset.classes, 3)
    ids = split.ids.to_pylist()
    expected = [ids[0], ids[round((len(ids) - 1) / 2)], ids[-1]]
    assert rows.names == expected
    everything = reader.of_split(split, dataset.classes, 50)
    assert len(everything) == min(50, len(ids)) == len(set(everything.names))


def test_static_fields_are_one_value_of_a_row_and_part_of_no_token(inspected):
    row = {"x": [1, 2, 3], "y": [0.5, 1.0, 2.0], "ward": "w1", "age": 7.5}
    case = inspected("static", "model=lstm", values=[row, {**row, "x": [4], "y": [0.5]}])
    assert case.rows.cells[0] == {"x": "[1, 2, 3]", "y": "[0.5, 1.0, 2.0]", "ward": "['w1']", "age": "[7.5]"}
    assert [len(texts) for texts in case.rows.token_texts] == [3, 1]
    assert case.rows.inputs(0)["age"].shape == (1, 1) and case.rows.inputs(0)["y"].shape == (3, 1)


def test_static_fields_of_rows_of_a_split_are_shown(datasets):
    dataset = datasets["static"]
    rows = RowReader(dataset.description()).of_split(dataset.splits["validation"], dataset.classes, 3)
    assert all(cells["ward"] in ("w0", "w1", "w2") for cells in rows.cells)
