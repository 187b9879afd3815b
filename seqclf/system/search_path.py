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
    """Remove the working folder from `sys.path`, and return the path with it at the end."""
    sys.path[:] = [folder for folder in sys.path if not is_working_folder(folder)]
    return [*sys.path, os.path.realpath("")]
