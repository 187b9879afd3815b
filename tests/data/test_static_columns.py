"""Static fields: the columns that are found, those that are declared, and rows that contradict them."""

import json

import numpy as np
import pyarrow as pa
import pytest
from support.table_files import write

from seqclf.data.encoding.declaration import stored_field
from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError

SEQUENCES = 60
COUNTRIES = ("de", "fr", "it")


def events(seed=0, sequences=SEQUENCES, **per_sequence):
    """An event table with columns that repeat a value of each sequence: country, age and those of `per_sequence`."""
    generator = np.random.default_rng(seed)
    owner = np.repeat(np.arange(sequences), generator.integers(3, 8, sequences))
    values = {
        "country": [COUNTRIES[row] for row in generator.integers(0, 3, sequences)],
        "age": [float(age) / 2 for age in generator.integers(36, 180, sequences)],
        **per_sequence,
        "label": [f"k{row % 2}" for row in range(sequences)],
    }
    return {
        "id": owner.tolist(),
        "shop": generator.choice(list("abcd"), len(owner)).tolist(),
        **{name: [column[row] for row in owner] for name, column in values.items()},
    }


def of_sequences(columns, name):
    """The value of each sequence of an event table."""
    return dict(zip(columns["id"], columns[name], strict=True))


@pytest.fixture
def make(options, tmp_path):
    """`make(columns, …)`: the data set of a table written to a file, in a new cache."""

    def build(columns, name="t.parquet", **overrides):
        path = write(tmp_path / name, columns)
        given = {"label": "label", "cache_dir": tmp_path / "cache", "group_by": "id", **overrides}
        return prepare(options(**{"train": path, **given}))

    return build


def kinds(dataset):
    return {field.name: field.kind for field in dataset.schema.fields if field.static}


def values(dataset, name):
    """Dict id → encoded value of a static field, of all splits."""
    found = {}
    for split in dataset.splits.values():
        found |= dict(zip(split.ids.to_pylist(), np.asarray(split.sequences.static[name]).tolist(), strict=True))
    return found


# Columns that are found


@pytest.mark.parametrize("name", ["t.parquet", "t.csv", "t.jsonl"])
def test_columns_that_never_vary_within_a_sequence_are_static_in_every_format(make, name):
    columns = events()
    dataset = make(columns, name)
    assert kinds(dataset) == {"country": "category", "age": "number"}
    assert [field.name for field in dataset.schema.token_fields] == ["shop"]
    assert any("country (category), age (number)" in note for note in dataset.notes)
    encoder = dataset.encoders["country"]
    decoded = {id: encoder.decode({"country": np.array([code])})[0] for id, code in values(dataset, "country").items()}
    assert decoded == {str(id): country for id, country in of_sequences(columns, "country").items()}
    ages = of_sequences(columns, "age")
    train = [ages[int(id)] for id in dataset.splits["train"].ids.to_pylist()]
    scaled = values(dataset, "age")
    for id, age in ages.items():
        assert scaled[str(id)] == [pytest.approx((age - np.mean(train)) / np.std(train), abs=1e-5)]


def test_a_static_value_is_encoded_as_the_token_of_the_old_data_set(make):
    columns = events()
    static, tokens = make(columns), make(columns, fields={"country": "category", "age": "number"}, infer=True)
    assert kinds(tokens) == {}
    for name in ("country", "age"):
        for of_static, of_tokens in zip(static.splits.values(), tokens.splits.values(), strict=True):
            lengths = of_tokens.sequences.lengths
            first = np.asarray(of_tokens.sequences.fields[name])[of_tokens.sequences.offsets[:-1]]
            assert of_static.ids.equals(of_tokens.ids) and np.array_equal(of_static.sequences.lengths, lengths)
            if name == "country":
                assert np.array_equal(of_static.sequences.static[name], first)
            else:  # the mean of sequences is not that of events, but the order of the ages is
                assert np.array_equal(np.argsort(of_static.sequences.static[name][:, 0]), np.argsort(first[:, 0]))


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        ([row % 4 for row in range(SEQUENCES)], "category"),  # few whole numbers are codes
        ([1930 + row % 25 for row in range(SEQUENCES)], "number"),  # many are numbers
        ([row % 2 == 0 for row in range(SEQUENCES)], "category"),
        ([-(row % 4) for row in range(SEQUENCES)], "number"),
        ([f"0{row % 5}" for row in range(SEQUENCES)], "category"),
        (list(range(SEQUENCES)), None),  # an id, whose values ascend like those of a clock
        (list(range(SEQUENCES))[::-1], None),
        ([f"u{row}" for row in range(SEQUENCES)], None),
        (["same"] * SEQUENCES, None),
        ([f"2020-01-{1 + row % 20:02}" for row in range(SEQUENCES)], None),
    ],
)
@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_kind_of_a_column_with_one_value_per_sequence(make, column, kind, name):
    assert kinds(make(events(more=column), name)).get("more") == kind


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
def test_many_ascending_ids_are_no_static_numbers(make, name):
    """More than 100 ascending integers look like a clock."""
    columns = events(sequences=200, customer=list(range(1000, 1200)), price=[row + 0.5 for row in range(200)])
    assert kinds(make(columns, name)) == {"country": "category", "age": "number", "price": "number"}


def test_a_column_that_varies_in_one_late_sequence_is_not_static(make):
    columns = events(sequences=2000)
    columns["country"][-1] = "at"
    assert kinds(make(columns)) == {"age": "number"}


def test_a_column_that_may_be_constant_by_chance_is_not_static(make):
    """A token that is nearly always the same is the same within nearly every sequence."""
    rare = ["q"] + ["p"] * (SEQUENCES - 1)
    assert "skewed" not in kinds(make(events(skewed=rare)))
    assert "skewed" in kinds(make(events(skewed=rare * 30, sequences=SEQUENCES * 30)))


def test_gaps_of_whole_sequences_are_static_and_gaps_within_are_not(make):
    ages = [None if row % 5 == 0 else row / 7 for row in range(SEQUENCES)]
    wards = [None if row % 5 == 0 else f"w{row % 3}" for row in range(SEQUENCES)]
    columns = events(height=ages, ward=wards)
    columns["sparse"] = [
        "x" if row == 0 or columns["id"][row] != columns["id"][row - 1] else None for row in range(len(columns["id"]))
    ]
    dataset = make(columns)
    assert kinds(dataset) == {"country": "category", "age": "number", "height": "number", "ward": "category"}
    assert dataset.schema.fields[-2].options == {"missing": "mean"}
    assert sum(counts.used for counts in dataset.report.values()) == SEQUENCES


@pytest.mark.parametrize("name", ["t.parquet", "t.csv"])
@pytest.mark.parametrize(("value", "kind"), [(1 / 7, "number"), (1, "category"), ("w", "category")])
def test_gaps_that_only_late_rows_have_refuse_no_row(make, name, value, kind):
    sequences = 2000  # more events than the first rows that kinds are inferred from
    late = [value * (row % 7) if row < sequences - 9 else None for row in range(sequences)]
    dataset = make(events(sequences=sequences, late=late), name)
    assert kinds(dataset)["late"] == kind
    assert sum(counts.used for counts in dataset.report.values()) == sequences


@pytest.mark.parametrize("name", ["t.parquet", "t.jsonl"])
def test_scalar_columns_of_a_table_of_sequences_are_static(make, name):
    columns = {
        "x": [[float(row), 1.5] for row in range(SEQUENCES)],
        "stars": [row % 5 for row in range(SEQUENCES)],
        "price": [row / 7 for row in range(SEQUENCES)],
        "number": list(range(SEQUENCES)),
        "speaker": [f"s{row % 9}" for row in range(SEQUENCES)],
        "label": [f"k{row % 2}" for row in range(SEQUENCES)],
    }
    dataset = make(columns, name, group_by=None, group="speaker")
    assert kinds(dataset) == {"stars": "category", "price": "number"}
    assert dataset.schema.ignored == ("number", "speaker")
    declared = make(columns, name, group_by=None, group="speaker", fields={"x": "number"}, infer=False)
    assert declared.schema.ignored == ("stars", "price", "number", "speaker")


def test_scalar_columns_beside_a_text_are_static(make):
    columns = {
        "text": [f"word{row % 7} and word{row % 3}" for row in range(SEQUENCES)],
        "stars": [row % 5 for row in range(SEQUENCES)],
        "label": [f"k{row % 2}" for row in range(SEQUENCES)],
    }
    dataset = make(columns, group_by=None)
    assert kinds(dataset) == {"stars": "category"} and dataset.schema.fields[0].kind == "text"
    assert {array.dtype for split in dataset.splits.values() for array in split.sequences.static.values()} == {
        np.dtype(np.int32)
    }


def test_a_field_that_is_declared_leaves_the_others_as_they_are(make):
    assert kinds(make(events(), fields={"shop": "category"}, infer=True)) == {"country": "category", "age": "number"}
    assert kinds(make(events(), static={"age": "category"})) == {"country": "category", "age": "category"}
    assert kinds(make(events(), ignore=["age"])) == {"country": "category"}
    assert kinds(make(events(), fields={"shop": "category"}, infer=False)) == {}


# Fields that are declared


def test_declared_fields_take_a_column_and_options(make):
    static = {"home": {"kind": "category", "column": "country", "min_count": 1}, "age": {"kind": "number", "log": True}}
    dataset = make(events(), fields={"shop": "category"}, static=static)
    assert kinds(dataset) == {"home": "category", "age": "number"}
    assert dataset.encoders["home"].field.columns == ("country",)


@pytest.mark.parametrize(
    ("static", "message"),
    [
        ({"country": "time"}, "data.static.country: a time field has a value of each token; a static field is one of"),
        ({"a": {"kind": "number", "columns": ["age", "id"]}}, "data.static.a: a number field has one column"),
        ({"age": {"kind": "number", "since": "tokens"}}, "a static number field has no option 'since'"),
        ({"age": {"kind": "number", "scale": "sequence"}}, "data.static.age.scale=sequence: is about several values"),
        ({"shop": {"kind": "number", "column": "age"}}, "data.static: has the name of a field of data.fields"),
        ({"nope": "number"}, r"no column 'nope' \(data.static.nope\)"),
    ],
)
def test_declarations_that_cannot_be(make, static, message):
    with pytest.raises(InputError, match=message):
        make(events(), fields={"shop": "category"}, static=static)


def test_a_value_that_changes_within_a_sequence_refuses_the_row_and_names_the_values(make, tmp_path):
    columns = events()
    columns["country"][1] = "at"
    dataset = make(columns, fields={"shop": "category"}, static={"country": "category"}, max_bad_share=0.1)
    assert sum(counts.used for counts in dataset.report.values()) == SEQUENCES - 1
    [line] = next((tmp_path / "cache").rglob("quarantine.jsonl")).read_text().splitlines()
    first = columns["country"][0]
    assert json.loads(line)["reason"].startswith(f"changes within the sequence ({first}, at")
    assert "data.static.country" in line


def test_a_value_that_some_events_lack_is_that_of_the_others(make):
    columns = events()
    changed = {**columns, "country": ["" if row % 2 else name for row, name in enumerate(columns["country"])]}
    changed["country"] = pa.array([name or None for name in changed["country"]])
    given = {"fields": {"shop": "category"}, "static": {"country": "category"}}
    assert values(make(changed, **given), "country") == values(make(columns, "u.parquet", **given), "country")


def test_a_missing_number_is_refused_unless_it_may_be_missing(make):
    columns = events(height=[None if row == 3 else row / 7 for row in range(SEQUENCES)])
    given = {"fields": {"shop": "category"}, "max_bad_share": 0.5}
    refused = make(columns, **given, static={"height": "number"})
    assert sum(counts.used for counts in refused.report.values()) == SEQUENCES - 1
    dataset = make(columns, **given, static={"height": {"kind": "number", "missing": "mean"}})
    value = values(dataset, "height")
    assert value["3"] == [0.0, 0.0] and value["4"][1] == 1.0  # the mean, with a mask


def test_a_number_that_stands_for_missing(make):
    columns = events(height=[-1.0 if row == 3 else row / 7 for row in range(SEQUENCES)])
    static = {"height": {"kind": "number", "missing": "mean", "missing_values": [-1]}}
    assert values(make(columns, fields={"shop": "category"}, static=static), "height")["3"] == [0.0, 0.0]


# Fields of the label table


@pytest.fixture
def tables(tmp_path):
    """The columns of an event table, and the path of its label table, which has the static values."""
    columns = events()
    owners = {name: list(of_sequences(columns, name).values()) for name in ("id", "country", "age", "label")}
    return {name: columns[name] for name in ("id", "shop")}, write(tmp_path / "labels.csv", owners), columns


def test_static_fields_of_the_label_table_are_those_of_the_events(make, tables):
    columns, labels, repeated = tables
    static = {"age": "number", "home": {"kind": "category", "column": "country"}}
    joined = make(columns, labels=labels, static=static)
    assert kinds(joined) == {"age": "number", "home": "category"}
    assert list(joined.encoders) == ["shop", "age", "home"]
    whole = make({**repeated}, "u.parquet", static=static)
    for name in static:
        assert values(joined, name) == values(whole, name)


def test_a_static_field_of_events_and_label_table_is_that_of_the_events(make, tables):
    columns, labels, repeated = tables
    ages = [age + 10 * (row % 2) for age, row in zip(repeated["age"], repeated["id"], strict=True)]
    events_win = make({**columns, "age": ages}, labels=labels, static={"age": "number"})
    alone = make({**repeated, "age": ages}, "u.parquet", static={"age": "number"})
    assert values(events_win, "age") == values(alone, "age")


def test_an_id_with_two_static_values_in_the_label_table_is_refused(make, tables):
    columns, labels, _ = tables
    id, _, *others = labels.read_text().splitlines()[1].split(",")
    labels.write_text(labels.read_text() + ",".join([id, "elsewhere", *others]) + "\n")
    static = {"home": {"kind": "category", "column": "country"}}
    with pytest.raises(InputError, match=r"'0' has two values of country, .* and elsewhere"):
        make(columns, labels=labels, static=static)
    assert kinds(make(columns, labels=labels, static={"age": "number"})) == {"age": "number"}


def test_the_label_table_gives_no_static_field_that_is_not_declared(make, tables):
    columns, labels, _ = tables
    assert kinds(make(columns, labels=labels)) == {}


def test_columns_of_a_static_field_of_the_label_table_may_be_a_list(make, tables):
    columns, labels, _ = tables
    assert kinds(make(columns, labels=labels, static={"home": {"kind": "category", "column": ["country"]}})) == {
        "home": "category"
    }


def test_rows_that_differ_in_a_static_value_only_are_no_duplicates(make):
    columns = {
        "x": [[float(row % 5), 2.0] for row in range(60)],
        "ward": [f"w{row // 10}" for row in range(60)],
        "label": [f"k{row % 2}" for row in range(60)],
    }
    given = {"group_by": None, "fields": {"x": "number"}, "infer": False}
    assert make(columns, **given).leaks.distinct == 5
    assert make(columns, **given, static={"ward": "category"}).leaks.distinct == 30


def test_a_stored_field_of_a_bundle_without_the_key_is_one_of_tokens():
    state = {"kind": "number", "columns": ["x"], "values": "text", "width": 1, "separator": None, "options": {}}
    assert not stored_field({"name": "x", **state}, "schema.fields[0]").static
    assert stored_field({"name": "x", **state, "static": True}, "schema.fields[0]").static
