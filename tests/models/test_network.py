"""Networks of users: the base class has defaults, and an ensemble calls the methods of its members."""

import numpy as np
import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.models.classifier import SequenceEncoder
from seqclf.models.embedding import load_vectors
from seqclf.models.ensemble import Ensemble
from seqclf.models.network import SequenceNetwork

BATCH = {"word": torch.randint(1, 9, (2, 5))}, torch.tensor([5, 2]), np.array([5, 2])
LABELS = torch.tensor([0, 1])


class Based(SequenceNetwork):
    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(9, 2)

    def forward(self, fields, lengths, host_lengths):
        return self.scores(fields["word"]).sum(dim=1) / lengths[:, None]


class Penalised(Based):
    """Has two of the methods."""

    def training_loss(self, fields, lengths, host_lengths, labels, loss):
        plain = super().training_loss(fields, lengths, host_lengths, labels, loss)
        return plain._replace(total=plain.total + self.scores.weight.square().sum())

    def load_vectors(self, name, vectors):
        self.scores.weight.data = torch.from_numpy(vectors)


def test_a_network_has_defaults():
    network, loss = Based(), nn.CrossEntropyLoss()
    result = network.training_loss(*BATCH, LABELS, loss)
    assert torch.equal(result.total, loss(network(*BATCH), LABELS)) and result.loss is result.total
    assert network.outputs(*BATCH).keys() == {"logits"} and network.streaming() is None
    with pytest.raises(InputError, match=r"data\.fields\.word\.vectors: no module has a method load_vectors"):
        load_vectors(network, "word", np.zeros((9, 2)))


def test_an_ensemble_calls_the_methods_of_its_members():
    members = Penalised(), Penalised()
    network = Ensemble(members)
    load_vectors(network, "word", np.ones((9, 2), np.float32))
    assert all((member.scores.weight == 1).all() for member in members)
    result = network.training_loss(*BATCH, LABELS, nn.CrossEntropyLoss())
    alone = [nn.CrossEntropyLoss()(member(*BATCH), LABELS) + 18 for member in members]
    torch.testing.assert_close(result.total, sum(alone))


def test_an_encoder_reads_in_one_direction_and_has_no_step_by_default():
    encoder = SequenceEncoder()
    assert (encoder.backward_size, encoder.structure, encoder.streaming()) == (0, (), None)


def test_the_loss_of_a_compiled_network_runs_what_is_compiled():
    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    network = Based()
    expected = network(*BATCH)
    network.compile(backend=backend)
    result = network.training_loss(*BATCH, LABELS, nn.CrossEntropyLoss())
    assert graphs and torch.allclose(result.logits, expected)
