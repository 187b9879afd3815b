"""Ensembles of networks of heads."""

from pathlib import Path

import pytest
import torch
from models.auto.conftest import CATEGORY, NUMBER, build, random_split, training_rows
from models.auto.test_exactness import assert_equal, inputs_of
from models.checks import exported

from seqclf.models.auto.statistics_heads import LinearHead, StatisticsHead
from seqclf.models.network import vote

FIELDS = [NUMBER, CATEGORY]


@torch.inference_mode()
def test_members_share_the_front_end_and_the_heads_that_are_not_trained(fitted):
    network = fitted(FIELDS, members=3, heads=["recurrent", "kernels", "statistics"])
    first, second, _ = network.members
    assert first[1] is second[1] and first[0] is not second[0] and first[2] is not second[2]
    assert torch.equal(first[2].edges, second[2].edges)
    assert not torch.equal(first[0].project.weight, second[0].project.weight)
    fields, lengths = inputs_of(FIELDS)
    alone = fitted(FIELDS, heads=["recurrent", "kernels", "statistics"])
    logits = []
    for member, weights in zip(network.members, network.weights, strict=True):
        alone.heads.load_state_dict(member.state_dict())
        alone.weights.copy_(weights)
        logits.append(alone(fields, lengths, lengths.numpy()))
    assert_equal(network(fields, lengths, lengths.numpy()), vote(torch.stack(logits)))


def test_a_head_that_is_not_trained_is_fitted_once(monkeypatch):
    calls = []
    monkeypatch.setattr(LinearHead, "fit", lambda *_: calls.append("linear"))
    monkeypatch.setattr(StatisticsHead, "fit", lambda *_: calls.append("statistics"))
    build(FIELDS, members=3, heads=["recurrent", "linear", "statistics"]).fit_to(training_rows(random_split(FIELDS)))
    assert sorted(calls) == ["linear", *["statistics"] * 3]


def test_validation_rows_weigh_the_heads_of_each_member(fitted):
    network = fitted(FIELDS, members=3)
    text = network.fit_to_validation(training_rows(random_split(FIELDS, rows=50, seed=4)))
    assert text.count("recurrent") == 3
    assert len({tuple(weights) for weights in network.weights.tolist()}) == 3


@pytest.mark.slow
def test_the_exported_ensemble_reads_the_front_end_once(fitted, tmp_path: Path):
    sizes = {}
    for members in (1, 3):
        network = fitted(FIELDS, members=members)
        session = exported(network, tmp_path / f"{members}.onnx", FIELDS)
        sizes[members] = (tmp_path / f"{members}.onnx").stat().st_size
    taps = network.front.bank.taps
    assert sizes[3] - sizes[1] < taps.numel() * taps.element_size() * 2  # the kernels are stored once
    fields, lengths = inputs_of(FIELDS)
    found = session.run(None, {**{key: values.numpy() for key, values in fields.items()}, "lengths": lengths.numpy()})
    with torch.inference_mode():
        assert_equal(torch.from_numpy(found[0]), network(fields, lengths, lengths.numpy()))
