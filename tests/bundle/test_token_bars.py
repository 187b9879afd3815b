"""Bars of tokens in the terminal."""

import pytest

from seqclf.bundle.explanations.explanation_lines import HALF_WIDTH, bar, show_token_bars


@pytest.mark.parametrize("value", [-1.0, -0.3, -0.001, 0.0, 0.001, 0.3, 1.0])
def test_a_bar_grows_from_the_axis_to_its_side(value):
    left, right = bar(value, 1.0).split("│")
    assert len(left) == len(right) == HALF_WIDTH
    drawn = (right if value > 0 else left).strip()
    assert len(drawn) == pytest.approx(HALF_WIDTH * abs(value), abs=1)
    assert not (left if value > 0 else right).strip()


def test_equal_contributions_of_zero_draw_no_bar():
    assert not bar(0.0, 0.0).replace("│", "").strip()


def test_a_long_sequence_shows_its_strongest_tokens_in_order(capsys):
    contributions = [0.01] * 100
    contributions[50], contributions[99] = -2.0, 3.0
    show_token_bars("yes", [f"word{n}" for n in range(100)], contributions, {})
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "word50" in line or "word99" in line]
    shown = [line for line in lines if "word" in line]
    assert len(shown) == 60 and "[" not in "".join(lines)
    assert sum(int(line.split()[1]) for line in lines if "more tokens" in line) == 40
