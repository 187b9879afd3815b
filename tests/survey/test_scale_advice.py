"""The advice to scale each sequence appears where it helps, and its override works as printed."""

import re
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.batching.options import BatchingOptions
from seqclf.config.documentation import CONF
from seqclf.data.options import DataOptions
from seqclf.data.prepare import prepare
from seqclf.survey.survey import survey_dataset

PLAN = {"max_tokens": 512, "max_sequences": 8, "pool_batches": 4}
BATCHING = {**PLAN, "overhead": None, "multiple_of": 1, "edges": None, "balance": 0.0, "largest_first": False}
OPTIONS = BatchingOptions.model_construct(**BATCHING)
ADVICE = re.compile(r"one scale for all flattens \d+% of the sequences.*; set (.*)$")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Waves of amplitudes over four decades in the columns `x` and `a "b" 'c'`, vectors, words, and times."""
    generator = np.random.default_rng(0)
    rows = []
    for row in range(80):
        length = int(generator.integers(10, 40))
        wave = 10 ** generator.uniform(-2, 2) * np.sin(np.arange(length) / generator.uniform(1, 3))
        rows.append(
            {
                "x": wave.tolist(),
                "a \"b\" 'c'": (wave + 5).tolist(),
                "vectors": np.outer(wave, [1, 2]).tolist(),
                "steady": generator.normal(size=length).tolist(),
                "word": generator.choice(["up", "down"], length).tolist(),
                "y": "ab"[row % 2],
            }
        )
    path = tmp_path_factory.mktemp("advice") / "t.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def survey(*overrides):
    """The survey of the composed configuration, without a baseline."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plain = OmegaConf.to_container(compose("describe", list(overrides)).data, resolve=True)
    data_options = DataOptions.build(**plain)
    return survey_dataset(prepare(data_options), data_options, OPTIONS, baseline=False)


def advised(survey):
    """The overrides of the advice, split as a shell does, and the fields that are flattened."""
    (line,) = [line for line in survey.warnings if "one scale for all" in line]
    notable = [name for name, field in survey.fields.items() if field.flattened and field.flattened.is_notable]
    return shlex.split(ADVICE.search(line).group(1)), notable


CONFIGS = {
    "inferred": [],
    "named": ["data.fields={x: number, word: category}"],
    "with options": ["data.fields={big: {kind: number, column: x, scale: robust, clip: 5}, steady: number}"],
    "of several columns": ["data.fields={pair: {kind: number, columns: [x, steady]}, vectors: number}"],
}


@pytest.mark.parametrize("config", CONFIGS)
def test_the_printed_override_ends_the_advice_when_typed(table, config):
    typed = ["data=files", f"data.train={table}", "data.label=y", *CONFIGS[config]]
    before = survey(*typed)
    overrides, notable = advised(before)
    assert notable
    after = survey(*typed, *overrides)
    assert not [line for line in after.warnings if "one scale for all" in line]
    assert list(after.fields) == list(before.fields)
    for name, field in after.fields.items():
        assert field.columns == before.fields[name].columns and field.kind == before.fields[name].kind
        assert ("scale=sequence" in field.describe) == (name in notable)
        assert ("clip=5" in field.describe) == ("clip=5" in before.fields[name].describe)


def test_the_printed_override_works_for_inferred_events(tmp_path):
    generator = np.random.default_rng(0)
    rows = [
        {
            "key": row,
            "at": row * 1e4 + token,
            "the amount": 10.0 ** (row % 5) * generator.normal(),
            "kind": "ab"[token % 2],
            "y": "ab"[row % 2],
        }
        for row in range(80)
        for token in range(12)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    typed = ["data=files", f"data.train={tmp_path / 't.parquet'}", "data.label=y", "data.group_by=key"]
    before = survey(*typed, "data.order_by=at")
    overrides, notable = advised(before)
    after = survey(*typed, "data.order_by=at", *overrides)
    assert notable == ["the_amount"] and "scale=sequence" in after.fields["the_amount"].describe
    assert {name: field.kind for name, field in after.fields.items()} == {
        name: field.kind for name, field in before.fields.items()
    }


@pytest.mark.parametrize("config", [[], ["data.fields={amount: number, wave: number}"]])
def test_positive_numbers_with_a_heavy_tail_get_logarithms_which_keep_the_level(tmp_path, config):
    generator = np.random.default_rng(0)
    rows = [
        {
            "amount": generator.lognormal(9 + generator.normal(), 1.5, length).tolist(),
            "wave": (10 ** generator.uniform(-2, 2) * generator.normal(size=length)).tolist(),
            "y": "ab"[row % 2],
        }
        for row, length in enumerate(generator.integers(8, 40, 200))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    typed = ["data=files", f"data.train={tmp_path / 't.parquet'}", "data.label=y", *config]
    before = survey(*typed)
    overrides, notable = advised(before)
    assert notable == ["amount", "wave"]
    after = survey(*typed, *overrides)
    assert not [line for line in after.warnings if "one scale for all" in line]
    described = [field.describe for field in after.fields.values()]
    assert ["log" in text for text in described] == [True, False], described
    assert ["scale=sequence" in text for text in described] == [False, True]


def test_of_many_fields_the_advice_names_a_few(tmp_path):
    generator = np.random.default_rng(0)
    rows = [
        {
            **{
                f"signal_of_sensor_{index}": (10.0 ** (row % 5) * generator.normal(size=9)).tolist()
                for index in range(30)
            },
            "y": "ab"[row % 2],
        }
        for row in range(80)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    found = survey("data=files", f"data.train={tmp_path / 't.parquet'}", "data.label=y")
    (line,) = [line for line in found.warnings if "one scale for all" in line]
    assert line.startswith("30 fields (most: signal_of_sensor_") and len(line) <= 400
    assert line.endswith(
        "set scale: sequence for signal_of_sensor_0, signal_of_sensor_1, signal_of_sensor_2 … in data.fields"
    )


def test_japanese_vowels_need_one_scale_only():
    assert not [line for line in survey("data=japanese_vowels").warnings if "one scale for all" in line]
