"""Text of YAML scalars, as data files have it."""

from __future__ import annotations

from typing import Any


def label_text(value: Any) -> str:
    """Return a label, id or column name as the data has it: YAML reads `true` as a boolean and 3 as a number.

    >>> label_text(True), label_text(3), label_text("spam")
    ('true', '3', 'spam')
    """
    return str(value).lower() if isinstance(value, bool) else str(value)
