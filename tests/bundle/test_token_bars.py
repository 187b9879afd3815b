"""Bars of tokens in the terminal."""

from seqclf.bundle.token_bars import show_token_bars


def test_a_long_sequence_shows_its_strongest_tokens_in_order(capsys):
    contributions = [0.01] * 100
    contributions[50], contributions[99] = -2.0, 3.0
    show_token_bars("yes", [f"word{n}" for n in range(100)], contributions, {})
    lines = capsys.readouterr().err.splitlines()
    assert [line for line in lines if "word50" in line or "word99" in line]
    shown = [line for line in lines if "word" in line]
    assert len(shown) == 60 and "[" not in "".join(lines)
    assert sum(int(line.split()[1]) for line in lines if "more tokens" in line) == 40
