"""Durations as text, read back."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqclf.system.durations import duration_text

SECONDS = {"d": 86400, "h": 3600, "min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}


def read_back(text):
    parts = re.findall(r"([\d.,e+-]+) (\w+)", text.removeprefix("-"))
    size = sum(float(number.replace(",", "")) * SECONDS[unit] for number, unit in parts)
    return -size if text.startswith("-") else size


@given(st.floats(1e-9, 1e9), st.booleans())
def test_a_duration_is_within_the_rounding_of_its_smaller_unit(seconds, is_negative):
    text = duration_text(-seconds if is_negative else seconds)
    assert text.startswith("-") == is_negative
    # Half of the smaller unit at most: 30 s of 1 h, 30 min of 1 d. Below a minute there are three digits.
    assert read_back(text.removeprefix("-")) == pytest.approx(seconds, rel=0.0215, abs=0)
    assert len(re.findall(r"[a-zµ]+", text)) <= 2
