"""Built-in data sets are as documented."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from seqclf.data.builtin.toy import write
from seqclf.data.prepare_data import prepare
from seqclf.errors import InputError


def test_japanese_vowels_is_split_as_published(options):
    dataset = prepare(options(data="japanese_vowels"))
    assert [len(split.sequences) for split in dataset.splits.values()] == [216, 54, 370]
    assert len(dataset.classes) == 9 and dataset.schema.fields[0].width == 12
    lengths = np.concatenate([split.sequences.lengths for split in dataset.splits.values()])
    assert (lengths.min(), lengths.max()) == (7, 29)


def test_spoken_digits_are_split_by_speaker(options):
    dataset = prepare(options(data="spoken_arabic_digits"))
    assert [len(split.sequences) for split in dataset.splits.values()] == [1800, 400, 1100]
    assert len(dataset.classes) == 10 and dataset.schema.fields[0].width == 13
    speakers = [{row_id[:-4] for row_id in split.ids.to_pylist()} for split in dataset.splits.values()]
    assert [len(names) for names in speakers] == [18, 4, 22]
    assert not (speakers[0] & speakers[1] or (speakers[0] | speakers[1]) & speakers[2])


def test_toy_labels_are_the_last_signal(tmp_path):
    write(tmp_path, rows={"train": 300}, longest=12, seed=0)
    rows = pq.read_table(tmp_path / "train.parquet").to_pylist()
    assert all(1 <= len(row["tokens"]) <= 12 for row in rows) and len(rows) == 300
    assert all([token for token in row["tokens"] if token <= 5][-1] == row["label"] for row in rows)


def test_generated_data_is_written_once_per_set_of_arguments(options, tmp_path):
    generator = {"_target_": "seqclf.data.builtin.toy.write", "longest": 5, "seed": 0}
    generator["rows"] = {"train": 60, "validation": 20, "test": 20}
    first = prepare(options(data="toy", generator=generator, cache_dir=tmp_path))
    again = prepare(options(data="toy", generator=generator, cache_dir=tmp_path))
    other = prepare(options(data="toy", generator={**generator, "seed": 1}, cache_dir=tmp_path))
    assert not first.reused and again.reused and not other.reused
    assert first.digest == again.digest != other.digest
    assert first.description()["rows"] == {"train": 60, "validation": 20, "test": 20}
    assert len(list(tmp_path.iterdir())) == 4


def test_a_generator_that_fails_leaves_nothing(options, tmp_path):
    generator = {"_target_": "seqclf.data.builtin.toy.write", "sead": 0}
    with pytest.raises(InputError, match=r"data.generator.sead: no such argument of write; did you mean 'seed'"):
        prepare(options(data="toy", generator=generator, cache_dir=tmp_path))
    with pytest.raises(InputError, match=r"_target_=no.such: cannot be imported"):
        prepare(options(data="toy", generator={"_target_": "no.such"}, cache_dir=tmp_path))
    assert list(tmp_path.iterdir()) == []
