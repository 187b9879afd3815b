"""Settings of a benchmark hold the keys that the model takes."""

import pytest

from seqclf.bench.options import BenchConfig
from seqclf.bench.settings import build_contender
from seqclf.config.composition import compose_config
from seqclf.errors import InputError


@pytest.fixture
def config():
    """A config whose experiment was written for a Tree-LSTM, with another model."""
    composed = compose_config(
        "bench", ["model=lstm", "+model.composition=child_sum", "device=cpu", "runtime.threads=1"]
    )
    return BenchConfig.model_validate(composed.plain())


def test_keys_of_the_model_of_an_experiment_are_left_out(config):
    assert "composition" not in build_contender(config, set()).model


def test_keys_that_the_user_wrote_must_be_arguments_of_the_model(config):
    with pytest.raises(InputError, match=r"^model\.composition: no such argument of SequenceClassifier or Recurrent"):
        build_contender(config, {"model.composition"})
