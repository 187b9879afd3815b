"""The classifier: shapes, dropout, layouts and errors."""

import pytest
import torch

from seqclf.errors import InputError


def test_dropout_applies_in_training_only(net, inputs):
    model, batch = net(dropout=0.5, token_dropout=0.5, number_noise=0.5), inputs([3, 6])
    assert torch.equal(model(*batch), model(*batch))
    model.train()
    assert not torch.equal(model(*batch), model(*batch))


@pytest.mark.parametrize(("option", "value"), [("pooling", "median"), ("layout", "ragged"), ("layers", 0)])
def test_errors_name_the_key_and_its_value(net, option, value):
    with pytest.raises(InputError, match=rf"model\.{option}={value}.*must be"):
        net(**{option: value})
