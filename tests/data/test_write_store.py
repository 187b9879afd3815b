"""What pass two writes: every accepted row once, cut and counted, and what it refuses late is told."""

import json

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.prepare import prepare
from seqclf.errors import InputError

LENGTHS = [1, 3, 5, 7, 2, 6] * 5


def table(labels, first=0):
    steps = [list(range(first + row, first + row + length)) for row, length in enumerate(LENGTHS)]
    return {
        "x": [[float(value) for value in own] for own in steps],
        "label": labels,
        "key": [f"r{row}" for row in range(30)],
    }


@pytest.fixture
def files(tmp_path):
    labels = ["a", "b"] * 15
    unseen = ["c" if row in (4, 9) else label for row, label in enumerate(labels)]
    return {
        "train": write(tmp_path / "train.parquet", table(labels)),
        "validation": write(tmp_path / "validation.parquet", table(labels, 100)),
        "test": write(tmp_path / "test.parquet", table(unseen, 200)),
        "label": "label",
        "id": "key",
        "fields": {"x": {"kind": "number", "scale": "none"}},
    }


@pytest.mark.parametrize("truncate", ["keep_first", "keep_last"])
def test_rows_are_cut_kept_in_order_and_counted(options, files, truncate):
    dataset = prepare(options(**files, max_length=4, truncate=truncate))
    split = dataset.splits["validation"]
    for row, length in enumerate(LENGTHS):
        whole = np.arange(100 + row, 100 + row + length, dtype=np.float32)
        part = split.sequences.fields["x"][split.sequences.offsets[row] : split.sequences.offsets[row + 1], 0]
        assert part.tolist() == (whole[:4] if truncate == "keep_first" else whole[-4:]).tolist()
    counts = dataset.report["validation"]
    assert counts["used"] == 30 and counts["truncated"] == 15
    assert counts["tokens"] == sum(min(length, 4) for length in LENGTHS)


def test_a_label_unknown_to_train_is_refused_late_and_counted(options, files):
    dataset = prepare(options(**files))
    assert (dataset.report["test"]["used"], dataset.report["test"]["refused"]) == (28, 2)
    refused = [json.loads(line) for line in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert [(row["row"], row["reason"]) for row in refused] == [
        (5, "is 'c', which never occurs in the training rows"),
        (10, "is 'c', which never occurs in the training rows"),
    ]


def test_the_first_row_beyond_the_limit_is_named(options, files):
    with pytest.raises(InputError, match=r"train.parquet: row 3: x .*\(15 such rows so far\)"):
        prepare(options(**files, max_length=4))


def test_the_digest_tells_one_content_from_another(options, files, tmp_path):
    same = prepare(options(**files)).digest
    shorter = table(["a", "b"] * 15)
    shorter["x"][7] = shorter["x"][7][:-1]
    other = prepare(options(**{**files, "train": write(tmp_path / "other.parquet", shorter)})).digest
    assert same != other
