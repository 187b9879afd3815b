"""Networks of users: plain modules take part with the default methods where they have none of their own."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.models.encoder import as_encoder
from seqclf.models.ensemble import Ensemble
from seqclf.models.network import SequenceNetwork, as_network

BATCH = {"word": torch.randint(1, 9, (2, 5))}, torch.tensor([5, 2]), np.array([5, 2])
LABELS = torch.tensor([0, 1])


class Plain(nn.Module):
    """A network of somebody who has not read about the base class."""

    def __init__(self):
        super().__init__()
        self.scores = nn.Embedding(9, 2)

    def forward(self, fields, lengths, host_lengths):
        return self.scores(fields["word"]).sum(dim=1) / lengths[:, None]


class Penalised(Plain):
    """Has two of the methods."""

    def training_loss(self, fields, lengths, host_lengths, labels, loss):
        plain = SequenceNetwork.training_loss(self, fields, lengths, host_lengths, labels, loss)
        return plain._replace(total=plain.total + self.scores.weight.square().sum())

    def load_vectors(self, name, vectors):
        self.scores.weight.data = torch.from_numpy(vectors)


def test_a_plain_module_has_the_defaults():
    module = Plain()
    network, loss = as_network(module), nn.CrossEntropyLoss()
    result = network.training_loss(*BATCH, LABELS, loss)
    assert torch.equal(result.total, loss(module(*BATCH), LABELS)) and result.loss is result.total
    assert not network.halts and network.step_form() is None and not [*network.walkthrough_stages(None, None)]
    assert torch.isinf(network.halting_margin(*BATCH)).tolist() == [True, True]
    with pytest.raises(InputError, match=r"data\.fields\.word\.vectors: .*Plain has no method load_vectors"):
        network.load_vectors("word", np.zeros((9, 2)))


def test_the_methods_of_a_plain_module_come_first_in_an_ensemble_too():
    members = Penalised(), Penalised()
    network = Ensemble(members)
    network.load_vectors("word", np.ones((9, 2), np.float32))
    assert all((member.scores.weight == 1).all() for member in members)
    result = network.training_loss(*BATCH, LABELS, nn.CrossEntropyLoss())
    alone = [nn.CrossEntropyLoss()(member(*BATCH), LABELS) + 18 for member in members]
    torch.testing.assert_close(result.total, sum(alone))


def test_a_network_of_the_base_class_is_itself():
    network = SequenceNetwork()
    assert as_network(network) is network


def test_a_module_of_a_user_stays_what_it_is():
    """Its class, the names of its weights and its pickles are those of a program without seqclf."""
    module = Plain()
    as_network(module).training_loss(*BATCH, LABELS, nn.CrossEntropyLoss())
    assert type(module) is Plain and list(module.state_dict()) == ["scores.weight"]
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(
            as_network(again).training_loss(*BATCH, LABELS, nn.CrossEntropyLoss()).logits, module(*BATCH)
        )


def test_an_encoder_without_the_base_class_reads_in_one_direction_and_has_no_step():
    encoder = as_encoder(nn.Identity())
    assert (encoder.backward_size, encoder.structure, encoder.step_form()) == (0, (), None)


def test_the_default_loss_of_a_compiled_network_runs_what_is_compiled():
    class Based(SequenceNetwork):
        def __init__(self):
            super().__init__()
            self.scores = nn.Embedding(9, 2)

        forward = Plain.forward

    graphs = []

    def backend(graph, _):
        graphs.append(graph)
        return graph.forward

    network = Based()
    compiled = torch.compile(network, backend=backend)
    result = as_network(compiled).training_loss(*BATCH, LABELS, nn.CrossEntropyLoss())
    assert graphs and torch.allclose(result.logits, network(*BATCH))
