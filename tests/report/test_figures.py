"""Figures of a report as SVG."""

import re

import numpy as np

from seqclf.report.figures import reliability
from seqclf.report.reliability import reliability_bins


def test_markers_at_0_and_100_percent_are_drawn_whole():
    probability = np.repeat([0.0, 1.0], 50)
    drawing = reliability(reliability_bins(probability > 0.5, probability))
    markers = re.findall(r"<g([^>]*)>\s*<use ", drawing)
    assert any("clip-path" not in attributes for attributes in markers)
    assert not any("clip-path" in attributes for attributes in markers)
