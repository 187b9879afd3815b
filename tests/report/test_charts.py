"""Figures of a report as SVG."""

import base64
import io
import re

import numpy as np
from matplotlib.image import imread

from seqclf.report.charts import MAX_PIECES, sequence_chart
from seqclf.report.reliability import reliability_bins, reliability_diagram


def test_markers_at_0_and_100_percent_are_drawn_whole():
    probability = np.repeat([0.0, 1.0], 50)
    drawing = reliability_diagram(reliability_bins(probability > 0.5, probability))
    markers = re.findall(r"<g([^>]*)>\s*<use ", drawing)
    assert any("clip-path" not in attributes for attributes in markers)
    assert not any("clip-path" in attributes for attributes in markers)


def heat_of(values, scaled):
    """RGBA of the cells of a heat map: (W, T, 4), from 0 to 1."""
    drawing = sequence_chart([f"c{channel}" for channel in range(values.shape[1])], values, scaled, [])
    (picture,) = re.findall(r"base64,\s*([A-Za-z0-9+/=\s]+)", drawing)
    return imread(io.BytesIO(base64.b64decode(picture)))


def test_a_cell_of_a_heat_map_has_the_colour_of_its_sign_and_is_blank_where_missing():
    scaled = np.zeros((3, 7), np.float32)
    scaled[0], scaled[1], scaled[2] = 2.0, -1.0, 2.0
    values = np.where(np.arange(3)[:, None] == 2, np.nan, scaled)
    cells = heat_of(values, scaled)
    opacity = cells[..., 3]
    blank, strong, weak = (np.isclose(opacity, share, atol=0.01).sum() for share in (0, 1, 0.5))
    assert blank == strong == weak == opacity.size // 3
    red, green, blue = cells[np.isclose(opacity, 1, atol=0.01)].mean(axis=0)[:3]
    assert green < red < blue, "violet above 0"


def test_a_peak_of_a_long_sequence_is_drawn():
    values = np.zeros((50 * MAX_PIECES, 1))
    flat = sequence_chart(["x"], values, values, [])
    values[12345] = 99.0
    drawing = sequence_chart(["x"], values, values, [])
    assert ">100</text>" in drawing and ">100</text>" not in flat and len(drawing) < 60_000


def test_a_band_has_the_colour_and_the_strength_of_its_contribution():
    values = np.zeros((3, 1))
    drawing = sequence_chart(["x"], values, values, [(0, 1.0), (2, -0.5)])
    assert re.findall(r"fill: (var\(--\w+\)); fill-opacity: ([\d.]+)", drawing) == [
        ("var(--mark)", "0.4"),
        ("var(--fill)", "0.2"),
    ]
