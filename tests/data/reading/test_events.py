"""Event tables: whatever order and format the rows come in, each group becomes one sequence, whole and sorted."""

import itertools
import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.table_files import read, write

from seqclf.data.prepare_data import prepare
from seqclf.data.reading import events
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field, Schema
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.runs.overview import show_dataset

is_sorted = events._is_sorted
FIELDS = {"gap": {"kind": "time", "column": "time"}, "shop": "category", "amount": {"kind": "number", "scale": "none"}}


def table(groups=20, seed=0):
    """Events of `groups` cards in a random order, several at the same time."""
    generator = np.random.default_rng(seed)
    rows = []
    for card in range(groups):
        for _ in range(int(generator.integers(1, 6))):
            rows.append((card, int(generator.integers(0, 4)), f"s{generator.integers(0, 5)}", float(len(rows))))
    order = generator.permutation(len(rows))
    cards, times, shops, amounts = zip(*(rows[position] for position in order), strict=True)
    fraud = ["yes" if card % 2 else "no" for card in cards]
    return {"card": list(cards), "time": list(times), "shop": list(shops), "amount": list(amounts), "fraud": fraud}


def expected(columns):
    """Card → its (time, shop, amount), sorted by time and then by file order. Computed by a plain loop."""
    result = {}
    for card, time, shop, amount in zip(*(columns[name] for name in ("card", "time", "shop", "amount")), strict=True):
        result.setdefault(card, []).append((time, shop, amount))
    return {card: sorted(tokens, key=lambda token: token[0]) for card, tokens in result.items()}


def decoded(dataset):
    """Card → its (shop, amount) steps, of all splits."""
    shops = dataset.encoders["shop"].vocabulary.values.to_pylist()
    result = {}
    for split in dataset.splits.values():
        for row, card in enumerate(split.ids.to_pylist()):
            tokens = slice(split.sequences.offsets[row], split.sequences.offsets[row + 1])
            ids = split.sequences.fields["shop"][tokens]
            amounts = split.sequences.fields["amount"][tokens, 0]
            result[card] = [(shops[id - 1] if id else None, float(a)) for id, a in zip(ids, amounts, strict=True)]
    return result


def grouped(options, path, **overrides):
    given = {"label": "fraud", "group_by": "card", "order_by": "time", "fields": FIELDS, **overrides}
    return prepare(options(train=path, **given))


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl", "arrow"])
def test_every_group_is_one_sequence_sorted_by_time_then_by_file_order(options, tmp_path, kind):
    columns = table()
    dataset = grouped(options, write(tmp_path / f"t.{kind}", columns))
    result = decoded(dataset)
    assert len(result) == 20
    for card, tokens in expected(columns).items():
        for (shop, amount), (_, true_shop, true_amount) in zip(result[str(card)], tokens, strict=True):
            assert amount == true_amount and shop in (true_shop, None)  # None: never seen in train
    counts = dataset.report["train"]
    assert counts.events == len(columns["card"]) and counts.refused_events == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(1, 7))
def test_groups_are_cut_exactly_where_the_key_changes(keys, size):
    keys = sorted(keys)
    batch = pa.record_batch({"group 0": keys, "x": list(range(len(keys)))})
    parts = [batch.slice(start, size) for start in range(0, len(keys), size)]
    result = list(events._whole_groups(parts, 1))
    assert [x for part in result for x in part.column("x").to_pylist()] == list(range(len(keys)))
    ends = [part.column("group 0").to_pylist() for part in result]
    assert all(one[-1] != other[0] for one, other in itertools.pairwise(ends))


@given(st.data(), st.integers(0, 12))
def test_a_sorted_table_is_recognised(data, count):
    def draw(kind):
        return data.draw(st.lists(kind, min_size=count, max_size=count))

    keys, times = draw(st.sampled_from("abc")), draw(st.floats(0, 3))
    rows = list(zip(keys, times, strict=True))
    columns = [pa.array(keys, pa.string()), pa.array(times, pa.float64())]
    assert events._ascends(columns) == (rows == sorted(rows))
    ordered = sorted(rows)
    assert events._ascends([pa.array([row[0] for row in ordered], pa.string())])


def test_nan_counts_as_falling_so_that_duckdb_sorts_it_last(tmp_path):
    assert not events._ascends([pa.array([3.0, math.nan, 1.0])])
    path = write(tmp_path / "t.parquet", {"g": [1, 1, 1], "t": [3.0, math.nan, 1.0], "x": [3, 9, 1]})
    schema = Schema((Field("x", "category", ("x",), "integer"),), group_by=("g",), order_by=("t",))
    (batch,) = read(Source(str(path), "data.train"), schema)
    assert batch.columns["x"].to_pylist() == [[1, 3, 9]]


def test_a_sorted_table_is_read_without_sorting_and_gives_the_same_data(options, tmp_path, monkeypatch):
    columns = table()
    order = sorted(range(len(columns["card"])), key=lambda row: (columns["card"][row], columns["time"][row]))
    ascending = {name: [values[row] for row in order] for name, values in columns.items()}
    path = write(tmp_path / "t.parquet", ascending)
    seen = []
    monkeypatch.setattr(events, "_is_sorted", lambda *given: seen.append(is_sorted(*given)) or seen[-1])
    one = grouped(options, path, cache_dir=tmp_path / "one")
    monkeypatch.setattr(events, "_is_sorted", lambda *given: False)
    assert grouped(options, path, cache_dir=tmp_path / "two").digest == one.digest and seen == [True]


def test_text_columns_with_many_values_are_read_like_those_with_few(options, tmp_path, monkeypatch):
    """Few values are read as an enumeration, many as they are."""
    path = write(tmp_path / "t.parquet", table())
    few = grouped(options, path, cache_dir=tmp_path / "few")
    monkeypatch.setattr(events, "MAX_ENUMERATION_VALUES", 1)
    assert grouped(options, path, cache_dir=tmp_path / "many").digest == few.digest


def test_several_columns_can_make_the_key(options, tmp_path):
    columns = table()
    columns["day"] = [None if row < 4 else row % 2 for row in range(len(columns["card"]))]
    path = write(tmp_path / "t.parquet", columns)
    dataset = grouped(options, path, group_by=["card", "day"], max_bad_share=1)
    keys = {f"{card} | {day}" for card, day in zip(columns["card"][4:], columns["day"][4:], strict=True)}
    assert {id for split in dataset.splits.values() for id in split.ids.to_pylist()} == keys
    refused = [json.loads(line) for line in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert sum(entry["events"] for entry in refused) == 4


def test_several_files_are_one_table(options, tmp_path):
    columns = table()
    half = len(columns["card"]) // 2
    for name, part in (("a", slice(0, half)), ("b", slice(half, None))):
        write(tmp_path / f"{name}.parquet", {key: values[part] for key, values in columns.items()})
    one = grouped(options, write(tmp_path / "t.parquet", columns), cache_dir=tmp_path / "one")
    assert grouped(options, tmp_path / "[ab].parquet", cache_dir=tmp_path / "two").digest == one.digest


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize(
    ("column", "value", "reason"),
    [
        ("amount", None, "has an element that is missing"),
        ("amount", "inf", "has NaN, an infinite number, one beyond float32, or text that is not a number"),
        ("shop", None, "has an element that is missing"),
        ("time", None, "has an element that is missing"),
        ("fraud", "maybe", "is empty, or differs between the events of a group"),
    ],
)
def test_a_bad_event_refuses_its_group_and_is_named(options, tmp_path, kind, column, value, reason):
    columns = table()
    position = columns["card"].index(max(set(columns["card"]), key=columns["card"].count))
    value = float("inf") if value == "inf" and kind == "parquet" else value
    columns[column] = [value if row == position else entry for row, entry in enumerate(columns[column])]
    dataset = grouped(options, write(tmp_path / f"t.{kind}", columns), max_bad_share=0.5)
    (line,) = (dataset.folder / "quarantine.jsonl").read_text().splitlines()
    refusal = json.loads(line)
    assert refusal["column"] == column and refusal["reason"].startswith(reason)
    lost = columns["card"].count(columns["card"][position])
    assert refusal["events"] == lost and dataset.report["train"].refused_events == lost
    if column != "fraud":
        assert refusal["row"] == position + 1
    used = sum(len(split.sequences) for split in dataset.splits.values())
    assert used + 1 == len(set(columns["card"])) and refusal["row"] - 1 < len(columns["card"])


def test_text_that_is_no_number_refuses_and_empty_cells_are_missing_values(options, tmp_path):
    columns = table()
    columns["amount"] = ["" if row % 3 == 0 else str(value) for row, value in enumerate(columns["amount"])]
    fields = {**FIELDS, "amount": {"kind": "number", "missing": "last", "scale": "none"}}
    good = grouped(options, write(tmp_path / "t.csv", columns), fields=fields)
    assert good.report["train"].refused == 0
    columns["amount"][1] = "much"
    bad = grouped(options, write(tmp_path / "u.csv", columns), fields=fields)
    assert json.loads((bad.folder / "quarantine.jsonl").read_text())["row"] == 2


@pytest.mark.parametrize(
    ("kind", "missing"), [("parquet", None), ("parquet", math.nan), ("parquet", " "), ("csv", None), ("csv", " ")]
)
def test_events_without_a_group_are_refused(options, tmp_path, kind, missing):
    columns = table()
    spell = {float: float, str: "c{}".format}.get(type(missing), int)
    columns["card"] = [missing if row < 3 else spell(card) for row, card in enumerate(columns["card"])]
    dataset = grouped(options, write(tmp_path / f"t.{kind}", columns), max_bad_share=1)
    refused = [json.loads(line) for line in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert sum(entry["events"] for entry in refused) == 3 and {entry["column"] for entry in refused} == {"card"}
    assert not any({str(missing), None} & set(split.ids.to_pylist()) for split in dataset.splits.values())


def test_a_malformed_line_of_an_event_table_counts_as_a_lost_event(options, tmp_path):
    columns = table()
    path = write(tmp_path / "t.csv", columns)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([*lines[:5], '"1"', *lines[5:], ""]))
    dataset = grouped(options, path, max_bad_share=0.05)
    assert '"line": 6' in (dataset.folder / "quarantine.jsonl").read_text()
    counts = dataset.report["train"]
    assert (counts.events, counts.refused_events, counts.refused) == (len(columns["card"]) + 1, 1, 0)
    with console.capture() as captured:
        show_dataset(dataset)
    assert f" 1 of {counts.events} events" in captured.get() and "quarantine.jsonl" in captured.get()


def test_numbers_of_groups_do_not_count_as_shared_ids(options, tmp_path):
    train, test = (write(tmp_path / f"{name}.parquet", table(seed=seed)) for name, seed in (("a", 0), ("b", 1)))
    assert grouped(options, train, test=test).leaks.ids_seen_before is None


def test_partitioned_parquet_keeps_its_partition_columns(options, tmp_path):
    columns = pa.table(table())
    for label in ("yes", "no"):
        part_table = columns.filter(pa.compute.equal(columns["fraud"], label)).drop(["fraud"])
        (tmp_path / "t" / f"fraud={label}").mkdir(parents=True)
        pq.write_table(part_table, tmp_path / "t" / f"fraud={label}" / "part.parquet")
    dataset = grouped(options, f"{tmp_path}/t/**/*.parquet")
    assert dataset.classes == ["no", "yes"] and len(decoded(dataset)) == 20


def test_a_row_of_lists_is_no_event(options, tmp_path):
    columns = {"card": [1, 2], "x": [[1], [2]], "fraud": ["a", "b"]}
    with pytest.raises(InputError, match=r"column 'x' holds BIGINT\[\], but with data.group_by a row is one event"):
        grouped(options, write(tmp_path / "t.parquet", columns), fields={"x": "category"}, order_by=None)


def test_ids_other_than_the_group_are_compared_across_splits_of_one_table(options, tmp_path):
    stays = [stay for stay in range(40) for _ in range(3)]
    table = {
        "stay": [f"s{stay}" for stay in stays],
        "patient": [f"p{stay // 4}" for stay in stays],
        "k": [f"k{(stay * 7 + position) % 31}" for position, stay in enumerate(stays)],
        "outcome": ["xy"[stay % 2] for stay in stays],
    }
    path = write(tmp_path / "t.parquet", table)
    schema_options = {"train": path, "label": "outcome", "group_by": "stay", "fields": {"k": "category"}}
    seen = prepare(options(**schema_options, id="patient")).leaks.ids_seen_before
    assert seen["validation"] == 8, "four stays a patient: each of the eight validation rows has one in train"
    with pytest.raises(InputError, match="rows of validation have an id"):
        prepare(options(**schema_options, id="patient", split={"on_leak": "error"}))
    assert prepare(options(**schema_options)).leaks.ids_seen_before is None


def test_a_group_that_changes_inside_a_sequence_is_refused(options, tmp_path):
    table = {
        "stay": [f"s{stay}" for stay in range(30) for _ in range(3)],
        "site": ["a", "b", "b"] * 30,
        "k": ["x", "y", "z"] * 30,
        "outcome": ["xy"[stay % 2] for stay in range(30) for _ in range(3)],
    }
    path = write(tmp_path / "t.parquet", table)
    schema_options = {"train": path, "label": "outcome", "group_by": "stay", "fields": {"k": "category"}}
    with pytest.raises(InputError, match=r"data.group: changes inside the sequence 's0'; name a column"):
        prepare(options(**schema_options, group="site", split={"by": "group"}))


def ordered(options, path, cells, kind="csv", **keys):
    """The order in which three events of each of ten cards come. `cells`: of the column that orders."""
    rows = [(card, cell, position) for position, cell in reversed(list(enumerate(cells))) for card in range(10)]
    columns = {
        "card": [row[0] for row in rows],
        "at": [row[1] for row in rows],
        "y": ["ab"[row[0] % 2] for row in rows],
    }
    path = write(path / f"t.{kind}", {**columns, "n": [float(row[2]) for row in rows]})
    fields = {"n": {"kind": "number", "scale": "none"}}
    schema = {
        "label": "y",
        "group_by": "card",
        "order_by": "at",
        "fields": fields,
        "infer": False,
        "split": {"seed": 1},
    }
    dataset = prepare(options(train=path, **{**schema, **keys}))
    split = dataset.splits["train"]
    return dataset, split.sequences.fields["n"][: split.sequences.offsets[1], 0].tolist()


FORMATS = [
    (["20.11.2022", "05.03.2023", "28.02.2024"], "%d.%m.%Y"),
    (["2023-01-01 9:15 AM", "2023-01-01 11:00 AM", "2023-01-01 01:30 PM"], "%Y-%m-%d %I:%M %p"),
    # Zoned times, whose local clocks are in another order than the times.
    (
        ["10/Oct/2000:13:55:36 +0900", "10/Oct/2000:10:55:36 -0100", "10/Oct/2000:09:00:00 -0700"],
        "%d/%b/%Y:%H:%M:%S %z",
    ),
    (["Oct 10 13:55 Japan 2000", "Oct 10 12:00 UTC 2000", "Oct 10 09:00 EST 2000"], "%b %d %H:%M %Z %Y"),
]


@pytest.mark.parametrize(("cells", "pattern"), FORMATS)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_text_of_no_known_order_is_refused_and_sorted_by_its_format(options, tmp_path, cells, pattern, kind):
    with pytest.raises(InputError) as caught:
        ordered(options, tmp_path, cells, kind)
    assert caught.value.where == f"{tmp_path / f't.{kind}'}: row 1" and "data.order_format=" in str(caught.value)
    assert ordered(options, tmp_path, cells, kind, order_format=pattern)[1] == [0.0, 1.0, 2.0]


def test_text_is_sorted_by_its_letters_where_that_is_asked_for(options, tmp_path):
    cells = ["ev18", "ev9", "ev90"]
    with pytest.raises(InputError) as caught:
        ordered(options, tmp_path, cells)
    assert "data.order_format=text" in str(caught.value)
    assert ordered(options, tmp_path, cells, order_format="text")[1] == [0.0, 1.0, 2.0]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("with_field", [False, True])
def test_a_bad_time_refuses_its_sequence_alone(options, tmp_path, kind, with_field):
    columns = table()
    columns["time"] = [f"2024-01-01 00:{row // 60:02}:{row % 60:02}" for row in range(len(columns["card"]))]
    columns["time"][7] = "yesterday"
    fields = {"at": {"kind": "time", "column": "time"}} if with_field else {}
    path = write(tmp_path / f"t.{kind}", columns)
    dataset = grouped(options, path, fields={**fields, "n": {"kind": "category", "column": "shop"}}, max_bad_share=1)
    (refused,) = [json.loads(line) for line in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert refused["row"] == 8 and refused["column"] == "time" and "yesterday" in refused["reason"]
    assert refused["events"] == columns["card"].count(columns["card"][7])
    assert sum(len(split.labels) for split in dataset.splits.values()) == len(set(columns["card"])) - 1


@pytest.mark.parametrize("cells", [["1", "2", "NA"], ["9:05", "20:00", "100:30"]])
def test_missing_cells_come_last_and_clock_times_are_no_text(options, tmp_path, cells):
    assert ordered(options, tmp_path, cells)[1] == [0.0, 1.0, 2.0]


def test_inferred_fields_of_the_order_are_read_by_its_format(options, tmp_path):
    cells, pattern = FORMATS[0]
    dataset, _ = ordered(options, tmp_path, cells, fields=None, infer=True, order_format=pattern)
    at = dataset.schema.fields[0]
    assert (at.name, at.kind, at.options["format"]) == ("at", "time", pattern)
    gaps = dataset.encoders["at"].gaps_of({"at": np.asarray(dataset.splits["train"].sequences.fields["at"])[:3]})
    np.testing.assert_allclose(gaps / 86400, [0, 105, 360], rtol=1e-5)
    assert dataset.encoders["at"].from_python(["05.03.2023"]) == [1677974400.0]
    dataset, _ = ordered(options, tmp_path, ["a", "b", "c"], fields=None, infer=True, order_format="text")
    assert {field.name: field.kind for field in dataset.schema.fields}["at"] == "category"


@pytest.mark.parametrize("value", ["dd.mm.yyyy", "%Q", "letters", "%d.%d", "%d.%m.%Y %", "%z %q"])
def test_a_format_that_is_none_is_refused(options, tmp_path, value):
    with pytest.raises(InputError) as caught:
        ordered(options, tmp_path, ["1", "2", "3"], order_format=value)
    assert caught.value.where.startswith("data.order_format") and "must be a format of times" in caught.value.problem


@pytest.mark.parametrize("ordered_by", [None, "patient"])
def test_the_column_of_the_groups_is_no_inferred_field(options, tmp_path, ordered_by):
    columns = {**table(), "patient": [card // 2 for card in table()["card"]]}
    keys = {"group": "patient", "split": {"by": "group", "seed": 1}}
    order = ["time"] if ordered_by is None else ["patient", "time"]
    path = write(tmp_path / "t.parquet", columns)
    dataset = grouped(options, path, fields=None, **keys, order_by=order)
    names = {field.name for field in dataset.schema.fields}
    assert ("patient" in names) is (ordered_by is not None) and {"time", "shop", "amount"} <= names
    named = grouped(options, path, fields={"patient": "category"}, infer=True, **keys, cache_dir=tmp_path / "named")
    assert {field.name for field in named.schema.fields} == names | {"patient"}


def event_kinds(options, tmp_path, cells):
    rows = len(cells)
    columns = {"row": [row // 2 for row in range(rows)], "x": cells, "y": ["ab"[row // 2 % 2] for row in range(rows)]}
    path = write(tmp_path / "t.csv", columns)
    dataset = prepare(options(train=path, label="y", group_by="row", max_bad_share=0.5))
    return dataset.schema.fields[0].kind, dataset.report["train"].refused


@pytest.mark.parametrize("at", [3, 1500])
@pytest.mark.parametrize("kind", ["number", "time"])
def test_one_odd_cell_costs_its_row_wherever_it_stands(options, tmp_path, at, kind):
    cells = [f"{row % 97 + 0.5}" if kind == "number" else f"2020-01-{row % 28 + 1:02} 10:00:00" for row in range(2000)]
    cells[at] = "err"
    assert event_kinds(options, tmp_path, cells) == (kind, 1)


@pytest.mark.parametrize(("every", "kind"), [(50, "number"), (8, "category")])
def test_many_odd_cells_are_codes(options, tmp_path, every, kind):
    cells = [f"V{row}" if row % every == 0 else f"{row % 97}.5" for row in range(400)]
    assert event_kinds(options, tmp_path, cells)[0] == kind


def test_a_decimal_comma_is_refused_with_the_query_that_mends_it(options, tmp_path):
    cells = [f"{row % 97},5" for row in range(400)]
    with pytest.raises(InputError) as caught:
        event_kinds(options, tmp_path, cells)
    assert "data.query=" in caught.value.remedy
    kinds = event_kinds(options, tmp_path, [f"{row},5,1" for row in range(400)])
    assert kinds[0] == "category"
