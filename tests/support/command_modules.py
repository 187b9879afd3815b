"""Modules of the commands: a file, or the `__main__` of a room."""

from pathlib import Path

import seqclf


def command_module(name: str) -> str:
    """Return the dotted name of the module that `python -m seqclf.NAME` runs."""
    is_room = (Path(seqclf.__file__).parent / name).is_dir()
    return f"seqclf.{name}.__main__" if is_room else f"seqclf.{name}"
