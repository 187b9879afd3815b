"""The run advises convolutions for long signals, and larger batches of short sequences."""

import numpy as np
import pyarrow as pa
import pytest

import seqclf
from seqclf.api.fit import training_setup
from seqclf.runs.length_advice import length_advice


def dataset(folder, length, numbers=True, rows=20):
    generator = np.random.default_rng(0)
    values = [generator.normal(size=length).round(3) for _ in range(rows)]
    signals = [row.tolist() if numbers else [f"code{value > 0}" for value in row] for row in values]
    table = pa.table({"x": signals, "label": ["a", "b"] * (rows // 2)})
    return seqclf.load_data(table, label="label", overrides=[f"data.cache_dir={folder}"])


@pytest.mark.parametrize(
    ("length", "numbers", "overrides", "is_advised"),
    [
        (100, True, [], True),
        (100, True, ["model=gru"], True),
        (99, True, [], False),
        (100, False, [], False),
        (100, True, ["model=conv_lstm"], False),
        (100, True, ["model=transformer"], False),
        (100, True, ["model.bidirectional=false"], False),
    ],
    ids=str,
)
def test_convolutions_are_advised_for_long_signals_alone(tmp_path, length, numbers, overrides, is_advised):
    config = training_setup({}, "label", ["data=toy", *overrides]).config
    lines = list(length_advice(config.model, config.batching.max_sequences, dataset(tmp_path, length, numbers)))
    assert any("model=conv_lstm" in line for line in lines) == is_advised


@pytest.mark.parametrize(
    ("length", "rows", "overrides", "advised"),
    [
        (16, 4_000, [], 64),
        (8, 4_000, [], 128),
        (17, 4_000, [], None),
        (16, 2_000, [], None),
        (16, 4_000, ["batching.max_sequences=64"], None),
        (16, 4_000, ["batching.max_sequences=null"], None),
    ],
    ids=str,
)
def test_larger_batches_are_advised_for_many_short_sequences(tmp_path, length, rows, overrides, advised):
    config = training_setup({}, "label", ["data=toy", *overrides]).config
    lines = list(length_advice(config.model, config.batching.max_sequences, dataset(tmp_path, length, rows=rows)))
    found = [line.partition("batching.max_sequences=")[2].split()[0] for line in lines if "max_sequences" in line]
    assert found == ([] if advised is None else [str(advised)])
