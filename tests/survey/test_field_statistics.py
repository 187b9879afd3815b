"""Field statistics name constant channels, unknown values and missing ones."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.data.prepare_data import prepare
from seqclf.survey.survey import measure_field


@pytest.fixture(scope="module")
def dataset(options, tmp_path_factory):
    """Two channels of which the second is constant, and a category whose value "new" comes only in the test."""
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("fields")
    for split, words in (("train", ["a", "b"]), ("test", ["a", "new"])):
        rows = [
            {
                "vector": [[float(value), 5.0] for value in generator.normal(size=6)],
                "word": [words[position % 2] for position in range(6)],
                "y": "no" if row % 2 else "yes",
            }
            for row in range(60)
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{split}.parquet")
    paths = {split: folder / f"{split}.parquet" for split in ("train", "test")}
    return prepare(options(**paths, label="y", fields={"vector": "number", "word": "category"}))


def test_constant_channels_are_named(dataset):
    statistics = measure_field(dataset, "vector", dataset.encoders["vector"])
    assert statistics.constant_channels == ["vector[1]"] and not statistics.constant
    assert statistics.unknown is None


def test_unknown_values_are_shares_of_the_tokens_by_split(dataset):
    statistics = measure_field(dataset, "word", dataset.encoders["word"])
    assert statistics.unknown == {"train": 0.0, "validation": 0.0, "test": 0.5}


def test_sequences_that_are_constant_but_differ_make_no_constant_field(options, tmp_path):
    rows = [{"levels": [[float(row), 5.0]] * 4, "y": "ab"[row % 2]} for row in range(40)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    fields = {"levels": {"kind": "number", "scale": "sequence"}}
    dataset = prepare(options(train=tmp_path / "t.parquet", label="y", fields=fields))
    statistics = measure_field(dataset, "levels", dataset.encoders["levels"])
    assert not statistics.constant and statistics.constant_channels == ["levels[1]"]
