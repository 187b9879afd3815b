"""Columns that inference leaves out are named, with a query that makes the first of them part of the input."""

import shlex

import pytest
from hydra import compose, initialize_config_dir
from support.table_files import write, write_csv

from seqclf.config.documentation import CONF
from seqclf.data.prepare import prepare
from seqclf.survey.survey import ignored_advice

ROWS = 40
AMOUNTS = [row + 0.5 for row in range(ROWS)]
LISTS = {"at": [[row, row + 60, row + 90] for row in range(ROWS)], "code": [["a", "b", "c"]] * ROWS}
TIMES = {"at": [["2024-01-01", "2024-01-02", f"2024-02-{1 + row % 28:02d}"] for row in range(ROWS)]}
REST = {"amount it's": AMOUNTS, "user": ["u1", "u2"] * (ROWS // 2), "y": ["p", "q"] * (ROWS // 2)}


def advice_and_query(dataset, given):
    (line,) = ignored_advice(dataset.schema, given)
    (override,) = shlex.split(line.partition(", set ")[2])
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return line, compose("train", ["data=files", override]).data.query


@pytest.mark.parametrize("columns", [LISTS, TIMES])
@pytest.mark.parametrize(("kind", "separator"), [("parquet", None), ("csv", ";")])
def test_a_value_beside_lists_is_repeated_at_each_token(options, tmp_path, kind, separator, columns):
    path, columns = tmp_path / f"t.{kind}", {**columns, **REST}
    write_csv(path, columns, separator) if kind == "csv" else write(path, columns)
    given = options(train=path, label="y", group="user", list_separator=separator)
    dataset = prepare(given)
    assert set(dataset.encoders) == set(columns) - set(REST)
    line, query = advice_and_query(dataset, given)
    assert "amount it's;" in line and "user" not in line
    used = prepare(options(train=path, label="y", group="user", list_separator=separator, query=query))
    assert used.encoders["amount_it_s"].field.kind == "number" and not ignored_advice(used.schema, given)
    for split in used.splits.values():
        values = split.sequences.fields["amount_it_s"][:, 0].reshape(-1, 3)
        assert (values == values[:, :1]).all() and len(set(values[:, 0])) == len(values)


def test_a_value_beside_a_text_goes_before_it(options, tmp_path):
    path = write(tmp_path / "t.csv", {"note": [f"some words {row}" for row in range(ROWS)], **REST})
    given = options(train=path, label="y")
    dataset = prepare(given)
    line, query = advice_and_query(dataset, given)
    assert "amount it's, user;" in line
    longer = prepare(options(train=path, label="y", query=query))
    assert longer.report["train"].tokens > dataset.report["train"].tokens


def test_fields_that_the_config_names_are_complete(options, tmp_path):
    given = options(train=write(tmp_path / "t.parquet", {**LISTS, **REST}), label="y", fields={"code": "category"})
    dataset = prepare(given)
    assert "at" in dataset.schema.ignored and ignored_advice(dataset.schema, given) == []
