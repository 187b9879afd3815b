"""`.ts` files: the values that stand in the text, as steps of channels."""

import json

import numpy as np
from support.table_files import write_lines

from seqclf.data.prepare_data import prepare

HEADER = ["#comment", "@problemName Vowels", "@timeStamps false", "@univariate false", "@classLabel true a b", "@data"]


def series(count=20, seed=0):
    """(channels, label) of each row, the channels of different lengths from row to row."""
    generator = np.random.default_rng(seed)
    return [
        (generator.normal(0, 9, (2, int(generator.integers(1, 6)))).round(4), "ab"[row % 2]) for row in range(count)
    ]


def line(channels, label):
    return ":".join([*(",".join(str(value) for value in channel) for channel in channels), label])


def prepared(options, path, **overrides):
    fields = {"series": {"kind": "number", "scale": "none"}}
    return prepare(options(train=path, label="label", fields=fields, **overrides))


def test_the_values_are_those_of_the_text(options, tmp_path):
    rows = series()
    path = write_lines(tmp_path / "t.ts", [*HEADER, *(line(*row) for row in rows)])
    dataset = prepared(options, path)
    for split in dataset.splits.values():
        for position, row in enumerate(split.row_numbers):
            tokens = slice(split.sequences.offsets[position], split.sequences.offsets[position + 1])
            channels, label = rows[row - 1]
            np.testing.assert_allclose(split.sequences.fields["series"][tokens], channels.T, rtol=1e-6)
            assert dataset.classes[split.labels[position]] == label


def test_bad_rows_are_refused_one_by_one(options, tmp_path):
    rows = [line(*row) for row in series()]
    rows[3], rows[5], rows[7], rows[9] = "1,2:3,x:a", "1,2:3:a", "1,?:3,4:a", "1,2:3,4:"
    dataset = prepared(options, write_lines(tmp_path / "t.ts", [*HEADER, *rows]), max_bad_share=0.5)
    refused = [json.loads(entry) for entry in (dataset.folder / "quarantine.jsonl").read_text().splitlines()]
    assert [entry["row"] for entry in refused] == [4, 6, 8, 10]
    assert sum(len(split.sequences) for split in dataset.splits.values()) == 16


def test_missing_values_can_be_filled(options, tmp_path):
    rows = [line(*row) for row in series()]
    rows[3] = "1,?,5:3,4,?:a"
    path = write_lines(tmp_path / "t.ts", [*HEADER, *rows])
    fields = {"series": {"kind": "number", "scale": "none", "missing": "last"}}
    dataset = prepare(options(train=path, label="label", fields=fields))
    assert dataset.report["train"].refused == 0
    split = next(split for split in dataset.splits.values() if 4 in split.row_numbers)
    position = split.row_numbers.tolist().index(4)
    tokens = split.sequences.fields["series"][split.sequences.offsets[position] : split.sequences.offsets[position + 1]]
    assert tokens.tolist() == [[1, 3, 1, 1], [1, 4, 0, 1], [5, 4, 1, 0]]
