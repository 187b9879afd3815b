"""A run whose checkpoints would lack weights ends in an error before its training."""

from types import SimpleNamespace

import pytest
from torch import nn

import seqclf
from seqclf.extend import SequenceEncoder

from .conftest import FAST, make_frame


class Hidden(SequenceEncoder):
    """An encoder whose layer no checkpoint holds."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.hidden = SimpleNamespace(layer=nn.Linear(input_size, hidden_size))

    def forward(self, tokens, lengths, host_lengths):
        return self.hidden.layer(tokens), lengths, host_lengths


def test_a_run_ends_before_its_training_where_a_checkpoint_would_lack_weights(tmp_path):
    settings = [
        *FAST[2:],  # without keys of the model
        "model=own_encoder",
        f"model.encoder._target_={__name__}.Hidden",
        "+model.hidden_size=8",
        "export=false",
        f"hydra.run.dir={tmp_path / 'run'}",
    ]
    with pytest.raises(seqclf.InputError) as error:
        seqclf.fit(make_frame(120), label="label", overrides=settings)
    assert error.value.where.endswith(".Hidden") and "a checkpoint misses weights" in error.value.problem
    assert not (tmp_path / "run" / "metrics.csv").exists()
