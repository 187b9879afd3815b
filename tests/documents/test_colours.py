"""Contrast of the texts of a page, in light, in dark and on paper, by the formula of WCAG 2."""

import re

import pytest

from seqclf.documents.html import read_template

STYLE = read_template("style.css")
LEAST = 4.5  # level AA, for text of ordinary size
SCHEMES = {
    "light": STYLE[: STYLE.index("@media (prefers-color-scheme: dark)")],
    "dark": STYLE[STYLE.index("@media (prefers-color-scheme: dark)") : STYLE.index("* { box-sizing")],
    "paper": STYLE[STYLE.index("@media print") :],
}
SHADES = [(".heat td", "fill"), (".supports", "mark"), (".opposes", "fill")]
PAIRS = [("ink", "paper"), ("soft", "paper"), ("link", "paper"), ("ink", "alert"), ("ink", "faint")]


def colours(scheme):
    pairs = re.findall(r"--([\w-]+): #([0-9a-f]{3,6});", SCHEMES[scheme])
    return {name: channels(value) for name, value in pairs}


def channels(value):
    digits = value if len(value) == 6 else "".join(2 * digit for digit in value)
    return [int(digits[index : index + 2], 16) / 255 for index in (0, 2, 4)]


def luminance(colour):
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in colour]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(first, second):
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_the_formula_gives_the_contrast_of_black_on_white():
    assert contrast([0, 0, 0], [1, 1, 1]) == pytest.approx(21)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("text", "ground"), PAIRS)
def test_text_stands_out_from_its_ground(scheme, text, ground):
    palette = colours(scheme)
    assert contrast(palette[text], palette[ground]) >= LEAST


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("selector", "shade"), SHADES)
def test_text_stands_out_from_the_strongest_shade_of_a_cell_or_token(scheme, selector, shade):
    palette = colours(scheme)
    (rule,) = re.findall(rf"^{re.escape(selector)} {{(.*?)}}", STYLE, re.MULTILINE | re.DOTALL)
    (strength,) = re.findall(rf"var\(--{shade}\) calc\(var\(--share\) \* ([\d.]+)\)", rule)
    ground = [
        float(strength) * colour + (1 - float(strength)) * paper
        for colour, paper in zip(palette[shade], palette["paper"], strict=True)
    ]
    assert contrast(palette["ink"], ground) >= LEAST
