"""Simulated scores of a two-class problem, and the settings of a decision without targets."""

import numpy as np

from seqclf.settings.base import parse_options
from seqclf.settings.decision_settings import DecisionOptions

CLASSES = ["no", "yes"]
SETTINGS = {
    "min_recall": None,
    "min_precision": None,
    "max_alerts": None,
    "cost": None,
    "confidence": 0.9,
    "calibrate": False,
    "holdout": 0.5,
    "provisional": False,
}


def decision_options(settings):
    """Return checked options of a decision from plain settings, with those above for the rest."""
    return parse_options(DecisionOptions, {**SETTINGS, **settings}, "decision")


def sample_scores(generator, rows=1000, positive_share=0.1, separation=1.5, decimals=None):
    """Return scores (N,) and a mask of positive rows (N,).

    The scores of the two classes are overlapping normals. `decimals` rounds the scores, which makes ties.
    """
    is_positive = generator.random(rows) < positive_share
    scores = generator.normal(size=rows) + separation * is_positive
    return (scores if decimals is None else scores.round(decimals)), is_positive


def two_class_logits(scores):
    """Return logits (N, 2) whose margin for class 1 is `scores` (N,)."""
    return np.stack([np.zeros_like(scores), scores], axis=1).astype(np.float32)
