"""Rows that come in groups, of known populations, and what intervals and verdicts make of them."""

from collections import Counter

import numpy as np
from scipy.stats import norm

from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.intervals import metric_intervals
from seqclf.evaluation.metrics import confusion_metrics

LAYOUTS = (5, 20, "tail", "giant")
SHARES = {"2": [0.5, 0.5], "rare": [0.95, 0.05], "10": [0.1] * 10}  # of the classes; the last one is the positive one


def group_sizes(groups, layout):
    """(G,) rows by group.

    `layout`: a number of rows, "tail" (lognormal), or "giant" (one group holds 35 % of the rows).
    """
    if isinstance(layout, int):
        return np.full(groups, layout)
    z = norm.ppf((np.arange(groups) + 0.5) / groups)
    if layout == "tail":
        return np.maximum(1, np.round(5 * np.exp(1.3 * z))).astype(int)
    sizes = np.maximum(1, np.round(8 * np.exp(0.5 * z))).astype(int)
    sizes[-1] = round(0.35 / 0.65 * sizes[:-1].sum())
    return sizes


def shares_of_hits(generator, mean, correlation, groups):
    """(G,) probability of a hit by group, beta distributed: `correlation` is that of the hits of two of its rows."""
    if correlation == 0:
        return np.full(groups, mean)
    scale = (1 - correlation) / correlation
    return generator.beta(mean * scale, (1 - mean) * scale, groups)


def draw_labels(generator, sizes, shares, mixed):
    """Labels (N,) and group (N,). With `mixed` each row has a class of its own, else each group has."""
    group = np.repeat(np.arange(len(sizes)), sizes)
    if mixed:
        return generator.choice(len(shares), p=shares, size=len(group)), group
    return generator.choice(len(shares), p=shares, size=len(sizes))[group], group


def draw_predictions(generator, sizes, shares, recall, correlation, mixed):
    """Labels, predictions and group, (N,) each. Where groups matter, the errors of a group are all of one kind."""
    labels, group = draw_labels(generator, sizes, shares, mixed)
    hits = generator.random(len(group)) < shares_of_hits(generator, recall, correlation, len(sizes))[group]
    wrong = generator.integers(1, len(shares), len(sizes) if correlation else len(group))
    wrong = wrong[group] if correlation else wrong
    return labels, np.where(hits, labels, (labels + wrong) % len(shares)), group


def is_spread(labels, group, classes):
    """Whether each class lies in two groups or more, without which no interval can be."""
    return all(len(np.unique(group[labels == code])) > 1 for code in range(classes))


def confusion_coverage(groups, layout, correlation, shares, recall, mixed, repeats, ignore_groups=False):
    """Coverage of the intervals that follow from a confusion matrix, by metric, and the number of intervals of each."""
    generator, sizes, classes = np.random.default_rng(0), group_sizes(groups, layout), len(shares)
    names = [str(code) for code in range(classes)]
    errors = np.array(shares)[:, None] * (1 - recall) / (classes - 1)
    population = np.where(np.eye(classes) > 0, np.array(shares)[:, None] * recall, errors)
    metrics, last = confusion_metrics(population * 1e9, names), names[-1]
    true = {"accuracy": recall, "recall": recall, "precision": metrics.precision, "f1": metrics.f1}
    true_of_last = {"precision": metrics.precision_by_class[last], "f1": metrics.f1_by_class[last], "recall": recall}
    covered, defined = Counter(), Counter()
    for _ in range(repeats):
        labels, predicted, group = draw_predictions(generator, sizes, shares, recall, correlation, mixed)
        if not is_spread(labels, group, classes):
            continue
        positive = last if classes == 2 else None
        no_scores = np.zeros((len(labels), classes))
        result = metric_intervals(labels, predicted, no_scores, names, positive, None if ignore_groups else group)
        limits = {name: (getattr(result, name), value) for name, value in true.items()}
        if positive is not None:
            limits |= {f"{name} of one": (getattr(result.positive, name), v) for name, v in true_of_last.items()}
        for name, (interval, value) in limits.items():
            if interval is not None:
                defined[name] += 1
                covered[name] += interval[0] - 1e-9 <= value <= interval[1] + 1e-9
    return {name: covered[name] / defined[name] for name in defined}, defined


def draw_scores(generator, sizes, shares, distance, correlation, mixed, models=1, agreement=0.5):
    """Labels (N,), scores of each model (N, C), and group (N,).

    `distance`: of the score of the true class from those of the others, in standard deviations. `correlation`: of the
    scores of rows of one group and class. `agreement`: correlation of the scores of two models.
    """
    labels, group = draw_labels(generator, sizes, shares, mixed)
    classes = len(shares)

    def normal(size):
        common = generator.standard_normal(size)
        own = [generator.standard_normal(size) for _ in range(models)]
        return [np.sqrt(agreement) * common + np.sqrt(1 - agreement) * values for values in own]

    effects, noises = normal((len(sizes), classes, classes)), normal((len(group), classes))
    scores = [
        distance * np.eye(classes)[labels]
        + np.sqrt(correlation) * effect[group, labels]
        + np.sqrt(1 - correlation) * noise
        for effect, noise in zip(effects, noises, strict=True)
    ]
    return labels, scores, group


def ranking_coverage(groups, layout, correlation, prevalence, auroc, mixed, repeats):
    """Coverage of the intervals of AUROC and average precision of the positive label."""
    generator, sizes = np.random.default_rng(0), group_sizes(groups, layout)
    # The difference of two scores is compared: its deviation is that of one score times the square root of two.
    distance = norm.ppf(auroc)
    grid = (np.arange(200_000) + 0.5) / 200_000
    false = norm.sf(norm.isf(grid) + np.sqrt(2) * norm.ppf(auroc))
    true = {
        "auroc": auroc,
        "average_precision": (prevalence * grid / (prevalence * grid + (1 - prevalence) * false)).mean(),
    }
    covered, defined = Counter(), Counter()
    for _ in range(repeats):
        labels, (scores,), group = draw_scores(
            generator, sizes, [1 - prevalence, prevalence], distance, correlation, mixed
        )
        if not is_spread(labels, group, 2):
            continue
        margin = scores[:, 1] - scores[:, 0]
        probabilities = softmax(np.stack([-margin, margin], axis=1))
        predicted = (margin > 0).astype(int)
        limits = metric_intervals(labels, predicted, probabilities, ["no", "yes"], "yes", group).positive
        for name, value in true.items():
            interval = getattr(limits, name)
            if interval is not None:
                defined[name] += 1
                covered[name] += interval[0] <= value <= interval[1]
    return {name: covered[name] / defined[name] for name in defined}, defined


def verdict_errors(groups, layout, correlation, shares, distance, mixed, repeats):
    """Share of draws in which one of two exchangeable models is said to be better, by metric."""
    generator, sizes = np.random.default_rng(0), group_sizes(groups, layout)
    wrong, defined = Counter(), Counter()
    for _ in range(repeats):
        labels, scores, group = draw_scores(generator, sizes, shares, distance, correlation, mixed, models=2)
        if not is_spread(labels, group, len(shares)):
            continue
        # As probabilities, of which one model's threshold is as good as the other's.
        models = [RowPredictions(values.argmax(axis=1), values - values[:, ::-1]) for values in scores]
        if len(shares) > 2:
            models = [RowPredictions(values.argmax(axis=1), values) for values in scores]
        positive = 1 if len(shares) == 2 else None
        for entry in compare_models(labels, *models, positive, group=group):
            if not entry.too_few_groups:
                defined[entry.metric] += 1
                wrong[entry.metric] += entry.is_better or entry.is_worse
    return {name: wrong[name] / defined[name] for name in defined}, defined


def equal_alert_errors(groups, layout, correlation, share, recall, repeats):
    """Share of draws in which one of two equal models is said to find more with as many alerts, and number of draws.

    `groups`: None for `layout` independent rows. `share`: share of positives. `recall`: recall of both models.
    """
    generator, wrong, defined, distance = np.random.default_rng(0), 0, 0, 1.5
    for _ in range(repeats):
        sizes = np.ones(layout, int) if groups is None else group_sizes(groups, layout)
        group = np.repeat(np.arange(len(sizes)), sizes)
        labels = (generator.random(len(group)) < share).astype(int)
        # Positive and other rows of a group have effects of their own. Half of the variance is common to both models.
        effects = generator.standard_normal((3, 2 * len(sizes)))[:, 2 * group + labels]
        noise = np.sqrt(correlation) * effects + np.sqrt(1 - correlation) * generator.standard_normal(effects.shape)
        first, second = labels * distance + np.sqrt(0.5) * (noise[2] + noise[:2])
        predicted = (first > distance + norm.ppf(1 - recall)).astype(int)
        models = [RowPredictions(predicted, np.stack([-score, score], axis=1)) for score in (first, second)]
        codes = None if groups is None else group
        for entry in compare_models(labels, *models, 1, group=codes):
            if entry.metric == "recall_at_equal_alerts" and not entry.too_few_groups:
                defined, wrong = defined + 1, wrong + (entry.is_better or entry.is_worse)
    return wrong / max(1, defined), defined
