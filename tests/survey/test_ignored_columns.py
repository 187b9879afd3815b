"""Each column that is no field is named, with its reason."""

import shlex

from support.table_files import write

from seqclf.config.hydra_config import compose_config
from seqclf.config.override_checks import HydraArguments
from seqclf.data.prepare_data import prepare

ROWS = 40
LISTS = {"at": [[row, row + 60, row + 90] for row in range(ROWS)], "code": [["a", "b", "c"]] * ROWS}
REST = {"amount": [row + 0.5 for row in range(ROWS)], "user": ["u1", "u2"] * (ROWS // 2), "y": ["p", "q"] * (ROWS // 2)}
OTHERS = {"one": ["x"] * ROWS, "row": list(range(ROWS)), "empty": [None] * ROWS}


def reasons(dataset):
    """Dict column that is ignored → reason."""
    notes = [note for note in dataset.notes if note.startswith("ignored columns: ")]
    shown = [
        part.rstrip(")").split(" (") for note in notes for part in note.removeprefix("ignored columns: ").split(", ")
    ]
    return dict(shown)


def test_columns_that_are_no_fields_of_lists_are_named_with_their_reasons(options, tmp_path):
    given = {"label": "y", "group": "user", "ignore": ["amount"]}
    dataset = prepare(options(train=write(tmp_path / "t.parquet", {**LISTS, **REST, **OTHERS}), **given))
    assert set(dataset.encoders) == set(LISTS)
    expected = {
        "amount": "data.ignore",
        "user": "it splits the rows",
        "one": "one value",
        "row": "an id",
        "empty": "empty",
    }
    assert reasons(dataset) == expected
    assert {*dataset.schema.ignored} == {*expected}


def test_the_query_of_the_documentation_repeats_a_value_at_each_token(options, tmp_path):
    query = "SELECT * REPLACE (list_transform(code, lambda token: amount) AS amount) FROM input"
    given = options(train=write(tmp_path / "t.parquet", {**LISTS, **REST}), label="y", group="user", query=query)
    dataset = prepare(given)
    assert dataset.encoders["amount"].field.kind == "number" and reasons(dataset).keys() == {"user"}
    for split in dataset.splits.values():
        values = split.sequences.fields["amount"][:, 0].reshape(-1, 3)
        assert (values == values[:, :1]).all() and len(set(values[:, 0])) == len(values)


def test_a_field_that_is_declared_leaves_the_others_as_they_are(options, tmp_path):
    def fields(**given):
        path = write(tmp_path / "t.parquet", {**LISTS, **REST})
        keys = {"label": "y", "group": "user", "cache_dir": tmp_path / "cache", "infer": True}
        dataset = prepare(options(train=path, **{**keys, **given}))
        return dataset.schema.fields, dataset.digest

    inferred = fields()
    assert [field.name for field in inferred[0]] == ["at", "code", "amount"]
    assert fields(fields={"code": "category"}) == inferred == fields(fields={"code": None, "at": {}})
    assert [field.name for field in fields(fields={"code": {"min_count": 2}}, ignore=["at"])[0]] == ["code", "amount"]
    assert [field.name for field in fields(fields={"code": "category"}, infer=False)[0]] == ["code"]


def test_an_order_that_is_no_field_is_named(options, tmp_path):
    table = {"card": [row // 4 for row in range(ROWS)], "n": list(range(ROWS)), "kind": ["a", "b", "b", "c"] * 10}
    path = write(tmp_path / "t.csv", {**table, "y": ["pq"[row // 4 % 2] for row in range(ROWS)]})
    given = {"label": "y", "group_by": "card", "order_by": "n"}
    dataset = prepare(options(train=path, fields={"kind": "category"}, infer=False, **given))
    assert reasons(dataset) == {"n": "it only sorts the events"}
    assert [field.name for field in prepare(options(train=path, **given)).schema.fields] == ["n", "kind"]


def test_what_a_note_advises_can_be_typed(options, tmp_path):
    table = {"card": [row // 4 for row in range(ROWS)], "at": [f"{1 + row % 4}/11/2023" for row in range(ROWS)]}
    table |= {"home age": [30 + row // 4 % 5 for row in range(ROWS)], "kind": ["a", "b", "b", "c"] * 10}
    path = write(tmp_path / "t.csv", {**table, "y": ["pq"[row // 4 % 2] for row in range(ROWS)]})
    keys = {
        "label": "y",
        "group_by": "card",
        "order_by": "at",
        "order_format": "%d/%m/%Y",
        "train": path,
        "infer": True,
    }
    inferred = prepare(options(**keys))
    (note,) = [note for note in inferred.notes if note.startswith("static fields")]
    (advised,) = [word for word in shlex.split(note) if word.startswith("data.fields")]
    block = compose_config("train", HydraArguments("train", ["data=files", advised]).for_hydra()).plain()["data"]
    declared = prepare(options(**keys, fields=block["fields"]))
    assert "home_age" in [field.name for field in declared.schema.token_fields]
    assert prepare(options(**keys, fields={"at": "time"})).digest == inferred.digest, "in the format of the order"
    static = prepare(options(**keys, static={"home_age": {"column": "home age", "missing": "mean"}}))
    assert [field.kind for field in static.schema.fields if field.static] == ["number"]
