"""Protection against importing untrusted modules from the working folder, which may be a bundle from elsewhere.

This package never imports installed packages, plugins of Hydra or the code for prediction from there. For the classes
of a user, it is searched last.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def is_working_folder(folder: Any) -> bool:
    """Return True if a path is the working folder. As in `sys.path`, an empty path stands for the working folder."""
    return os.path.realpath(folder) == os.path.realpath("")


def remove_working_folder() -> list[str]:
    """Remove the working folder from `sys.path`, and return the path with it, as it was or at the end."""
    kept = [folder for folder in sys.path if not is_working_folder(folder)]
    before = sys.path[:] if len(kept) < len(sys.path) else [*kept, os.path.realpath("")]
    sys.path[:] = kept
    return before
