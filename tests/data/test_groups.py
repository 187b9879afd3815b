"""`data.group`: what rows belong to is counted whatever the split, and stored with its name."""

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.storage.store import subset
from seqclf.errors import InputError
from seqclf.survey.survey import count_groups

ROWS = 60
KEYS = {"label": "y", "fields": {"x": "category"}}


def table(groups=12, first=0, token=0, **columns):
    """Rows of as many groups, of which every fifth row has none. No two tables of other tokens share a sequence."""
    names = [None if row % 5 == 4 else f"g{first + row % groups}" for row in range(ROWS)]
    times = list(range(first, first + ROWS))
    return {"who": names, "at": times, "y": ["p", "q"] * 30, "x": [[row, token] for row in range(ROWS)], **columns}


def names_of(rows, split):
    return [rows["who"][row - 1] for row in split.row_numbers]


def check_groups(rows, split):
    """Equal names have equal groups, and a row without a name has a group of its own."""
    assert split.group_names.to_pylist() == names_of(rows, split)
    keys = [name or row for name, row in zip(names_of(rows, split), split.row_numbers.tolist(), strict=True)]
    same = np.array(keys, object)[:, None] == np.array(keys, object)
    np.testing.assert_array_equal(split.groups[:, None] == split.groups, same)


@pytest.mark.parametrize("by", ["random", "distinct", "group", "time", "fold"])
def test_every_split_has_its_groups_and_their_names(options, tmp_path, by):
    rows = table()
    path = write(tmp_path / "t.parquet", rows)
    split = {"by": by, "column": "at" if by == "time" else None, "test": 0.2}
    dataset = prepare(options(train=path, group="who", **KEYS, split=split))
    for part in dataset.splits.values():
        check_groups(rows, part)
        check_groups(rows, subset(part, np.arange(len(part.labels))[::-2]))
    seen = {name: set(filter(None, names_of(rows, part))) for name, part in dataset.splits.items()}
    earlier, expected = set(), {}
    for name, part in dataset.splits.items():
        expected[name] = sum(group in earlier for group in names_of(rows, part))
        earlier |= seen[name]
    del expected["train"]
    assert dataset.leaks.groups_seen_before == expected and dataset.leaks.without_group == 12
    apart = by in ("group", "fold")
    assert dataset.leaks.is_apart("test") is apart and (sum(expected.values()) == 0) is apart
    assert any("data.group" in line for line in dataset.leaks.leaks_between_splits()) is not apart
    counts = {name: len(seen[name]) + names_of(rows, part).count(None) for name, part in dataset.splits.items()}
    assert count_groups(dataset.splits) == counts


@pytest.mark.parametrize("by", ["random", "distinct", "time"])
def test_groups_of_given_files_are_compared_and_dropped(options, tmp_path, by):
    tables = {"train": table(), "validation": table(6, 10, 1), "test": table(4, 90, 2)}
    paths = {name: write(tmp_path / f"{name}.parquet", rows) for name, rows in tables.items()}
    split = {"by": by, "column": "at" if by == "time" else None}
    keys = {**KEYS, **paths, "group": "who"}
    dataset = prepare(options(**keys, split=split))
    for name, rows in tables.items():
        check_groups(rows, dataset.splits[name])
    shared = {"g10", "g11"}
    count = sum(name in shared for name in tables["validation"]["who"])
    assert count and dataset.leaks.groups_seen_before == {"validation": count, "test": 0}
    assert not dataset.leaks.is_apart("validation")
    if by == "random":
        dropped = prepare(options(**keys, split={**split, "on_leak": "drop"}))
        assert dropped.leaks.dropped["validation"] == count
        assert not shared & set(dropped.splits["validation"].group_names.to_pylist())
        with pytest.raises(InputError, match="group"):
            prepare(options(**keys, split={**split, "on_leak": "error"}))


def test_a_group_is_the_same_in_files_of_other_types(options, tmp_path):
    """A column of whole numbers with a gap is often written as 1.0, 2.0, …"""
    numbers = [None if name is None else float(name[1:]) for name in table()["who"]]
    files = {"train": table(who=numbers), "test": table(4, 0, 1, who=[row % 4 for row in range(ROWS)])}
    paths = {name: write(tmp_path / f"{name}.parquet", rows) for name, rows in files.items()}
    dataset = prepare(options(**paths, **KEYS, group="who"))
    assert dataset.leaks.groups_seen_before["test"] == ROWS
    assert set(dataset.splits["test"].group_names.to_pylist()) == set("0123")


BIG = 2**53 + 1
SPELLINGS = {
    "t.parquet": [*range(7), BIG],
    "float.parquet": [-0.0, *map(float, range(1, 7)), None],
    "t.csv": ["-0.0", *(f"{number}.0" for number in range(1, 7)), f"{BIG}.0"],
    "t.jsonl": [*map(float, range(7)), f"{BIG}"],
}


@pytest.mark.parametrize("file", SPELLINGS)
@pytest.mark.parametrize("key", ["group", "group_by", "id", "label", "labels"])
def test_keys_are_spelled_alike_in_all_formats(options, tmp_path, file, key):
    """Ids, groups and labels of training and test meet, whichever format writes 1 as 1.0."""
    paths = {}
    for place, (split, name) in enumerate(
        {"train": "t.parquet", "labels" if key == "labels" else "test": file}.items()
    ):
        rows = {"k": SPELLINGS[name] * 8, "x": [[row, place] for row in range(64)], "y": list("ppqqppqq") * 8}
        rows |= {"x": [row % 7 for row in range(64)]} if key == "group_by" else {}
        rows |= {"y": rows["k"]} if key == "label" else {}
        rows |= {"x": rows["y"]} if split == "labels" else {}
        (tmp_path / split).mkdir()
        paths[split] = write(tmp_path / split / name, rows)
    named = {} if key == "label" else {"id" if key == "labels" else key: "k"}
    dataset = prepare(options(**paths, label="y", fields={"x": "category"}, **named, max_bad_share=0.2))
    lost = 8 if file == "float.parquet" else 0
    if key == "labels":
        assert dataset.report["train"].refused == lost
        return
    test = dataset.splits["test"]
    found = {"group": test.group_names, "label": [dataset.classes[label] for label in test.labels]}.get(key, test.ids)
    assert set(np.array(found).tolist()) - {None} == {*map(str, range(7))} | (set() if lost else {str(BIG)})


@pytest.mark.parametrize("texts", [["007", "1.50", "1e3", "x 1.0", "+1", "-1.0", "1_1"]])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_texts_that_are_no_numbers_keep_their_spelling(options, tmp_path, kind, texts):
    rows = {"who": [*texts, "1.0", "1"] * 5, "x": [[row] for row in range(45)], "y": ["p", "q", "q"] * 15}
    splits = prepare(options(train=write(tmp_path / f"t.{kind}", rows), **KEYS, group="who")).splits
    found = {name for split in splits.values() for name in split.group_names.to_pylist()}
    whole = {"1", "-1"} if kind == "csv" else {"1", "1.0", "-1.0"}
    assert found == {*texts} - {"-1.0"} | whole


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("key", ["group", "group_by", "id", "label"])
def test_a_word_such_as_na_is_a_key(options, tmp_path, kind, key):
    words = ["NAN", "NA", "null", "None", "?", "n/a"] * 10
    rows = {"k": words, "x": [row % 7 for row in range(ROWS)] if key == "group_by" else table()["x"]}
    rows["y"] = words if key == "label" else ["pq"[(row % 6) % 2] for row in range(ROWS)]
    keys = {"label": "y", "fields": {"x": "category"}} | ({} if key == "label" else {key: "k"})
    dataset = prepare(options(train=write(tmp_path / f"t.{kind}", rows), **keys))
    column = {"group": "group_names", "label": "labels"}.get(key, "ids")
    found = [value for split in dataset.splits.values() for value in np.array(getattr(split, column)).tolist()]
    found = [dataset.classes[value] for value in found] if key == "label" else found
    assert set(found) == set(words) and dataset.report["train"].refused == 0 and dataset.leaks.without_group == 0
    if key == "id":
        assert dataset.leaks.ids_seen_before["validation"] == len(dataset.splits["validation"].labels)


def test_without_the_key_there_are_no_names(options, tmp_path):
    path = write(tmp_path / "t.parquet", table())
    for by in ("random", "distinct"):
        train = prepare(options(train=path, **KEYS, split={"by": by})).splits["train"]
        assert train.group_names is None and (train.groups is None) is (by == "random")
        assert count_groups({"train": train}) is None


def test_groups_and_times_of_events(options, tmp_path):
    """Three events a stay, of 30 stays and ten patients; the test file lacks the patient."""
    stays = [stay for stay in range(30) for _ in range(3)]
    events = {
        "stay": [f"s{stay:02}" for stay in stays],
        "who": [f"p{stay % 10}" if stay else None for stay in stays],
        "at": list(range(90)),
        "k": ["x", "y", "z"] * 30,
        "y": ["pq"[stay % 2] for stay in stays],
    }
    test = {name: values for name, values in events.items() if name != "who"}
    paths = {"train": write(tmp_path / "t.parquet", events), "test": write(tmp_path / "test.parquet", test)}
    keys = {"label": "y", "group_by": "stay", "order_by": "at", "group": "who", "split": {"by": "time", "column": "at"}}
    dataset = prepare(options(**paths, **keys))
    assert "who" not in {field.name for field in dataset.schema.fields}
    assert dataset.splits["train"].group_names.to_pylist() == [f"p{stay % 10}" if stay else None for stay in range(24)]
    assert len(set(dataset.splits["train"].groups.tolist())) == 11
    assert dataset.leaks.groups_seen_before == {"validation": 6, "test": 0}
    assert dataset.leaks.without_group == 31 and len(set(dataset.splits["test"].groups.tolist())) == 30


@pytest.mark.parametrize("holder", ["labels", "rows", "both"])
def test_times_and_groups_come_from_the_table_of_labels_or_the_rows(options, tmp_path, holder):
    ids = [f"i{row}" for row in range(ROWS)]
    rows, labels = {"id": ids, "x": [[row] for row in range(ROWS)]}, {"id": ids, "y": ["p", "q"] * 30}
    (labels if holder == "labels" else rows)["who"] = table()["who"]
    (labels if holder != "rows" else rows)["at"] = table()["at"]
    paths = {"train": write(tmp_path / "t.parquet", rows), "labels": write(tmp_path / "l.parquet", labels)}
    dataset = prepare(options(**paths, **KEYS, id="id", group="who", split={"by": "time", "column": "at"}))
    check_groups(table(), dataset.splits["train"])
    assert dataset.splits["validation"].ids.to_pylist() == ids[48:]
