"""The working folder among the folders that Python imports from.

It may be a bundle of somebody else, so no installed package, no plugin and nothing to predict with comes from it.
Users keep their own classes there, which are found last.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def is_working_folder(folder: Any) -> bool:
    """Return True for a path of the working folder; an empty one is that too, as in `sys.path`."""
    return os.path.realpath(folder) == os.path.realpath("")


def remove_working_folder() -> list[str]:
    """Take the working folder off `sys.path`, and return the path with it.

    The folder is last in that path, unless `python -m` or PYTHONPATH have put it elsewhere.
    """
    kept = [folder for folder in sys.path if not is_working_folder(folder)]
    before = sys.path[:] if len(kept) < len(sys.path) else [*kept, os.path.realpath("")]
    sys.path[:] = kept
    return before
