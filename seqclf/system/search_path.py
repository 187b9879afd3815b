"""Protection against importing untrusted modules from the working folder.

The working folder may be a bundle from an untrusted source. This package therefore never imports installed packages,
plugins of Hydra or the code for prediction from the working folder. Users may keep their own classes in the working
folder. When Python imports the classes of a user, the working folder is searched last.
"""

from __future__ import annotations

import os
import sys
from typing import Any


def is_working_folder(folder: Any) -> bool:
    """Return True if a path is the working folder. As in `sys.path`, an empty path stands for the working folder."""
    return os.path.realpath(folder) == os.path.realpath("")


def remove_working_folder() -> list[str]:
    """Remove the working folder from `sys.path`, and return a search path that contains the working folder.

    The returned list is the old `sys.path`. If the old `sys.path` does not contain the working folder, the working
    folder is added at the end.
    """
    kept = [folder for folder in sys.path if not is_working_folder(folder)]
    before = sys.path[:] if len(kept) < len(sys.path) else [*kept, os.path.realpath("")]
    sys.path[:] = kept
    return before
