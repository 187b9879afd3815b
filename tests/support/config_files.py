"""Files of conf/ that are parsed once in a process: Hydra parses some twenty of them, twice, for each command."""

from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import IO, Any

from omegaconf import OmegaConf

from seqclf.config.command_keys import CONF


def share_config_files() -> None:
    """Replace the function that loads a file by one that remembers those of conf/, which no test changes."""
    load = OmegaConf.load
    remembered = cache(load)

    def load_or_copy(file: str | Path | IO[Any]) -> Any:
        path = Path(getattr(file, "name", file))
        return deepcopy(remembered(str(path))) if path.is_relative_to(CONF) else load(file)

    OmegaConf.load = staticmethod(load_or_copy)
