"""The advice on sentinels and on codes names the numbers, and its overrides work as printed."""

import html
import json
import shlex

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from seqclf.config.documentation import CONF
from seqclf.data.options import DataOptions
from seqclf.data.prepare import prepare
from seqclf.survey.survey import code_advice, sentinel_advice

ROWS, LENGTH = 100, 6


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Columns of lists: amounts with -999 and 1e30, floats of codes 1 to 12, flags, vectors, and words."""
    generator = np.random.default_rng(0)
    shape = (ROWS, LENGTH)
    amount = generator.normal(50, 10, shape)
    amount[generator.random(shape) < 0.2] = -999
    amount[generator.random(shape) < 0.1] = 1e30
    columns = {
        "amount": amount.tolist(),
        "clean": generator.normal(0, 1, shape).tolist(),
        "code": generator.integers(1, 13, shape).astype(float).tolist(),
        "flag": generator.integers(0, 2, shape).astype(float).tolist(),
        "pair": np.stack([generator.normal(0, 1, shape), amount], axis=2).tolist(),
        "word": generator.choice(["up", "down"], shape).tolist(),
        "y": ["a", "b"] * (ROWS // 2),
    }
    path = tmp_path_factory.mktemp("values") / "t.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def prepared(table, *overrides):
    """The dataset of the composed configuration, and its `data.fields`."""
    typed = ["data=files", f"data.train={table}", "data.label=y", "data.split.validation=0.1", *overrides]
    with initialize_config_dir(str(CONF), version_base="1.3"):
        plain = OmegaConf.to_container(compose("describe", typed).data, resolve=True)
    return prepare(DataOptions.build(**plain)), plain["fields"]


def printed(line):
    return shlex.split(line.rpartition(" set ")[2])


MANY = ", ".join(f"field_number_{number}: {{kind: number, column: clean}}" for number in range(20))
SENTINELS = {
    "inferred": [],
    "named": ["data.fields={amount: number, word: category}"],
    "with options": [
        "data.fields={x: {kind: number, column: amount, missing: zero, missing_values: [7], clip: 5}, clean: number}"
    ],
    "of several columns": ["data.fields={x: {kind: number, columns: [clean, amount]}}"],
    "beside many": [f"data.fields={{amount: number, {MANY}}}"],
}


@pytest.mark.parametrize("config", SENTINELS)
def test_the_override_of_sentinels_makes_them_missing(table, config):
    before, fields = prepared(table, *SENTINELS[config])
    (line,) = sentinel_advice(before.encoders, fields)
    (name,) = [name for name, encoder in before.encoders.items() if encoder.sentinels and name != "pair"]
    train = before.splits["train"].sequences.fields[name]
    assert [sentinel.value for sentinel in before.encoders[name].sentinels] == [-999.0, 1e30]
    after, fields = prepared(table, *SENTINELS[config], *printed(line))
    assert sentinel_advice(after.encoders, fields) == []
    assert {name: encoder.field.columns for name, encoder in after.encoders.items()} == {
        name: encoder.field.columns for name, encoder in before.encoders.items()
    }
    channel = before.encoders[name].sentinels[0].channel
    mask = after.splits["train"].sequences.fields[name][:, after.encoders[name].mask_channels()][:, channel]
    assert len(mask) == len(train)
    assert (mask == 0).sum() == sum(sentinel.tokens for sentinel in before.encoders[name].sentinels)
    known = after.encoders[name].original_values(after.splits["train"].sequences.fields)[:, channel]
    assert 0 < np.nanmin(known) < np.nanmax(known) < 200
    kept = {"with options": {"clip": 5, "missing": "zero", "missing_values": [-999, 7, 1e30]}}.get(config, {})
    assert kept.items() <= after.encoders[name].field.options.items()


def test_describe_keeps_the_advice_in_its_json_and_page(table, tmp_path, empty_shell):
    """The terminal shows each line once."""
    data = ["data=files", f"data.train={table}", "data.label=y", "baseline=false", "output=survey.html"]
    completed = empty_shell.start("-m", "seqclf.describe", *data, cwd=tmp_path)()
    (line,) = [
        line for line in json.loads((tmp_path / "survey.json").read_text())["warnings"] if "missing_values" in line
    ]
    assert line in html.unescape((tmp_path / "survey.html").read_text())
    assert completed.stderr.count(line) == 1


def test_sentinels_of_many_inferred_fields_have_a_complete_override(tmp_path):
    generator = np.random.default_rng(0)
    columns = {f"reading_of_sensor_{number}": generator.normal(20, 3, (ROWS, LENGTH)) for number in range(30)}
    columns["reading_of_sensor_7"][::2, 0] = -9999
    lists = {name: values.tolist() for name, values in columns.items()}
    pq.write_table(pa.table({**lists, "y": ["a", "b"] * (ROWS // 2)}), tmp_path / "t.parquet")
    dataset, fields = prepared(tmp_path / "t.parquet")
    (line,) = sentinel_advice(dataset.encoders, fields)
    after, fields = prepared(tmp_path / "t.parquet", *printed(line))
    assert len(line) > 400 and len(after.encoders) == 30 and sentinel_advice(after.encoders, fields) == []


CODES = {
    "inferred": [],
    "named": ["data.fields={code: number, flag: number, clean: number}"],
    "with missing": ["data.fields={x: {kind: number, column: code, missing: last, mask: false}, flag: number}"],
}


@pytest.mark.parametrize("config", CODES)
def test_the_override_of_codes_makes_them_categories(table, config):
    before, fields = prepared(table, *CODES[config])
    (line,) = code_advice(before, fields)
    assert "(12 from 1 to 12)" in line and "flag (" not in line
    after, fields = prepared(table, *CODES[config], *printed(line))
    assert code_advice(after, fields) == []
    kinds = {name: encoder.field.kind for name, encoder in before.encoders.items()}
    name = "x" if config == "with missing" else "code"
    assert {name: encoder.field.kind for name, encoder in after.encoders.items()} == {**kinds, name: "category"}
    assert after.encoders[name].spec()["size"] >= 12


@pytest.mark.parametrize("field", ["{kind: number, log: true}", "{kind: number, scale: none}"])
def test_a_field_with_options_of_numbers_is_no_code(table, field):
    assert code_advice(*prepared(table, f"data.fields={{code: {field}}}")) == []
