"""Share of the wide paths in a mixture, chosen by validation rows."""

import numpy as np
import pytest

from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.choose_share import ShareChoice, choose_share


def simulated(rng, rows, network_strength, wide_strength, classes=3):
    """Logits of two models with independent errors; each strength is the size of the signal in units of the noise."""
    labels = rng.integers(0, classes, rows)
    signal = np.eye(classes)[labels]
    network, wide = (
        strength * signal + rng.standard_normal((rows, classes)) for strength in (network_strength, wide_strength)
    )
    # The logits of a Gaussian with these means: both models are calibrated.
    return network * network_strength, wide * wide_strength, labels


def loss_of(logits, labels):
    return -np.log(softmax(logits)[np.arange(len(labels)), labels]).mean()


def chosen_shares(network_strength, wide_strength, rows, repeats=40):
    rng = np.random.default_rng(0)
    return [choose_share(*simulated(rng, rows, network_strength, wide_strength)).share for _ in range(repeats)]


def test_a_network_that_knows_nothing_gets_no_share():
    assert np.mean(np.array(chosen_shares(0.05, 2.0, rows=100)) == 1.0) > 0.9


def test_wide_paths_that_know_nothing_get_little_share():
    assert np.median(chosen_shares(2.0, 0.05, rows=400)) <= 0.2


def test_two_models_that_know_different_things_share():
    """The mixture of two calibrated models with independent errors is the product of both, at equal weight."""
    shares = np.array(chosen_shares(1.5, 1.5, rows=2000))
    assert (shares >= 0.4).all() and (shares <= 0.7).all()


@pytest.mark.parametrize("strengths", [(0.05, 2.0), (2.0, 0.05), (1.0, 1.5), (2.0, 1.0)])
def test_the_mixture_is_on_new_rows_no_worse_than_the_better_model(strengths):
    rng = np.random.default_rng(1)
    losses = []
    for _ in range(20):
        choice = choose_share(*simulated(rng, 300, *strengths))
        network, wide, labels = simulated(rng, 4000, *strengths)
        mixed = (1 - choice.share) * choice.scale * network + choice.share * wide
        losses.append(loss_of(mixed, labels) - min(loss_of(network, labels), loss_of(wide, labels)))
    assert np.mean(losses) < 0.01


def test_few_rows_choose_the_wide_paths_and_many_rows_the_network():
    """The network adds a little. The rule asks whether the rows show it."""
    few, many = (np.array(chosen_shares(0.6, 1.5, rows=rows)) for rows in (20, 4000))
    assert (few == 1).mean() > 0.5 and (many == 1).mean() == 0


def test_the_largest_share_that_is_not_shown_to_be_worse_is_chosen():
    choice = choose_share(*simulated(np.random.default_rng(4), 100, 1.5, 1.2))
    assert 0 < choice.share < 1
    equal = [point.share for point in choice.points if point.excess <= max(point.error / 2, 1 / 100)]
    assert choice.share == max(equal) > min(equal)


def test_two_models_that_are_right_on_all_rows_leave_the_network_out():
    """Their losses differ by less than a nat in all, though alike in every row."""
    labels = np.arange(1000) % 2
    right = np.eye(2)[labels]
    choice = choose_share(9.0 * right, 8.0 * right, labels)
    assert choice.share == 1.0
    assert max(point.excess for point in choice.points) * 1000 < 1
    # Where the wide path gives all rows the same doubt, the gain of the network is more than that.
    assert choose_share(9.0 * right, 4.0 * right, labels).share < 1.0


def test_rows_of_one_group_count_as_one():
    """Each row ten times shows no more than each row once, if the copies are known to be of one group."""
    rng = np.random.default_rng(2)
    network, wide, labels = simulated(rng, 60, 1.2, 1.0)
    copies = [np.repeat(array, 10, axis=0) for array in (network, wide, labels)]
    once, grouped = choose_share(network, wide, labels), choose_share(*copies, group=np.repeat(np.arange(60), 10))
    alone = choose_share(*copies)
    # The prior of the temperature weighs less beside more rows.
    assert [point.error for point in grouped.points] == pytest.approx([point.error for point in once.points], rel=0.2)
    assert max(point.error for point in alone.points) < 0.5 * max(point.error for point in once.points)


def test_class_weights_weigh_the_rows():
    """The network is right on the rare class, the wide path on the other one."""
    rng = np.random.default_rng(3)
    labels = np.array([0] * 380 + [1] * 20)
    is_rare = labels == 1
    right = {True: rng.random(400) < 0.95, False: rng.random(400) < 0.6}
    network, wide = (
        np.where(np.where(is_rare == knows_rare, right[True], right[False])[:, None], 1, -1) * np.eye(2)[labels]
        for knows_rare in (True, False)
    )
    plain = choose_share(network, wide, labels)
    weighted = choose_share(network, wide, labels, weights=np.array([1.0, 50.0]))
    assert weighted.share < plain.share


def test_the_choice_is_read_back():
    choice = choose_share(np.eye(2)[[0, 1]], np.zeros((2, 2)), np.array([0, 1]))
    assert ShareChoice.from_dict(choice.to_dict()) == choice
