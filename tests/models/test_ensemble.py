"""An ensemble averages the probabilities of its members."""

import numpy as np
import pytest
import torch
from torch import nn

from seqclf.models.embedding import load_vectors
from seqclf.models.ensemble import Ensemble, networks_of
from seqclf.models.network import SequenceNetwork, joined_embedding, recorded_embedding, vote


@pytest.fixture
def ensemble(net):
    members = [net() for _ in range(3)]
    for index, member in enumerate(members[1:]):
        torch.manual_seed(10 + index)
        for weight in member.parameters():
            nn.init.normal_(weight, std=0.4)
    return Ensemble(members).eval()


def test_the_probabilities_are_the_mean_of_the_members(ensemble, inputs):
    batch = inputs([3, 7, 1])
    each = torch.stack([member(*batch).softmax(dim=-1) for member in ensemble.members])
    assert each.std(dim=0).min() > 1e-3, "members that agree would test nothing"
    assert torch.allclose(ensemble(*batch).softmax(dim=-1), each.mean(dim=0), atol=1e-6)


def test_the_embedding_is_that_of_the_members_side_by_side(ensemble, inputs):
    batch, layers = inputs([3, 7, 1]), ensemble.embedding_layers()
    with recorded_embedding(layers) as parts:
        ensemble(*batch)
    found = joined_embedding(parts, layers).chunk(3, dim=1)
    for member, part in zip(ensemble.members, found, strict=True):
        torch.testing.assert_close(member.output(part), member(*batch))


def test_the_vote_of_certain_members_is_finite():
    logits = torch.tensor([[[200.0, -200.0]], [[-200.0, 200.0]], [[200.0, -200.0]]], dtype=torch.float16)
    assert torch.allclose(vote(logits).softmax(dim=-1), torch.tensor([[2 / 3, 1 / 3]]))


def test_pretrained_vectors_start_every_member(ensemble):
    vectors = np.random.default_rng(0).standard_normal((12, 6)).astype(np.float32)
    load_vectors(ensemble, "token", vectors)
    for member in ensemble.members:
        assert np.array_equal(member.embedding.layers[0].weight.detach().numpy(), vectors)


def test_each_network_of_an_ensemble_is_fitted():
    members = [SequenceNetwork(), SequenceNetwork()]
    assert networks_of(Ensemble(members)) == members and networks_of(members[0]) == members[:1]
