"""Hints for wrong values and names: the most similar known one."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

NEAR_FILE = 0.75  # minimum similarity of a typed file name
FEW = 3  # up to this number of names, an error text lists the names as "a, b or c"


def did_you_mean(word: object, known: Iterable[str], ignoring: str = "") -> str:
    """Return "did you mean 'name'?" with the most similar name in `known`, or "".

    `ignoring`: common prefix of all names in `known`. The prefix is not compared.

    >>> did_you_mean("recal", ["loss", "recall"])
    "did you mean 'recall'?"
    >>> did_you_mean("colour", ["loss", "recall"])
    ''
    """
    names = [name.removeprefix(ignoring) for name in known]
    near = difflib.get_close_matches(str(word).removeprefix(ignoring), names, 1)
    return f"did you mean '{ignoring}{near[0]}'?" if near else ""


def must_be_one_of(word: object, known: Iterable[object]) -> tuple[str, str]:
    """Return an error text that lists the names in `known`, and a hint, "" if no name is similar.

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
    """Return "did you mean 'path'?" with the file in the same folder that has the most similar name, or ""."""
    typed = Path(path)
    with suppress(OSError, ValueError):
        names = [entry.name for entry in typed.parent.iterdir() if entry.name != typed.name]  # `path` may be a link
        near = difflib.get_close_matches(typed.name, names, 1, NEAR_FILE)
        return f"did you mean '{typed.with_name(near[0])}'?" if near else ""
    return ""
