"""The classifier: shapes, dropout, layouts and errors."""

import torch


def test_dropout_applies_in_training_only(net, inputs):
    model, batch = net(dropout=0.5, token_dropout=0.5, number_noise=0.5), inputs([3, 6])
    assert torch.equal(model(*batch), model(*batch))
    model.train()
    assert not torch.equal(model(*batch), model(*batch))
