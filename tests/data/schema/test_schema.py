"""Schemas are inferred from the first rows or configured, and invalid options are named."""

import pyarrow as pa
import pytest

from seqclf.data.encoding.declaration import build_schema, stored_schema
from seqclf.data.encoding.encoders import make_encoder
from seqclf.data.schema.schema import Field, Schema
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions

LABELS = ["a", "b"] * 5


def schema(columns, **options):
    settings = DataOptions.build(**{"label": "label", **options})
    return build_schema(pa.table({"label": LABELS, **columns}), "t.csv", settings)


def inferred(cells, **options):
    (field,) = schema({"x": cells}, **options).fields
    return field.kind, field.values if field.kind == "category" else field.width, field.separator


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([[1, 2], [3]] * 5, ("category", "integer", None)),
        ([[0.5, 2.0], [3.0]] * 5, ("number", 1, None)),
        ([[[0.5, 2.0]], [[3.0, 1.0]]] * 5, ("number", 2, None)),
        (["[1, 2]", "[3]"] * 5, ("category", "integer", None)),
        (["[a, 2]", "[b]"] * 5, ("category", "text", None)),
        (["[1.5, 2]", "[3]"] * 5, ("number", 1, None)),
        (["[3]"] * 8 + ["[1.5, 2]"] * 2, ("number", 1, None)),
        (["[3]"] * 9 + ["[1.5, 2]"], ("category", "integer", None)),
        (["[-3]"] * 10, ("number", 1, None)),
        (["[[1, 2], [3, 4]]"] * 10, ("number", 2, None)),
        ([[None, 1], None] * 5, ("category", "integer", None)),
        (["[9223372036854775808]"] * 10, ("category", "text", None)),
        (["hello you", "there"] * 5, ("text", None, None)),
    ],
)
def test_kinds_are_inferred_from_cells(cells, expected):
    assert inferred(cells) == expected


def test_ascending_integers_are_numbers_and_others_are_codes():
    clock = [list(range(start, start + 60)) for start in range(0, 600, 60)]
    assert inferred(clock)[0] == "number"
    assert inferred([row[::-1] for row in clock])[0] == "category"


def test_a_separator_makes_lists_of_text_but_not_of_brackets():
    assert inferred(["1 2", "3"] * 5, list_separator=" ") == ("category", "integer", " ")
    assert inferred(["a;b", "c"] * 5, list_separator=";") == ("category", "text", ";")
    assert inferred(["[1, 2]", "[3]"] * 5, list_separator=" ") == ("category", "integer", None)
    named = schema({"x": ["[1, 2]"] * 10}, fields={"x": "category"}, list_separator=" ").fields[0]
    assert (named.values, named.separator) == ("integer", None)
    custom = schema({"x": ["1|2"] * 10}, fields={"x": {"kind": "number", "separator": "|"}}, list_separator=" ").fields[
        0
    ]
    assert (custom.separator, custom.width) == ("|", 1)


@pytest.mark.parametrize(
    ("column", "name"),
    [
        ("my tokens", "my_tokens"),
        ("1st", "f_1st"),
        ("label", "f_label"),
        ("température", "température"),
        ("x²", "x"),
        ("€", "field"),
        ("_id", "id_"),
    ],
)
def test_inferred_names_are_identifiers(column, name):
    table = pa.table({"y": LABELS, column: [[1]] * 10})
    (field,) = build_schema(table, "t", DataOptions.build(label="y")).fields
    assert field.column == column and field.name.isidentifier()
    assert field.name == ("f_id" if column == "_id" else name)


def test_columns_of_similar_names_get_different_field_names():
    names = [field.name for field in schema({name: [[1]] * 10 for name in ("a b", "a_b", "a.b")}).fields]
    assert len(set(names)) == 3


def test_label_and_id_are_not_fields_and_other_columns_are_ignored():
    inferred_schema = schema({"x": [[1]] * 10, "n": [5] * 10, "key": [[1]] * 10}, id="key")
    assert [field.name for field in inferred_schema.fields] == ["x"] and inferred_schema.ignored == ("n",)


def test_a_schema_survives_json():
    field = Field("x", "category", ("x y",), "integer", None, ";", {"min_count": 2})
    one = Schema((field, Field("z", "number", ("z",), width=3)), "label", "id", 9, "keep_last", ("more",))
    assert stored_schema(one.to_dict()) == one
    described = [make_encoder(entry).describe() for entry in one.fields]
    assert described == ["integers, min_count=2", "3 channels"]


LISTS = {"x": [[1, 2]] * 10}
TEXTS = {"x": ["one two"] * 10, "z": ["three four"] * 10}


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        (
            LISTS,
            {"fields": {"x": "cat"}},
            "data.fields.x: kind 'cat' is unknown; it must be one of category, number, set, text, time, tree",
        ),
        (LISTS, {"fields": {"qq": "category"}}, r"t.csv: no column 'qq' \(data.fields.qq\); its columns are label, x"),
        (LISTS, {"fields": {"label": "category"}}, "column 'label' is the label; it cannot be a field too"),
        (
            LISTS,
            {"fields": {"id": {"kind": "number", "column": "x"}}},
            r"data.fields.id: .*rename it: \"data.fields={my_name: ",
        ),
        (TEXTS, {}, r"t.csv: cannot tell which columns hold the tokens \(.*: x, z\); name them: data.fields.COLUMN="),
    ],
)
def test_invalid_options_are_named(columns, options, message):
    with pytest.raises(InputError, match=message) as caught:
        schema(columns, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("kind", "option", "message"),
    [
        ("number", {"min_count": 3}, "a number field has no option 'min_count'; it takes clip, log"),
        ("number", {"clip": 0}, r"data\.fields\.x\.clip=0: must be a number above 0"),
        ("category", {"min_count": "x"}, "data.fields.x.min_count=x: must be a whole number from 1"),
        ("category", {"separator": ""}, "data.fields.x.separator=: must be a text of one character or more"),
        ("number", {"scale": "max"}, "data.fields.x.scale=max: must be standard, robust, sequence or none"),
        ("text", {"lowercase": "no"}, "data.fields.x.lowercase=no: must be true or false"),
    ],
)
def test_invalid_field_options_are_named(kind, option, message):
    with pytest.raises(InputError, match=message):
        schema({"x": ["one two"] * 10}, fields={"x": {"kind": kind, **option}})


TIMES = pa.array([[1700000000000, 1700000060000]] * 4, pa.list_(pa.timestamp("ms")))


@pytest.mark.parametrize(
    ("cells", "separator", "kind"),
    [
        (TIMES, None, "time"),
        (pa.array([["2024-01-01T10:00:00Z", "2024-01-02"]] * 4), None, "time"),
        (pa.array(["2024-01-01 2024-01-02"] * 4), " ", "time"),
        (pa.array([["2024-01-01", "none of these"]] * 4), None, "category"),
        (pa.array(["1.5 NA 3"] * 4), " ", "number"),
        (pa.array([[1.5, None, 3.0]] * 4), None, "number"),
        (pa.array([[[1.5, 2.0], [None, 3.0]]] * 4), None, "number"),
        (pa.array(["15 NA 3"] * 4), " ", "category"),
    ],
)
def test_lists_of_times_and_of_numbers_with_gaps_are_inferred(cells, separator, kind):
    (field,) = schema({"x": cells, "label": ["a", "b"] * 2}, list_separator=separator).fields
    assert field.kind == kind
    missing = {"number": "last", "category": "value" if separator else None}.get(kind)
    assert field.options.get("missing") == missing


def test_lists_without_gaps_have_no_option_for_them():
    (field,) = schema({"x": pa.array([[1.5, 3.0]] * 4), "label": ["a", "b"] * 2}).fields
    assert field.options == {}


@pytest.mark.parametrize(("cells", "kind"), [(["1.5", "NA", "?"], "number"), (["15", "NA", "3"], "category")])
def test_words_for_missing_values_do_not_make_numbers_categories(cells, kind):
    (field,) = schema({"g": [1, 1, 2], "x": cells, "label": ["a", "a", "b"]}, group_by=("g",)).fields
    assert field.kind == kind
    if kind == "number":
        assert field.options["missing"] == "last"
