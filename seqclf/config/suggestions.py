"""Hints for misspelled names."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NEAR = 0.75  # least similarity of a misspelled file name
FEW = 3  # up to this many choices read well as "a, b or c"


def did_you_mean(word: object, known: Iterable[str], ignoring: str = "") -> str:
    """Return "did you mean 'name'?" for the known name nearest to `word`, or "" where none is similar.

    `ignoring`: a prefix that all of them share.

    >>> did_you_mean("recal", ["loss", "recall"])
    "did you mean 'recall'?"
    >>> did_you_mean("colour", ["loss", "recall"])
    ''
    """
    names = [name.removeprefix(ignoring) for name in known]
    near = difflib.get_close_matches(str(word).removeprefix(ignoring), names, 1)
    return f"did you mean '{ignoring}{near[0]}'?" if near else ""


def must_be_one_of(word: object, known: Iterable[object]) -> tuple[str, str]:
    """Return the problem that lists the allowed names, and a hint where `word` misspells one, else "".

    >>> must_be_one_of("gpu", ["auto", "cpu", "cuda"])
    ('must be auto, cpu or cuda', "did you mean 'cpu'?")
    """
    names = list(dict.fromkeys(str(name) for name in known))
    if 1 < len(names) <= FEW:
        text = f"must be {', '.join(names[:-1])} or {names[-1]}"
    else:
        text = f"must be one of {', '.join(names)}" if len(names) > 1 else f"must be {names[0]}"
    return text, did_you_mean(word, names)


def similar_file(path: str) -> str:
    """Return "did you mean 'path'?" for the entry of the same folder with the nearest name, or ""."""
    typed = Path(path)
    with suppress(OSError, ValueError):
        names = [entry.name for entry in typed.parent.iterdir() if entry.name != typed.name]  # it may be a broken link
        near = difflib.get_close_matches(typed.name, names, 1, NEAR)
        return f"did you mean '{typed.with_name(near[0])}'?" if near else ""
    return ""
