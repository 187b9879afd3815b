"""Rows that are shown: of a file, typed, or of a split, with their texts, labels and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from seqclf.errors import InputError
from seqclf.inspection.data_stages import data_stages
from seqclf.inspection.shown_rows import RowReader


@pytest.fixture
def reader(datasets):
    return RowReader(datasets["words"].description())


def test_a_file_gives_its_first_rows_with_labels_and_names_those_it_refuses(reader, lists_file):
    rows = reader.of_file(str(lists_file), 5)
    assert rows.names == ["a", "b", "d", "e"] and rows.labels == ["k0", "k1", "k1", "k0"]
    assert rows.tokens == [["1", "2"], ["3"], ["1", "99"], ["4", "5", "6"]]
    (reason,) = rows.refused
    assert reason == "row c: x has no tokens; a sequence needs at least one"
    assert rows.raw[0] == {"x": "[1, 2]"}


def test_a_file_of_refused_rows_alone_is_an_error(reader, lists_file, tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"x": []}\n')
    with pytest.raises(InputError, match=r"bad\.jsonl: none of the first 1 rows can be used: row 1: x has no tokens"):
        reader.of_file(str(path), 4)


def test_unknown_tokens_are_marked(reader):
    rows = reader.of_text("[1, 99, 2]")
    lengths = rows.sequences.lengths
    fields = {"x": rows.sequences.fields["x"][None].astype(np.int64)}
    _, encoded, _ = data_stages(rows, fields, lengths)
    (field,) = encoded.content.rows[0]
    assert list(field.tokens) == ["1", "99", "2"]
    assert field.unknown.tolist() == [False, True, False] and field.encoded[1] == "0"


def test_a_typed_sequence_that_does_not_fit_is_one_error_line(reader):
    with pytest.raises(InputError, match=r"^sequence=\[1, x\]: x is not a list of integers$"):
        reader.of_text("[1, x]")
    with pytest.raises(InputError, match=r"^sequence=\[\]: x has no tokens; a sequence needs at least one$"):
        reader.of_text("[]")
    with pytest.raises(InputError, match=r"^examples\.toy: row 2: x has no tokens"):
        reader.of_values([[1], []], "examples.toy")


def test_a_field_that_the_model_lacks_is_named_without_a_bundle(datasets):
    mixed = RowReader(datasets["mixed"].description())
    with pytest.raises(InputError, match=r"has the field z; the fields of the model are x, y$"):
        mixed.of_text('{"x": [1], "z": [0.5]}')


def test_rows_of_a_split_are_spread_over_it(reader, datasets):
    dataset = datasets["words"]
    split = dataset.splits["train"]
    rows = reader.of_split(split, dataset.classes, 3)
    ids = split.ids.to_pylist()
    assert rows.names == [ids[0], ids[round((len(ids) - 1) / 2)], ids[-1]]
    everything = reader.of_split(split, dataset.classes, 50)
    assert len(everything) == min(50, len(ids)) == len(set(everything.names))


def test_numbers_are_known_by_six_digits_and_vectors_by_their_position(datasets):
    reader = RowReader(datasets["mixed"].description())
    assert reader.of_values([{"x": [1], "y": [1 / 3]}], "rows").tokens == [["1"]]
    number = RowReader(datasets["numbers"].description())
    assert number.of_values([[0.5, 2.0]], "rows").tokens == [["0.5", "2"]]
    assert number.of_values([[1 / 3]], "rows").tokens == [["0.333333"]]
    vectors = replace(number.of_values([[0.5]], "rows"), elements={"y": [["[0.5, 0.25, 0.125]"]]})
    assert vectors.tokens is None


def test_fields_of_several_columns_are_encoded_by_name(datasets):
    reader = RowReader(datasets["mixed"].description())
    rows = reader.of_values([{"x": [1, 2], "y": [0.5, 1.5]}], "rows")
    _, encoded, padded = data_stages(
        rows, {name: values[None] for name, values in rows.sequences.fields.items()}, rows.sequences.lengths
    )
    assert [field.name for field in encoded.content.rows[0]] == ["x", "y"]
    assert list(encoded.content.rows[0][1].tokens) == ["0.5", "1.5"]
    assert [name for name, _, _ in padded.content.inputs] == ["x", "y", "lengths"]
    assert "All rows are of one length" in padded.text
