"""Ensembles of networks of heads."""

from pathlib import Path

import pytest
import torch
from models.checks import exported
from models.heads.conftest import CATEGORY, NUMBER, PLAIN, random_split, same_buffers, training_rows
from models.heads.test_exactness import assert_equal, inputs_of

from seqclf.models.ensemble import Ensemble, build_classifier, vote
from seqclf.models.heads.network import HeadsClassifier

FIELDS = [NUMBER, CATEGORY]


def ensemble(members: int = 3) -> Ensemble:
    torch.manual_seed(0)
    model = {"_target_": "seqclf.models.heads.network.HeadsClassifier", **PLAIN, "members": members}
    network = build_classifier(model, FIELDS, 3)
    network.fit_to(training_rows(random_split(FIELDS)))
    return network.eval()


@torch.inference_mode()
def test_members_have_one_front_end_and_weights_of_their_own():
    network = ensemble()
    first, second, _ = network.members
    assert same_buffers(first.front, second.front) and torch.equal(first.heads[1].weight, second.heads[1].weight)
    assert not torch.equal(first.heads[0].project.weight, second.heads[0].project.weight)
    fields, lengths = inputs_of(FIELDS)
    alone = torch.stack([member(fields, lengths, lengths.numpy()) for member in network.members])
    assert_equal(network(fields, lengths, lengths.numpy()), vote(alone))


@torch.inference_mode()
def test_validation_rows_weigh_the_heads_of_each_member():
    network = ensemble()
    text = network.fit_to_validation(training_rows(random_split(FIELDS, rows=50, seed=4)))
    assert text.count("recurrent") == 3
    assert len({tuple(member.weights.tolist()) for member in network.members}) == 3


@pytest.mark.slow
def test_the_exported_ensemble_reads_the_front_end_once(tmp_path: Path):
    sizes = {}
    for members in (1, 3):
        network = ensemble(members)
        session = exported(network, tmp_path / f"{members}.onnx", FIELDS)
        sizes[members] = (tmp_path / f"{members}.onnx").stat().st_size
    taps = network.members[0].front.bank.taps
    assert sizes[3] - sizes[1] < taps.numel() * taps.element_size() * 2  # the kernels are stored once
    fields, lengths = inputs_of(FIELDS)
    found = session.run(None, {**{key: values.numpy() for key, values in fields.items()}, "lengths": lengths.numpy()})
    with torch.inference_mode():
        assert_equal(torch.from_numpy(found[0]), network(fields, lengths, lengths.numpy()))


class Constant(HeadsClassifier):
    def forward(self, fields, lengths, host_lengths):
        return torch.tensor([[9.0, 0.0, 0.0]]).expand(len(lengths), -1)


@torch.inference_mode()
def test_an_ensemble_calls_the_forward_of_a_subclass():
    network = Ensemble([Constant(FIELDS, 3, **PLAIN) for _ in range(2)]).eval()
    fields, lengths = inputs_of(FIELDS)
    assert_equal(network(fields, lengths, lengths.numpy()), vote(torch.tensor([9.0, 0, 0]).expand(2, len(lengths), 3)))
