"""Columns that inference leaves out are named, with what makes them part of the input."""

from support.table_files import write

from seqclf.data.prepare import prepare
from seqclf.survey.survey import ignored_advice

ROWS = 40
LISTS = {"at": [[row, row + 60, row + 90] for row in range(ROWS)], "code": [["a", "b", "c"]] * ROWS}
REST = {"amount": [row + 0.5 for row in range(ROWS)], "user": ["u1", "u2"] * (ROWS // 2), "y": ["p", "q"] * (ROWS // 2)}


def test_a_value_beside_lists_is_named_and_a_group_is_not(options, tmp_path):
    given = options(train=write(tmp_path / "t.parquet", {**LISTS, **REST}), label="y", group="user", static={})
    dataset = prepare(given)
    assert set(dataset.encoders) == set(LISTS)
    (line,) = ignored_advice(dataset.schema, given)
    assert "amount;" in line and "user" not in line and line.endswith("in data.static")


def test_the_query_of_the_documentation_repeats_a_value_at_each_token(options, tmp_path):
    query = "SELECT * REPLACE (list_transform(code, lambda token: amount) AS amount) FROM input"
    given = options(train=write(tmp_path / "t.parquet", {**LISTS, **REST}), label="y", group="user", query=query)
    dataset = prepare(given)
    assert dataset.encoders["amount"].field.kind == "number" and not ignored_advice(dataset.schema, given)
    for split in dataset.splits.values():
        values = split.sequences.fields["amount"][:, 0].reshape(-1, 3)
        assert (values == values[:, :1]).all() and len(set(values[:, 0])) == len(values)


def test_fields_that_the_config_names_are_complete(options, tmp_path):
    given = options(train=write(tmp_path / "t.parquet", {**LISTS, **REST}), label="y", fields={"code": "category"})
    dataset = prepare(given)
    assert "at" in dataset.schema.ignored and ignored_advice(dataset.schema, given) == []
