"""Encoders learn from training rows only, every row is counted, and a dataset appears complete or not at all."""

import datetime
import json
import shutil
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.table_files import LABELS, TOKENS, simple, write

from seqclf.data import prepare_data as preparation
from seqclf.data.prepare_data import prepare
from seqclf.data.splitting.assignment import NO_KEY, fill_missing_keys
from seqclf.data.storage.cache import CONTENT
from seqclf.errors import InputError


@pytest.fixture
def make(options, tmp_path):
    """`make(columns, …)`: the dataset of a table written to t.parquet, in a new cache."""

    def build(columns, name="t.parquet", **overrides):
        path = write(tmp_path / name, columns)
        return prepare(options(**{"train": path, "label": "label", "cache_dir": tmp_path / "cache", **overrides}))

    return build


def cached(tmp_path):
    return sorted(path.name for path in (tmp_path / "cache").iterdir()) if (tmp_path / "cache").exists() else []


def sequences(split, name="tokens"):
    ragged = split.sequences
    return [ragged.fields[name][a:b].tolist() for a, b in zip(ragged.offsets, ragged.offsets[1:], strict=False)]


def test_encoders_see_only_the_training_split(make, tmp_path):
    path = write(tmp_path / "test.parquet", {"tokens": [[7, 99], [1]], "x": [[1e6, 1e6], [1e6]], "label": ["a", "b"]})
    numbers = [[float(token) for token in row] for row in TOKENS]
    dataset = make(simple(x=numbers), test=path)
    train = dataset.splits["train"]
    training_rows = [TOKENS[row - 1] for row in train.row_numbers]
    assert set(dataset.encoders["tokens"].state()["values"]) == {token for row in training_rows for token in row}
    tokens = np.array([token for row in training_rows for token in row], float)
    assert dataset.encoders["x"].state() == {
        "mean": [pytest.approx(tokens.mean())],
        "deviation": [pytest.approx(tokens.std())],
    }
    assert sequences(dataset.splits["test"])[0] == [0, 0] and dataset.report["test"].unknown_tokens == 2


def test_every_row_keeps_its_tokens_label_id_and_number(make):
    dataset = make(simple(name=[f"r{row}" for row in range(20)]), id="name", split={"validation": 0.25, "test": 0.25})
    values = [None, *dataset.encoders["tokens"].state()["values"]]
    seen = []
    for split in dataset.splits.values():
        for tokens, label, id_, row in zip(sequences(split), split.labels, split.ids, split.row_numbers, strict=True):
            assert [values[token] for token in tokens] == TOKENS[row - 1]
            assert dataset.classes[label] == LABELS[row - 1] and id_.as_py() == f"r{row - 1}"
            seen.append(row)
    assert sorted(seen) == list(range(1, 21))


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from(["good", "good", "empty", "null", "no label"]), min_size=4, max_size=30), st.booleans())
def test_input_rows_are_used_plus_refused(options, tmp_path_factory, kinds, tested):
    folder = tmp_path_factory.mktemp("rows")
    kinds = ["good"] * 12 + kinds
    tokens = [{"empty": [], "null": None}.get(kind, [1, 2]) for kind in kinds]
    labels = [None if kind == "no label" else LABELS[row % 20] for row, kind in enumerate(kinds)]
    path = write(folder / "t.parquet", {"tokens": tokens, "label": labels})
    split = {"validation": 0.2, "test": 0.0 if tested else 0.2}
    test = path if tested else None
    dataset = prepare(options(train=path, test=test, label="label", max_bad_share=1, split=split))
    total = sum(counts.used + counts.refused for counts in dataset.report.values())
    assert total == len(kinds) * (2 if tested else 1)
    bad = [row + 1 for row, kind in enumerate(kinds) if kind != "good"] * (2 if tested else 1)
    written = dataset.folder / "quarantine.jsonl"
    lines = [json.loads(line) for line in written.read_text().splitlines()] if bad else []
    assert [line["row"] for line in lines] == bad and {line["file"] for line in lines} <= {str(path)}


def test_a_label_that_train_never_had_is_quarantined_with_its_reason(make, tmp_path):
    path = write(tmp_path / "test.csv", {"tokens": [[1]] * 20, "label": [*LABELS[:19], "zebra"]})
    dataset = make(simple(), test=path)
    assert dataset.report["test"].refused == 1 and dataset.report["test"].used == 19
    assert json.loads((dataset.folder / "quarantine.jsonl").read_text()) == {
        "file": str(path),
        "row": 20,
        "column": "label",
        "reason": "is 'zebra', which never occurs in the training rows",
    }
    with pytest.raises(InputError, match=r"test.csv: row 20: label is 'zebra', which never occurs .*on_bad_row="):
        make(simple(), test=path, on_bad_row="error")


@pytest.mark.parametrize("side", ["keep_first", "keep_last"])
def test_long_sequences_are_cut_and_counted(make, side):
    dataset = make(simple(), max_length=2, truncate=side, split={"validation": 0.2, "test": 0.2})
    for name, split in dataset.splits.items():
        uncut = [TOKENS[row - 1] for row in split.row_numbers]
        values = [None, *dataset.encoders["tokens"].state()["values"]]
        cut = [row[:2] if side == "keep_first" else row[-2:] for row in uncut]
        assert [[values[token] for token in tokens] for tokens in sequences(split)] == cut
        assert dataset.report[name].truncated == sum(len(row) > 2 for row in uncut)
        assert dataset.report[name].tokens == sum(map(len, cut))


def test_a_long_sequence_stops_the_run_by_default(make, tmp_path):
    with pytest.raises(
        InputError, match=r"t.parquet: row 3: tokens has more than data.max_length=2 tokens .*keep_first"
    ):
        make(simple(), max_length=2)
    assert cached(tmp_path) == []


def test_prepared_data_is_reused_until_files_or_options_change(options, tmp_path):
    def again(**overrides):
        return prepare(options(**{"train": path, "label": "label", "cache_dir": tmp_path / "cache", **overrides}))

    path = write(tmp_path / "t.parquet", simple())
    assert [again(**extra).reused for extra in ({}, {}, {"positive": "a"}, {"max_length": 9})] == [
        False,
        True,
        True,
        False,
    ]
    write(path, simple(more=LABELS))
    assert not again().reused and len(cached(tmp_path)) == 3


def test_excluded_rows_are_in_no_split_and_are_counted(options, tmp_path):
    ids = tmp_path / "ids.txt"
    names = [f"r{row}" for row in range(20)]
    files = {
        split: write(
            tmp_path / f"{split}.parquet",
            {"tokens": TOKENS, "label": LABELS, "id": [f"{split}-{name}" for name in names]},
        )
        for split in ("train", "test")
    }
    settings = {**files, "label": "label", "id": "id", "cache_dir": tmp_path / "cache", "exclude": ids}
    ids.write_bytes(b"\xef\xbb\xbftrain-r3\r\ntrain-r7\r\n\r\ntest-r0")
    found = prepare(options(**settings))
    kept = [id for split in found.splits.values() for id in split.ids.to_pylist()]
    every = {f"{split}-{name}" for split in files for name in names}
    assert len(kept) == len({*kept}) == 37 and every - {*kept} == {"train-r3", "train-r7", "test-r0"}
    assert {split: counts.excluded for split, counts in found.report.items()} == {
        "train": 2,
        "validation": 0,
        "test": 1,
    }
    ids.write_text("train-r3\ntest-r0\n")  # the cache knows the file
    assert prepare(options(**settings)).report["train"].excluded == 1
    for text, problem in [("train-r3\nr99\n", "1 ids are of no row, such as 'r99'"), (b"\xff", "cannot be read")]:
        ids.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(InputError, match=problem):
            prepare(options(**settings))
    ids.write_text("\n".join(f"test-{name}" for name in names))
    with pytest.raises(InputError, match=r"test\.parquet: no row is left \(data\.exclude="):
        prepare(options(**settings))
    with pytest.raises(InputError, match=r"^data\.exclude: lists ids of data\.id; name their column"):
        options(**{**settings, "id": None})


def test_excluded_sequences_of_events_are_named_by_their_joined_keys(options, tmp_path):
    events = [(card, day, step) for card in range(6) for day in "ab" for step in range(3)]
    table = {name: [event[at] for event in events] for at, name in enumerate(("card", "day", "x"))}
    table["label"] = [f"c{card % 2}" for card in table["card"]]
    ids = tmp_path / "ids.txt"
    ids.write_text("0 | a\n5 | b\n")
    keys = {"group_by": ["card", "day"], "order_by": ["x"], "fields": {"x": "category"}, "exclude": ids}
    found = prepare(options(train=write(tmp_path / "e.parquet", table), label="label", **keys))
    kept = {id for split in found.splits.values() for id in split.ids.to_pylist()}
    assert len(kept) == 10 and not kept & {"0 | a", "5 | b"} and found.report["train"].excluded == 2


@pytest.mark.parametrize(
    "name", ["dataset.json", "encoders/tokens.json", "train/field.tokens.bin", "validation/ids.arrow"]
)
@pytest.mark.parametrize("damage", ["missing", "empty", "shortened"])
def test_a_damaged_cache_is_prepared_again(options, tmp_path, capsys, name, damage):
    path = write(tmp_path / "t.parquet", simple())
    data_options = options(train=path, label="label", cache_dir=tmp_path / "cache")
    first = prepare(data_options)
    assert prepare(data_options).reused
    target = first.folder / name
    content = target.read_bytes()
    target.unlink()
    if damage != "missing":
        target.write_bytes({"shortened": content[: len(content) // 2], "empty": b""}[damage])
    capsys.readouterr()
    again = prepare(data_options)
    assert capsys.readouterr().err.count("the cached data is damaged and is made again") == 1
    assert not again.reused and again.digest == first.digest and again.folder == first.folder
    assert prepare(data_options).reused and cached(tmp_path) == [first.folder.name]


def test_two_processes_may_prepare_the_same_data(options, tmp_path, monkeypatch):
    path = write(tmp_path / "t.parquet", simple())
    data_options = options(train=path, label="label", cache_dir=tmp_path / "cache")
    one = prepare(data_options)
    shutil.rmtree(one.folder)
    build_dataset = preparation.build_dataset

    def overtaken(options, sources, scratch, check_fields):
        build_dataset(options, sources, scratch, check_fields)
        shutil.copytree(scratch / CONTENT, one.folder)

    monkeypatch.setattr(preparation, "build_dataset", overtaken)
    assert prepare(data_options).digest == one.digest and cached(tmp_path) == [one.folder.name]


def test_columns_may_be_called_like_anything_in_the_store(make):
    names = ["file", "row", "rows", "labels", "lengths_", "ids", "original_lengths", "key", "raw", "split", "Label_"]
    dataset = make(
        {"label": LABELS, **{name: [[position, row] for row in range(20)] for position, name in enumerate(names)}}
    )
    assert len(dataset.encoders) == len(names)
    for name, encoder in dataset.encoders.items():
        values, train = [None, *encoder.state()["values"]], dataset.splits["train"]
        tokens = [values[token] for token in train.sequences.fields[name]]
        assert tokens == [one for row in train.row_numbers for one in (list(dataset.encoders).index(name), row - 1)]


@pytest.mark.parametrize("missing", [None, " \t", "\u00a0", float("nan")])
@pytest.mark.parametrize("by", ["group", "fold", "random"])
def test_each_row_without_a_group_is_a_separate_group(make, by, missing):
    kind = float if isinstance(missing, float) else str
    user = [kind(row // 2) if row % 5 == 0 else missing for row in range(200)]
    table = {"tokens": [[row % 3, 7] for row in range(200)], "label": ["a", "b"] * 100, "user": user}
    dataset = make(table, group="user", split={"by": by, "validation": 0.25, "folds": 4, "test": 0.25})
    assert all(0.12 < len(split.row_numbers) / 200 < 0.63 for split in dataset.splits.values())
    assert dataset.leaks.without_group == 160
    line = "160 rows have no value in data.group; each forms a separate group"
    assert line in dataset.leaks.warnings()


def test_groups_of_rows_without_one_do_not_depend_on_the_order():
    generator = np.random.default_rng(0)
    keys = np.array([5, NO_KEY, NO_KEY, 9, NO_KEY, NO_KEY])
    contents = np.array([1, 2, 2, 2, 3, 2], np.uint64)
    filled = fill_missing_keys(keys, contents)
    assert filled[0] == 5 and filled[3] == 9 and len(set(filled.tolist())) == 6 and filled.min() >= 0
    order = generator.permutation(6)
    assert set(fill_missing_keys(keys[order], contents[order]).tolist()) == set(filled.tolist())


@pytest.mark.parametrize("by", ["group", "fold"])
def test_the_split_of_a_group_does_not_depend_on_the_order_of_rows(make, by):
    user = [f"user {row % 7}" for row in range(20)]

    def split_of_each(order, name):
        table = {column: [values[row] for row in order] for column, values in simple(user=user).items()}
        dataset = make(table, name, group="user", split={"by": by, "validation": 0.3, "folds": 3, "fold": 1})
        rows = ((user[order[row - 1]], part) for part, split in dataset.splits.items() for row in split.row_numbers)
        return dict(rows)

    orders = [np.random.default_rng(seed).permutation(20) for seed in range(3)]
    one, *others = (split_of_each(order, f"{position}.parquet") for position, order in enumerate(orders))
    assert len(one) == 7 and all(other == one for other in others)


@pytest.mark.parametrize(
    "times",
    [
        [f"2024-01-{20 - row:02d}" for row in range(20)],
        [f"2024-01-{20 - row:02d}T10:00:00Z" for row in range(20)],
        [-row / 2 for row in range(20)],
        [datetime.date(2024, 1, 20 - row) for row in range(20)],
    ],
)
def test_the_latest_rows_validate(make, times):
    dataset = make(simple(when=times), split={"by": "time", "column": "when"})
    assert sorted(dataset.splits["validation"].row_numbers) == [1, 2, 3, 4]


def test_labels_that_are_whole_numbers_are_sorted_as_numbers(make):
    assert make({"tokens": TOKENS, "label": [10, 9, 2, 1] * 5}).classes == ["1", "2", "9", "10"]
    assert make({"tokens": TOKENS, "label": ["10", "b"] * 10}).classes == ["10", "b"]


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ([row * 0.37 for row in range(30)] * 2, "30 different values in 60 rows, which are numbers"),
        ([f"{row}.5" for row in range(60)], "60 different values in 60 rows, which are numbers"),
        ([row % 30 for row in range(60)], "30 different values in 60 rows, which are numbers.*data.classes=many"),
        ([f"id {row}" for row in range(58)] + ["id 0"] * 2, "58 different values in 60 rows, nearly one for each row"),
    ],
    ids=["numbers", "texts of numbers", "whole numbers", "ids"],
)
def test_measurements_and_ids_are_refused_as_labels(make, labels, problem):
    with pytest.raises(InputError, match=rf"t\.parquet: column 'label' \(data\.label\): {problem}"):
        make({"tokens": [[row % 5] for row in range(60)], "label": labels})


def test_many_classes_and_a_few_fractions_are_labels(make):
    tokens = [[row % 5] for row in range(120)]
    assert len(make({"tokens": tokens, "label": [f"c{row % 60}" for row in range(120)]}).classes) == 60
    assert make({"tokens": tokens, "label": [0.5, 1.0, 1.5] * 40}).classes == ["0.5", "1", "1.5"]
    assert len(make({"tokens": tokens, "label": [float(row % 40) for row in range(120)]}, classes="many").classes) == 40


def test_the_only_group_of_a_class_is_named(make):
    columns = {"tokens": TOKENS, "label": ["a"] * 16 + ["b"] * 4, "who": [f"g{row // 4}" for row in range(20)]}
    problems = []
    for fold in range(4):
        try:
            make(columns, group="who", split={"by": "fold", "folds": 4, "fold": fold})
        except InputError as error:
            problems.append(str(error))
    assert problems and all("one class only ('a')" in line and "group 'g4'" in line for line in problems)


def test_the_rarer_of_two_classes_is_positive_by_default(make):
    labels = ["common"] * 15 + ["rare"] * 5
    assert make({"tokens": TOKENS, "label": labels}).positive == "rare"
    assert make({"tokens": TOKENS, "label": labels}, positive="common").positive == "common"
    assert make({"tokens": TOKENS, "label": ["a", "b", "c", "d"] * 5}).positive is None


@pytest.mark.parametrize(
    "ids",
    [
        pa.array([2**64 - 1 - row for row in range(20)], pa.uint64()),
        pa.array([None, "x"] * 10),
        pa.nulls(20),
        pa.array([{"a": [1, 2]}] * 20),
        pa.array([Decimal("1.50")] * 20),
    ],
)
def test_ids_of_any_type_are_kept_as_text(make, ids):
    dataset = make(simple(key=ids), name="t.arrow", id="key")
    for split in dataset.splits.values():
        for text, row in zip(split.ids.to_pylist(), split.row_numbers, strict=True):
            value = ids[int(row) - 1].as_py()
            assert (text is None) == (value is None)
            assert not isinstance(value, (int, str, Decimal)) or text == (
                "1.5" if isinstance(value, Decimal) else str(value)
            )


def test_the_digest_is_of_content_and_names(make):
    digests = {
        make(columns).digest
        for columns in (
            simple(),
            {"tokens": TOKENS, "label": ["A", "B"] * 10},
            {"tokens": [[token + 1 for token in row] for row in TOKENS], "label": LABELS},
            {"tokens": TOKENS[::-1], "label": LABELS},
        )
    }
    assert len(digests) == 4


def test_fields_are_checked_before_rows_are_read_and_again_on_reuse(make, options, tmp_path, monkeypatch):
    def refuse(encoders):
        raise InputError(f"fields: {', '.join(encoders)}")

    path = write(tmp_path / "t.parquet", simple())
    settings = options(train=path, label="label", cache_dir=tmp_path / "cache")
    with monkeypatch.context() as patched:
        patched.setattr(preparation, "_collect_all", None)  # would end otherwise
        with pytest.raises(InputError, match=r"^fields: tokens$"):
            prepare(settings, refuse)
    assert prepare(settings, lambda encoders: None).reused is False
    with pytest.raises(InputError, match=r"^fields: tokens$"):
        prepare(settings, refuse)
