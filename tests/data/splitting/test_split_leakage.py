"""Leak counts agree with plain loops, and `on_leak` acts on them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.splitting.split_leakage import find_leaks
from seqclf.errors import InputError

NAMES = ("train", "validation", "test")


@given(st.data(), st.integers(1, 40))
def test_counts_agree_with_a_plain_loop(data, count):
    def draw(low, high):
        return np.array(data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count)))

    keys, labels, splits, ids = draw(0, 9).astype(np.uint64), draw(0, 2), draw(-1, 2), draw(-1, 12)
    report, leaking, leaked = find_leaks(keys, labels, splits, NAMES, ids)
    rows = [row for row in range(count) if splits[row] >= 0]

    def earlier(values, row):
        return any(values[other] == values[row] and splits[other] < splits[row] for other in rows)

    def shares_id(row):
        return ids[row] >= 0 and earlier(ids, row)

    for split, name in ((1, "validation"), (2, "test")):
        in_split = [row for row in rows if splits[row] == split]
        assert report.seen_before.get(name, 0) == sum(earlier(keys, row) for row in in_split)
        assert report.ids_seen_before.get(name, 0) == sum(shares_id(row) for row in in_split)
        assert (name in report.seen_before) is bool(in_split)
    assert [row for row in range(count) if leaking[row]] == [
        row for row in rows if earlier(keys, row) or shares_id(row)
    ]
    # A row is shared with a later split if, with the order of the splits turned round, it is with an earlier one.
    turned = np.where(splits < 0, splits, 2 - splits)
    assert leaked.tolist() == find_leaks(keys, labels, turned, NAMES, ids).leaking.tolist()
    by_key = {}
    for row in rows:
        by_key.setdefault(keys[row], set()).add(labels[row])
    conflicting = {key for key, labels_of_key in by_key.items() if len(labels_of_key) > 1}
    assert (report.rows, report.distinct) == (len(rows), len(by_key))
    assert report.conflicting_sequences == len(conflicting)
    assert report.conflicting_rows == sum(keys[row] in conflicting for row in rows)


@pytest.fixture
def files(tmp_path):
    train = {"id": [f"a{row}" for row in range(20)], "x": [[row, 1] for row in range(20)], "y": ["p", "q"] * 10}
    test = {"id": ["b0", "b1", "a2", "b3"], "x": [[0, 1], [90, 1], [91, 1], [3, 1]], "y": ["p", "q", "p", "p"]}
    return {"train": write(tmp_path / "train.parquet", train), "test": write(tmp_path / "test.parquet", test)}


def test_leaks_between_files_are_counted_and_reported(options, files):
    leaks = prepare(options(**files, label="y", id="id", fields={"x": "category"})).leaks
    assert leaks.seen_before == {"validation": 0, "test": 2} and leaks.ids_seen_before["test"] == 1
    assert leaks.conflicting_sequences == 1 and leaks.distinct == 22
    expected = "2 rows of test hold a sequence that an earlier split holds too; data.split.on_leak=drop leaves them out"
    assert expected in leaks.warnings()


def test_drop_leaves_only_rows_that_training_has_not_seen(options, files):
    dataset = prepare(options(**files, label="y", id="id", fields={"x": "category"}, split={"on_leak": "drop"}))
    assert dataset.splits["test"].ids.to_pylist() == ["b1"] and dataset.leaks.dropped["test"] == 3
    assert len(dataset.splits["train"].sequences) + len(dataset.splits["validation"].sequences) == 20


def test_drop_earlier_leaves_the_test_whole(options, files):
    dataset = prepare(options(**files, label="y", id="id", fields={"x": "category"}, split={"on_leak": "drop_earlier"}))
    assert dataset.splits["test"].ids.to_pylist() == ["b0", "b1", "a2", "b3"]
    left = {id for split in ("train", "validation") for id in dataset.splits[split].ids.to_pylist()}
    assert left == {f"a{row}" for row in range(20)} - {"a0", "a2", "a3"}  # by sequence, by id, by sequence
    assert sum(dataset.leaks.dropped.values()) == 3 and dataset.leaks.dropped["test"] == 0


def test_error_stops_and_names_the_leaks(options, files):
    with pytest.raises(InputError, match=r"2 rows of test hold a sequence .*; 1 row of test has an id.*on_leak=drop"):
        prepare(options(**files, label="y", id="id", fields={"x": "category"}, split={"on_leak": "error"}))


def test_ids_that_count_the_rows_are_not_compared(options, tmp_path):
    for first in (0, 1):
        rows = {"id": [row + first for row in range(20)], "x": [[row, 1] for row in range(20)], "y": ["p", "q"] * 10}
        train = write(tmp_path / f"train{first}.parquet", rows)
        test = write(tmp_path / f"test{first}.parquet", {**rows, "x": [[row, 2] for row in range(20)]})
        assert prepare(options(train=train, test=test, label="y", id="id")).leaks.ids_seen_before is None


@pytest.mark.parametrize("way", ["distinct", "random"])
def test_splitting_by_distinct_sequences_leaves_no_leak(options, tmp_path, way):
    rows = {"x": [[row % 7, row % 3] for row in range(60)], "y": ["p", "q"] * 30}
    leaks = prepare(options(train=write(tmp_path / "t.parquet", rows), label="y", split={"by": way, "test": 0.3})).leaks
    assert (leaks.seen_before == {"validation": 0, "test": 0}) is (way == "distinct")
    assert leaks.distinct == 21


@pytest.mark.parametrize("name", ["{}.parquet", "{}.csv"])
@pytest.mark.parametrize(
    ("missing", "numbered"),
    [(None, False), (None, True), ("  ", False), (" ", True), (float("nan"), True), ("unknown", False), ("-", False)],
)
def test_rows_without_an_id_do_not_share_one(options, tmp_path, name, missing, numbered):
    """Some rows lack an id, among real ids and among ids that only count the rows."""

    def ids(split, count):
        known = range(1, count + 1) if numbered else [f"{split} {row}" for row in range(count)]
        kind = float if isinstance(missing, float) else str
        absent = None if kind is float and "csv" in name else missing  # in a text file, nan is a text
        return [absent if row % 4 == 0 else kind(id) for row, id in enumerate(known)]

    train = {"id": ids("a", 20), "x": [[row, 1] for row in range(20)], "y": ["p", "q"] * 10}
    test = {"id": ids("b", 12), "x": [[row, 2] for row in range(12)], "y": ["p", "q"] * 6}
    overrides = {"label": "y", "id": "id", "fields": {"x": "category"}, "split": {"on_leak": "drop"}}
    paths = {
        split: write(tmp_path / name.format(split), columns) for split, columns in (("train", train), ("test", test))
    }
    dataset = prepare(options(**paths, **overrides))
    assert len(dataset.splits["test"].labels) == 12 and sum(dataset.leaks.dropped.values()) == 0
    assert dataset.leaks.ids_seen_before == (None if numbered else {"validation": 0, "test": 0})


def test_ids_of_train_in_their_order_are_found_in_test(options, tmp_path):
    rows = {"id": list(range(1, 101)), "x": [[row, 1] for row in range(100)], "y": ["p", "q"] * 50}
    picked = np.random.default_rng(0).permutation(100)[:40]
    test = {"id": (picked + 1).tolist(), "x": [[row, 2] for row in range(40)], "y": ["p", "q"] * 20}
    paths = {name: write(tmp_path / f"{name}.parquet", columns) for name, columns in (("train", rows), ("test", test))}
    leaks = prepare(options(**paths, label="y", id="id", fields={"x": "category"})).leaks
    assert leaks.ids_seen_before["test"] == 40


def speakers(name, groups, token, folder):
    rows = {"speaker": [f"s{row % groups}" for row in range(60)], "y": ["p", "q"] * 30}
    return write(folder / f"{name}.parquet", {**rows, "x": [[row, token] for row in range(60)]})


GROUP = {"by": "group", "seed": 1}


def test_on_leak_acts_on_shared_groups(options, tmp_path):
    paths = {"train": speakers("train", 12, 0, tmp_path), "test": speakers("test", 15, 1, tmp_path)}
    keys = {"label": "y", "group": "speaker", "fields": {"x": "category"}, **paths}
    with pytest.raises(InputError, match="group"):
        prepare(options(**keys, split={**GROUP, "on_leak": "error"}))
    dropped = prepare(options(**keys, split={**GROUP, "on_leak": "drop"}))
    assert dropped.leaks.dropped["test"] == 48 and len(dropped.splits["test"].labels) == 12
    assert dropped.leaks.is_apart("test")


BY_TIME = {"by": "time", "column": "at", "seed": 1}


@pytest.mark.parametrize(("start", "reaching"), [(0, 59), (30, 29), (60, 0)])
def test_a_test_file_before_the_end_of_train_is_found(options, tmp_path, start, reaching):
    def file(name, first, token):
        rows = {"at": list(range(first, first + 60)), "y": ["p", "q"] * 30, "x": [[row, token] for row in range(60)]}
        return write(tmp_path / f"{name}.parquet", rows)

    keys = {"label": "y", "fields": {"x": "category"}, "train": file("train", 0, 0), "test": file("test", start, 1)}
    leaks = prepare(options(**keys, split=BY_TIME)).leaks
    assert leaks.reaching_into == {"validation": 0, "test": reaching}
    assert leaks.is_apart("test") is (leaks.reaching_into["test"] == 0)


def test_sequences_that_run_into_the_time_of_test_are_counted(options, tmp_path):
    lasting = 8
    events = {"card": [], "at": [], "shop": [], "y": []}
    for card in range(60):
        for at in range(card, card + lasting + 1, 4):
            for name, value in zip(events, (card, at, f"s{card}", "pq"[card % 2]), strict=True):
                events[name].append(value)
    path = write(tmp_path / "t.parquet", events)
    keys = {"train": path, "label": "y", "group_by": "card", "order_by": "at", "fields": {"shop": "category"}}
    split = {**BY_TIME, "validation": 0.2, "test": 0.2}
    dataset = prepare(options(**keys, split=split))
    begins = min(dataset.splits["test"].ids.cast(pa.int64()).to_pylist())
    assert dataset.leaks.reaching_into["test"] == sum(card + lasting > begins for card in range(begins))
    earlier = prepare(options(**keys, split={**split, "on_leak": "drop_earlier"}))
    assert max(id + lasting for id in earlier.splits["train"].ids.cast(pa.int64()).to_pylist()) <= begins
