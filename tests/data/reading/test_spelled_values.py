"""Values keep their spelling in every format, and equal keys join whatever their types."""

import json
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.api.fit import load_data

LABELS = ["a", "b"] * 30


def rows_of(values, count=60):
    return [[values[(row * 3 + token * token) % len(values)] for token in range(6)] for row in range(count)]


def written(folder, kind, rows):
    """Lists of texts in a file or a table of a format."""
    table = pa.table({"codes": rows, "label": LABELS})
    if kind == "table":
        return table
    path = folder / f"t.{kind.split()[-1]}"
    if kind == "parquet":
        pq.write_table(table, path)
    elif kind == "jsonl":
        path.write_text(
            "\n".join(json.dumps({"codes": row, "label": label}) for row, label in zip(rows, LABELS, strict=True))
        )
    else:
        cells = [json.dumps(row) if kind == "quoted csv" else f"[{', '.join(row)}]" for row in rows]
        quoted = ['"' + cell.replace('"', '""') + '"' for cell in cells]
        path.write_text(
            "\n".join(["codes,label", *(f"{cell},{label}" for cell, label in zip(quoted, LABELS, strict=True))])
        )
    return str(path)


def values(dataset):
    return set(dataset.encoders["codes"].vocabulary.values.to_pylist())


@pytest.mark.parametrize("kind", ["table", "parquet", "jsonl", "quoted csv", "unquoted csv"])
def test_texts_of_digits_keep_their_spelling(tmp_path, kind):
    codes = ["007", "7", "+7", "1_1", "11"]
    if kind != "unquoted csv":  # there, a blank before an element is not a part of the element
        codes += [" 7", "0"]
    dataset = load_data(written(tmp_path, kind, rows_of(codes)), label="label")
    assert values(dataset) == set(codes)
    assert sum(len(split.labels) for split in dataset.splits.values()) == len(LABELS)
    with pytest.raises(ValueError, match="list"):
        dataset.encoders["codes"].from_python("7")


def test_a_late_code_refuses_its_row_and_may_be_read_as_text(tmp_path):
    path = tmp_path / "t.csv"
    cells = [f'"[7, 12, {row % 9}]",{"ab"[row % 2]}' for row in range(1500)]
    cells[1200] = '"[007, 7, 1]",a'
    path.write_text("\n".join(["codes,label", *cells]))
    dataset = load_data(str(path), label="label")
    assert "007" not in values(dataset) and dataset.report["train"].refused == 1
    as_text = load_data(str(path), label="label", overrides=["data.fields={codes: {kind: category, values: text}}"])
    assert "007" in values(as_text) and as_text.report["train"].refused == 0


@pytest.mark.parametrize("base", [2**63 - 20, 2**64, 10**20, 10**30])
def test_whole_numbers_beyond_64_bits_are_exact_in_json(tmp_path, base):
    path = tmp_path / "t.jsonl"
    events = [
        {"user": base + row // 5, "at": row, "code": base + row % 7, "y": "ab"[row // 5 % 2]} for row in range(200)
    ]
    path.write_text("\n".join(map(json.dumps, events)))
    overrides = ["data.group_by=user", "data.order_by=at", "data.fields={codes: {kind: category, column: code}}"]
    dataset = load_data(str(path), label="y", overrides=overrides)
    assert set(map(int, values(dataset))) == {base + code for code in range(7)}
    ids = {id for split in dataset.splits.values() for id in split.ids.to_pylist()}
    assert set(map(int, ids)) == {base + user for user in range(40)}


@pytest.mark.parametrize("kind", ["table", "parquet", "labels"])
def test_a_label_that_is_nan_is_no_class(tmp_path, kind):
    labels = [float(row % 2) if row % 10 else float("nan") for row in range(60)]
    table = pa.table({"id": list(range(60)), "codes": rows_of(["x", "y", "z"]), "y": labels})
    overrides = ["data.max_bad_share=1", "data.id=id"]
    if kind == "labels":
        pq.write_table(table.select(["id", "y"]), tmp_path / "labels.parquet")
        table = table.drop_columns("y")
        overrides.append(f"data.labels={tmp_path}/labels.parquet")
    if kind != "table":
        pq.write_table(table, tmp_path / "t.parquet")
    dataset = load_data(table if kind == "table" else str(tmp_path / "t.parquet"), label="y", overrides=overrides)
    assert dataset.classes == ["0", "1"] and dataset.report["train"].refused == 6


def test_bytes_are_utf_8_or_refused(tmp_path):
    codes = [[code.encode() for code in row] for row in rows_of(["déjà", "y"])]
    codes[4] = [b"\xc3", b"y"]
    labels = [label.encode() for label in LABELS]
    labels[7] = b"\xff"
    table = pa.table({"codes": codes, "label": labels, "id": [bytes([200 + row % 50, row]) for row in range(60)]})
    dataset = load_data(table, label="label", overrides=["data.max_bad_share=1", "data.id=id"])
    assert values(dataset) == {"déjà", "y"} and dataset.classes == ["a", "b"] and dataset.report["train"].refused == 2
    assert {id for split in dataset.splits.values() for id in split.ids.to_pylist()} >= {"C800", "C901"}
    assert dataset.encoders["codes"].from_python(["déjà".encode()]) == ["déjà"]
    with pytest.raises(ValueError, match="utf-8"):
        dataset.encoders["codes"].from_python([b"\xc3"])


KEYS = {
    "float": [float(row) for row in range(100, 160)],
    "decimal": [Decimal(row).quantize(Decimal("1.00")) for row in range(100, 160)],
    "integer": list(range(100, 160)),
    "text": [str(row) for row in range(100, 160)],
    "text of floats": [f"{row}.0" for row in range(100, 160)],
}
TIMES = {
    "date": [datetime(2024, 1 + row // 28, 1 + row % 28).date() for row in range(60)],
    "time": [datetime(2024, 1 + row // 28, 1 + row % 28) for row in range(60)],
    "text of days": [str(datetime(2024, 1 + row // 28, 1 + row % 28).date()) for row in range(60)],
}


@pytest.mark.parametrize(("key", "other"), [(a, b) for kinds in (KEYS, TIMES) for a in kinds for b in kinds if a < b])
def test_equal_keys_of_other_types_join(tmp_path, key, other):
    keys = KEYS | TIMES
    pq.write_table(pa.table({"id": keys[key], "codes": rows_of(["x", "y", "z"])}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": keys[other], "y": LABELS}), tmp_path / "labels.parquet")
    overrides = [f"data.labels={tmp_path}/labels.parquet", "data.id=id"]
    dataset = load_data(str(tmp_path / "t.parquet"), label="y", overrides=overrides)
    assert dataset.report["train"].refused == 0


def test_mixed_json_keys_and_labels_have_no_quotes(tmp_path):
    rows = [{"host": f"web-{row}" if row % 2 else row, "codes": ["x", "y", "z"][: 1 + row % 3]} for row in range(60)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    labels = [{"host": row["host"], "y": "unknown" if row["codes"][1:] else 0} for row in rows]
    (tmp_path / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    overrides = [f"data.labels={tmp_path}/labels.jsonl", "data.id=host"]
    dataset = load_data(str(tmp_path / "t.jsonl"), label="y", overrides=overrides)
    assert dataset.classes == ["0", "unknown"] and dataset.report["train"].refused == 0


def test_texts_that_look_like_one_number_are_two_keys(tmp_path):
    keys = [f"{row // 2}{'' if row % 2 else '.0'}" for row in range(60)]
    pq.write_table(pa.table({"id": keys, "codes": rows_of(["x", "y", "z"])}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": keys, "y": LABELS}), tmp_path / "labels.parquet")
    overrides = [f"data.labels={tmp_path}/labels.parquet", "data.id=id"]
    dataset = load_data(str(tmp_path / "t.parquet"), label="y", overrides=overrides)
    for split in dataset.splits.values():
        for row, label in zip(split.row_numbers, split.labels, strict=True):
            assert dataset.classes[label] == LABELS[int(row) - 1]


@pytest.mark.parametrize("float_side", ["rows", "labels"])
def test_several_keys_of_floats_join(tmp_path, float_side):
    whole = {"a": [row // 10 for row in range(60)], "b": [row % 10 for row in range(60)]}
    floats = {name: [f"{value}.0" for value in values] for name, values in whole.items()}
    events, labels = (floats, whole) if float_side == "rows" else (whole, floats)
    lines = [f"{a},{b},{step}" for a, b in zip(*events.values(), strict=True) for step in "xyz"]
    (tmp_path / "t.csv").write_text("\n".join(["a,b,codes", *lines]))
    lines = [f"{a},{b},{label}" for a, b, label in zip(*labels.values(), LABELS, strict=True)]
    (tmp_path / "labels.csv").write_text("\n".join(["a,b,y", *lines]))
    overrides = [f"data.labels={tmp_path}/labels.csv", "data.group_by=[a,b]", "data.fields={codes: category}"]
    assert load_data(str(tmp_path / "t.csv"), label="y", overrides=overrides).report["train"].refused == 0


def test_ids_of_sixteen_digits_join_as_floats(tmp_path):
    ids = [4000_0000_0000_0000 + row for row in range(60)]
    pq.write_table(pa.table({"id": list(map(float, ids)), "codes": rows_of(["x", "y"])}), tmp_path / "t.parquet")
    pq.write_table(pa.table({"id": ids, "y": LABELS}), tmp_path / "labels.parquet")
    overrides = [f"data.labels={tmp_path}/labels.parquet", "data.id=id"]
    assert load_data(str(tmp_path / "t.parquet"), label="y", overrides=overrides).report["train"].refused == 0


def test_whole_floats_of_json_are_numbers_whatever_their_size(tmp_path):
    rows = [{"x": [float(row), 1e19, 3.0 - row], "label": LABELS[row]} for row in range(60)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert load_data(str(tmp_path / "t.jsonl"), label="label").schema.fields[0].kind == "number"


def test_missing_values_of_a_category_are_one_token(tmp_path):
    rows = [["red", None if row % 4 == 0 else "blue", "green"] for row in range(60)]
    encoder = load_data(pa.table({"codes": rows, "label": LABELS}), label="label").encoders["codes"]
    assert encoder.from_python(["red", "", None, float("nan"), np.float32("nan")]) == ["red", None, None, None, None]
    (tmp_path / "t.csv").write_text("codes,label\n" + "\n".join(f'"[red, , blue]",{label}' for label in LABELS))
    read = load_data(str(tmp_path / "t.csv"), label="label").encoders["codes"]
    assert None in read.vocabulary.values.to_pylist() and "" not in read.vocabulary.values.to_pylist()
