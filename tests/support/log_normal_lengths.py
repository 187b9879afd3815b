"""Lengths of sequences as data has them: many short ones, few long ones."""

import numpy as np


def log_normal_lengths(rows):
    return np.clip(np.exp(np.random.default_rng(0).normal(3.5, 0.8, rows)), 2, 400).astype(int)
