"""A column of a file may have the name of a column that a reader adds, and a path adds none."""

import itertools
import json

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from seqclf.api.fit import load_data
from seqclf.errors import InputError

NAMES = [
    "file_index",
    "file_row_number",
    "filename",
    "rowid",
    "in file",
    "file number",
    "row number",
    "unordered cells",
    "id",
    "label",
    "k 0",
    "group 0",
]


def write(table, path, kind):
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "arrow":
        feather.write_feather(table, path, compression="uncompressed")
    elif kind == "jsonl":
        path.write_text("\n".join(map(json.dumps, table.to_pylist())))
    else:
        table.to_pandas().to_csv(path, index=False)


def sequences(dataset):
    names = dataset.encoders["k"].vocabulary.values.to_pylist()
    for split in dataset.splits.values():
        ids, offsets = split.sequences.fields["k"], split.sequences.offsets
        for start, end in itertools.pairwise(offsets):
            yield "".join(names[id - 1] for id in ids[start:end])


@pytest.mark.parametrize(
    ("kind", "name", "orders"),
    [
        *(("parquet", name, number % 2 == 0) for number, name in enumerate(NAMES)),
        *((kind, name, True) for kind in ("csv", "jsonl", "arrow") for name in NAMES[2:5]),
    ],
)
def test_names_of_readers_are_names_of_columns(tmp_path, kind, name, orders):
    """The column sorts the events, or holds numbers that have nothing to do with their order."""
    random = np.random.default_rng(0)
    place = np.tile(np.arange(4), 30)
    for file in range(2):
        rows = random.permutation(120) if orders else np.arange(120)
        columns = {
            "card": (np.repeat(np.arange(30), 4) + 30 * file)[rows],
            name: place[rows] if orders else random.integers(5, 9, 120),
            "at": np.zeros(120, int),
            "owner": rows // 8,
            "k": np.array(list("abcd"))[place][rows],
            "y": np.array(["u", "v"])[np.repeat(np.arange(30), 4) % 2][rows],
        }
        write(pa.table(columns), tmp_path / f"{file}.{kind}", kind)
    order = f"'{name}'" if orders else "at"
    overrides = ["data.group_by=card", f"data.order_by={order}", "data.id=owner", "data.fields={k: category}"]
    for path, count in ((f"0.{kind}", 30), (f"*.{kind}", 60)):
        found = list(sequences(load_data(str(tmp_path / path), label="y", overrides=overrides)))
        assert found == ["abcd"] * count


@pytest.mark.parametrize("folder", ["seed=1", "label=oops"])
@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_a_path_adds_no_column(tmp_path, folder, kind):
    (tmp_path / folder).mkdir()
    table = pa.table({"x": [[1, 2], [2, 2, 3]] * 20, "label": ["a", "b"] * 20})
    if kind == "csv":
        table = table.set_column(0, "x", pa.array(["[1, 2]", "[2, 2, 3]"] * 20))
    write(table, tmp_path / folder / f"t.{kind}", kind)
    dataset = load_data(str(tmp_path / folder / f"t.{kind}"), label="label")
    assert [field.name for field in dataset.schema.fields] == ["x"] and dataset.classes == ["a", "b"]


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
def test_folders_of_a_glob_are_columns_that_a_key_names(tmp_path, kind):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        columns = {"card": np.repeat(np.arange(30), 4) + 30 * day, "k": ["a", "b", "c", "d"] * 30}
        write(pa.table({**columns, "y": ["u", "v"] * 60}), tmp_path / f"day={day}" / f"t.{kind}", kind)
    path, overrides = str(tmp_path / "*" / f"t.{kind}"), ["data.group_by=card", "data.rows=events"]
    dataset = load_data(path, label="day", overrides=[*overrides, "data.fields={k: category}"])
    assert dataset.classes == ["1", "2"]
    (tmp_path / "labels.csv").write_text("card,label\n" + "\n".join(f"{card},{'ab'[card % 2]}" for card in range(90)))
    inferred = load_data(path, label="label", overrides=[*overrides, f"data.labels={tmp_path}/labels.csv"])
    assert "day" not in [field.name for field in inferred.schema.fields]


@pytest.mark.parametrize("kind", ["parquet", "arrow", "jsonl", "csv", "nested parquet", "nested jsonl"])
def test_a_name_with_a_nul_character_is_refused(tmp_path, kind):
    nested, kind = kind.startswith("nested"), kind.split()[-1]
    path, columns = tmp_path / f"t.{kind}", {"x": [1, 2] * 20, "k\0k": ["u", "v"] * 20}
    cells = {"x": [[{"a\0b": 1, "a": 2}]] * 40} if nested else columns
    write(pa.table({**cells, "label": ["a", "b"] * 20}), path, kind)
    with pytest.raises(InputError, match=rf"t\.{kind}: has a NUL character in the name of a column; rename the column"):
        load_data(str(path), label="label")
