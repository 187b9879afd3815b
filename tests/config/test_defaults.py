"""Defaults of conf/ that are read without Hydra."""

import pytest

from seqclf.config.composition import compose_config
from seqclf.config.documentation import default_settings


@pytest.mark.parametrize("name", ["model", "loss", "optimizer", "batching", "monitor", "seed"])
def test_a_default_is_that_of_a_composed_config_and_a_new_copy_each_time(name):
    expected = compose_config("train").plain()[name]
    first = default_settings(name)
    assert first == expected and type(first) is type(expected)
    if isinstance(first, dict):
        first.clear()
    assert default_settings(name) == expected
