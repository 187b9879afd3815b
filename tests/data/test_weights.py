"""`data.weight` and `data.cost`: numbers of rows that are read beside the fields."""

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.prepare_data import prepare
from seqclf.data.storage.store import subset
from seqclf.data.write_store import join_splits
from seqclf.errors import InputError

ROWS = 40
KEYS = {"label": "y", "weight": "amount", "cost": "loss"}


def table(**columns):
    rows = {"x": [[row, 7] for row in range(ROWS)], "y": ["p", "q"] * (ROWS // 2)}
    return {**rows, "amount": [row / 4 for row in range(ROWS)], "loss": [2.0 * row for row in range(ROWS)], **columns}


def check(split, first=1):
    np.testing.assert_array_equal(split.weights, (split.row_numbers - first) / 4)
    np.testing.assert_array_equal(split.costs, 2.0 * (split.row_numbers - first))
    assert split.mean_weights.mean() == pytest.approx(1)


def test_every_split_has_its_weights_and_costs_which_are_no_fields(options, tmp_path):
    dataset = prepare(options(train=write(tmp_path / "t.parquet", table()), **KEYS, infer=True, split={"test": 0.2}))
    for split in dataset.splits.values():
        check(split)
        check(subset(split, np.arange(len(split.labels))[::2]))
    check(join_splits(list(dataset.splits.values()), tmp_path / "joined"))
    assert set(dataset.encoders) == {"x"} and any("data.weight" in note for note in dataset.notes)
    other = prepare(options(train=write(tmp_path / "u.parquet", table(amount=[1.0] * ROWS)), **KEYS, infer=True))
    assert other.digest != dataset.digest


def test_weights_of_events_are_those_of_their_sequence(options, tmp_path):
    rows = {name: [value for value in values for _ in range(2)] for name, values in table().items() if name != "x"}
    rows |= {"card": [row // 2 for row in range(2 * ROWS)], "x": [row % 3 for row in range(2 * ROWS)]}
    keys = {**KEYS, "group_by": ["card"], "fields": {"x": "category"}, "rows": "events"}
    dataset = prepare(options(train=write(tmp_path / "t.parquet", rows), **keys))
    for split in dataset.splits.values():
        np.testing.assert_array_equal(split.weights, np.array(split.ids.to_pylist(), float) / 4)
    rows["amount"][5] = 99.0
    with pytest.raises(InputError, match=r"^data\.weight: changes inside the sequence '2'"):
        prepare(options(train=write(tmp_path / "v.parquet", rows), **keys))


def test_weights_may_come_from_the_table_of_labels(options, tmp_path):
    rows = table()
    rows["id"] = list(range(ROWS))
    labels = write(
        tmp_path / "l.parquet", {name: rows.pop(name) for name in ("y", "amount", "loss")} | {"id": rows["id"]}
    )
    source = write(tmp_path / "t.parquet", rows)
    for split in prepare(
        options(train=source, labels=labels, id="id", **KEYS, fields={"x": "category"})
    ).splits.values():
        check(split)


@pytest.mark.parametrize(
    ("amount", "expected"),
    [
        (-1.0, r"row 4: the weight of the row is -1 \(data\.weight\)"),
        (float("nan"), r"row 4: the weight of the row is no number \(data\.weight\)"),
        (None, r"row 4: the weight of the row is no number \(data\.weight\)"),
        (float("inf"), r"row 4: the weight of the row is inf \(data\.weight\)"),
    ],
)
def test_weights_that_are_none_are_one_line(options, tmp_path, amount, expected):
    rows = table()
    rows["amount"][3] = amount
    with pytest.raises(InputError, match=expected):
        prepare(options(train=write(tmp_path / "t.parquet", rows), **KEYS, fields={"x": "category"}))


def test_no_split_may_have_no_weight_and_every_file_needs_the_column(options, tmp_path):
    train, keys = write(tmp_path / "t.parquet", table()), {**KEYS, "fields": {"x": "category"}}
    none = write(tmp_path / "n.parquet", table(amount=[0.0] * ROWS))
    with pytest.raises(InputError, match="all weights of the rows for validation are 0"):
        prepare(options(train=train, validation=none, **keys))
    lacking = write(tmp_path / "l.parquet", {name: column for name, column in table().items() if name != "loss"})
    with pytest.raises(InputError, match=r"no column 'loss' \(data\.cost\)"):
        prepare(options(train=train, validation=lacking, **keys))


def test_rows_that_are_left_out_or_rejected_need_no_weight(options, tmp_path):
    rows = {**table(), "id": [f"r{row}" for row in range(ROWS)]}
    rows["amount"][3], rows["amount"][5], rows["x"][5], rows["x"][7] = None, None, [], []
    (tmp_path / "ids.txt").write_text("r3\nr7\n")
    keys = {**KEYS, "id": "id", "exclude": tmp_path / "ids.txt", "fields": {"x": "category"}}
    dataset = prepare(options(train=write(tmp_path / "t.parquet", rows), **keys))
    counts = dataset.report["train"]
    assert (counts.refused, counts.excluded) == (1, 2), "r5 is rejected, r3 and r7 are left out"


def test_a_table_of_labels_with_two_weights_of_an_id_is_one_line(options, tmp_path):
    rows, labels = {"x": [[1, 2]] * 4, "id": list("abcd")}, {"y": list("pqpqq"), "id": list("abcdd")}
    labels |= {"amount": [1.0, 2.0, 3.0, 4.0, 5.0], "loss": [1.0] * 5}
    source, table = write(tmp_path / "t.parquet", rows), write(tmp_path / "l.parquet", labels)
    with pytest.raises(InputError, match=r"'d' has two values of amount, 4\.0 and 5\.0"):
        prepare(options(train=source, labels=table, id="id", **KEYS, fields={"x": "category"}))
