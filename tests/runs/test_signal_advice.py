"""The run advises convolutions for long signals that a recurrent network reads token by token."""

import numpy as np
import pyarrow as pa
import pytest

import seqclf
from seqclf.api.fit import training_setup
from seqclf.runs.fit import signal_advice


def dataset(folder, length, numbers=True):
    generator = np.random.default_rng(0)
    values = [generator.normal(size=length).round(3) for _ in range(20)]
    signals = [row.tolist() if numbers else [f"code{value > 0}" for value in row] for row in values]
    table = pa.table({"x": signals, "label": ["a", "b"] * 10})
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
    model = training_setup({}, "label", ["data=toy", *overrides]).config.model
    advice = signal_advice(model, dataset(tmp_path, length, numbers))
    assert (advice is not None and "model=conv_lstm" in advice) == is_advised
