"""The advice on codes names the numbers, and its overrides work as printed."""

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
from seqclf.survey.survey import code_advice

ROWS, LENGTH = 100, 6


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Columns of lists: amounts, floats of codes 1 to 12, flags, vectors, and words."""
    generator = np.random.default_rng(0)
    shape = (ROWS, LENGTH)
    amount = generator.normal(50, 10, shape)
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
