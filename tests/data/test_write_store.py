"""The store holds every accepted row once, truncated and counted. Late refusals are reported."""

import json

import numpy as np
import pytest
from support.table_files import write

from seqclf.data.prepare import prepare
from seqclf.errors import InputError

LENGTHS = [1, 3, 5, 7, 2, 6] * 5


def table(labels, first=0):
    rows = [list(range(first + row, first + row + length)) for row, length in enumerate(LENGTHS)]
    return {
        "x": [[float(value) for value in row] for row in rows],
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
def test_rows_are_truncated_kept_in_order_and_counted(options, files, truncate):
    dataset = prepare(options(**files, max_length=4, truncate=truncate))
    split = dataset.splits["validation"]
    for row, length in enumerate(LENGTHS):
        untruncated = np.arange(100 + row, 100 + row + length, dtype=np.float32)
        part = split.sequences.fields["x"][split.sequences.offsets[row] : split.sequences.offsets[row + 1], 0]
        assert part.tolist() == (untruncated[:4] if truncate == "keep_first" else untruncated[-4:]).tolist()
    counts = dataset.report["validation"]
    assert counts.used == 30 and counts.truncated == 15
    assert counts.tokens == sum(min(length, 4) for length in LENGTHS)


def test_a_label_that_is_not_in_train_is_refused_and_counted(options, files):
    dataset = prepare(options(**files))
    assert (dataset.report["test"].used, dataset.report["test"].refused) == (28, 2)
    refused = [json.loads(line) for line in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert [(row["row"], row["reason"]) for row in refused] == [
        (5, "is 'c', which never occurs in the training rows"),
        (10, "is 'c', which never occurs in the training rows"),
    ]


def test_the_first_row_that_is_too_long_is_named(options, files):
    with pytest.raises(InputError, match=r"train.parquet: row 3: x .*\(15 such rows so far\)"):
        prepare(options(**files, max_length=4))


def test_the_digest_depends_on_the_content_only(options, files, tmp_path):
    same = prepare(options(**files)).digest
    shorter = table(["a", "b"] * 15)
    shorter["x"][7] = shorter["x"][7][:-1]
    other = prepare(options(**{**files, "train": write(tmp_path / "other.parquet", shorter)})).digest
    assert same != other
