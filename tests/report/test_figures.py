"""Figures of a report as SVG."""

import re

import numpy as np

from seqclf.report.figures import reliability
from seqclf.report.reliability import reliability_bins


def test_both_axes_of_log_odds_are_labelled_in_percent():
    generator = np.random.default_rng(0)
    probability = 1 - 0.2 * generator.random(3000)  # the limits of the axes are 0.1 and 0.9999
    drawing = reliability(reliability_bins(generator.random(3000) < probability, probability))
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawing)
    ticks = [text for text in texts if "probability" not in text and "share" not in text]
    assert len(ticks) >= 6 and ticks[: len(ticks) // 2] == ticks[len(ticks) // 2 :]
    assert all(re.fullmatch(r"[\d.]+%", tick) for tick in ticks)


def test_markers_at_0_and_100_percent_are_drawn_whole():
    probability = np.repeat([0.0, 1.0], 50)
    drawing = reliability(reliability_bins(probability > 0.5, probability))
    markers = re.findall(r"<g([^>]*)>\s*<use ", drawing)
    assert any("clip-path" not in attributes for attributes in markers)
    assert not any("clip-path" in attributes for attributes in markers)
