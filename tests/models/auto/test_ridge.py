"""The ridge head: held-out logits from fits without the row's group, found by refitting one group at a time."""

import numpy as np
import pytest
import torch
from scipy.special import softmax

from seqclf.models.auto.ridge import PENALTIES, fit_ridge, rows_per_group


def draw(rows, width, classes, seed=0):
    generator = np.random.default_rng(seed)
    labels = np.arange(rows) % classes
    features = generator.standard_normal((rows, width)) + labels[:, None] * 0.5
    return torch.from_numpy(features * generator.uniform(0.5, 2, width)).float(), labels


def solve_ridge(features, targets, penalty):
    centred = features - features.mean(0)
    gram = centred.T @ centred + penalty * np.eye(features.shape[1])
    return np.linalg.solve(gram, centred.T @ (targets - targets.mean(0)))


def chosen_penalty(head, features, targets):
    """Return the penalty of a head, and the factor of its weights: they are those of one penalty, over temperature."""
    weight = head.weight.numpy()
    unit = ((features - features.mean(0)) ** 2).sum() / len(features)
    fits = []
    for penalty in unit * PENALTIES:
        solution = solve_ridge(features, targets, penalty)
        factor = (solution * weight).sum() / (solution**2).sum()
        fits.append((np.abs(solution * factor - weight).max(), penalty, factor))
    error, penalty, factor = min(fits)
    assert error < 1e-9 * np.abs(weight).max()
    return penalty, factor


GROUPS = {
    "rows": lambda rows: None,
    "pairs": lambda rows: np.arange(rows) // 2,
    "interleaved": lambda rows: 7 - np.arange(rows) % 5,
    "all sizes": lambda rows: np.floor(np.sqrt(np.arange(rows))).astype(int),
    "one large group": lambda rows: np.maximum(np.arange(rows) - rows // 2, 0),
}


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize(("rows", "width"), [(12, 30), (40, 6)])
def test_held_out_logits_equal_a_head_refitted_without_the_group(rows, width, groups):
    raw, labels = draw(rows, width, 3)
    group = GROUPS[groups](rows)
    head = fit_ridge(raw, labels, 4, group)
    features = raw.double().numpy()
    targets = np.where(labels[:, None] == np.arange(4), 1.0, -1.0)
    penalty, factor = chosen_penalty(head, features, targets)
    for row in range(rows):
        kept = np.arange(rows) != row if group is None else group != group[row]
        counts = np.bincount(labels[kept], minlength=4)
        distance = (features[row] - features[kept].mean(0)) @ solve_ridge(features[kept], targets[kept], penalty)
        log_priors = np.log((counts + 1) / (kept.sum() + 4))
        expected = distance * factor + head.scales[1] * log_priors + head.scales[2] * counts / max(1, kept.sum())
        np.testing.assert_allclose(head.held_out[row], expected, rtol=0, atol=1e-7)


def test_features_without_use_give_the_class_frequencies():
    generator = np.random.default_rng(0)
    labels = (generator.random(400) < 0.1).astype(int)
    features = torch.from_numpy(generator.standard_normal((400, 50))).float()
    head = fit_ridge(features, labels, 2)
    rare = softmax(head.held_out, axis=1)[:, 1]
    assert abs(rare.mean() - labels.mean()) < 0.02 and rare.std() < 0.05


def test_frequent_classes_count_as_much_as_the_held_out_rows_say():
    """With the log frequency itself beside the distance, 0.91 of the rows are right at best, since it is too little."""
    generator = np.random.default_rng(0)
    labels = np.where(generator.random(3000) < 0.85, 0, 1 + np.arange(3000) % 3)
    features = generator.standard_normal((4, 60))[labels] * 0.45 + generator.standard_normal((3000, 60))
    raw, fitted = torch.from_numpy(features).float(), labels[:400]
    head = fit_ridge(raw[:400], fitted, 4)
    logits = (raw[400:].double() - head.mean) @ head.weight + head.bias
    assert (logits.argmax(1).numpy() == labels[400:]).mean() > 0.97


def test_one_group_has_no_other_rows_to_learn_from():
    raw, labels = draw(20, 8, 3)
    head = fit_ridge(raw, labels, 3, np.zeros(20, int))
    np.testing.assert_allclose(softmax(head.held_out, axis=1), 1 / 3)
    assert torch.isfinite(head.weight).all()


def test_groups_of_one_row_are_rows():
    raw, labels = draw(30, 50, 3)
    single, rows = fit_ridge(raw, labels, 3, np.arange(30)[::-1] + 100), fit_ridge(raw, labels, 3)
    assert (single.held_out == rows.held_out).all() and (single.weight == rows.weight).all()


@pytest.mark.parametrize("sizes", [[1] * 50, [7, 7, 7], [5000, 5000], [1, 2, 3, 100, 20_000], [100_000]])
@pytest.mark.parametrize("features", [50, 4000])
def test_work_on_groups_is_bounded(sizes, features, monkeypatch):
    monkeypatch.setattr("seqclf.models.auto.ridge.MAX_GROUP_WORK", 1_000_000_000)
    sizes = np.array(sizes)

    def work(most):
        return (np.minimum(sizes, most).astype(float) ** 2).sum() * features

    most = rows_per_group(sizes, features)
    assert work(most) <= 1e9 and (most == sizes.max() or work(most + 1) > 1e9)
    assert rows_per_group(np.full(300, 10**6), 4000) >= 1


@pytest.mark.parametrize("groups", ["rows", "pairs"])
@pytest.mark.parametrize(("rows", "width"), [(12, 30), (40, 6)])
def test_held_out_logits_of_weighted_rows_equal_those_of_a_refitted_head(rows, width, groups):
    raw, labels = draw(rows, width, 3)
    group, weights = GROUPS[groups](rows), np.random.default_rng(1).lognormal(size=rows)
    weights /= weights.mean()
    head = fit_ridge(raw, labels, 3, group, weights)
    features, targets = raw.double().numpy(), np.where(labels[:, None] == np.arange(3), 1.0, -1.0)

    def solve(kept, penalty):
        mean, middle = (np.average(values[kept], axis=0, weights=weights[kept]) for values in (features, targets))
        centred = features[kept] - mean
        gram = centred.T @ (weights[kept, None] * centred) + penalty * np.eye(width)
        return np.linalg.solve(gram, centred.T @ (weights[kept, None] * (targets[kept] - middle))), mean

    everything = np.ones(rows, bool)
    centred = features - np.average(features, axis=0, weights=weights)
    errors = []
    for penalty in (weights[:, None] * centred**2).sum() / rows * PENALTIES:
        solution = solve(everything, penalty)[0]
        factor = (solution * head.weight.numpy()).sum() / (solution**2).sum()
        errors.append((np.abs(solution * factor - head.weight.numpy()).max(), penalty, factor))
    error, penalty, factor = min(errors)
    assert error < 1e-9
    for row in range(rows):
        kept = everything & (np.arange(rows) != row if group is None else group != group[row])
        counts = np.bincount(labels[kept], weights[kept], 3)
        solution, mean = solve(kept, penalty)
        log_priors = np.log((counts + 1) / (counts.sum() + 3))
        expected = (features[row] - mean) @ solution * factor + head.scales[1] * log_priors
        expected += head.scales[2] * counts / counts.sum()
        np.testing.assert_allclose(head.held_out[row], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("rows", "width"), [(120, 20), (30, 60)])
@pytest.mark.parametrize("groups", ["rows", "pairs"])
def test_weights_of_a_few_rows_alone_give_finite_heads(rows, width, groups):
    raw, labels = draw(rows, width, 2)
    few, huge = (np.arange(rows) < 2).astype(float), np.where(np.arange(rows) == 3, 1e12, 1.0)
    for weights in (few, huge, np.random.default_rng(0).lognormal(sigma=5, size=rows)):
        head = fit_ridge(raw, labels, 2, GROUPS[groups](rows), weights)
        assert np.isfinite(head.held_out).all() and head.weight.isfinite().all() and head.bias.isfinite().all()
