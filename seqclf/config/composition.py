"""Configs composed by a program instead of a command: overrides in, plain values out.

Hydra's `compose` needs the process-wide `GlobalHydra`, which may belong to an application, and which threads share. So
its config loader is used directly, and the only global setting that it reads is put back.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import version
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_config_search_path
from hydra.core.config_loader import ConfigLoader
from hydra.core.plugins import Plugins
from hydra.core.utils import setup_globals
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from seqclf.config.documentation import CONF
from seqclf.config.targets import Config
from seqclf.system.search_path import remove_working_folder

VERSION_BASE = "1.3"
_LOCK = threading.RLock()


@dataclass(frozen=True)
class Composition:
    """The config of a command. `config` holds Hydra's node too. `overrides`: as they were given.

    >>> composition = compose_config("train", ["model=gru", "model.hidden_size=32"])
    >>> composition.plain()["model"]["hidden_size"], composition.choices["model"]
    (32, 'gru')
    """

    name: str
    overrides: list[str]
    config: DictConfig
    loader: ConfigLoader

    @property
    def choices(self) -> dict[str, Any]:
        """Option chosen of each config group."""
        return dict(self.config.hydra.runtime.choices)

    @property
    def run_folder(self) -> Path:
        """Folder that `hydra.run.dir` names."""
        return Path(self.config.hydra.run.dir).absolute()

    def plain(self) -> Config:
        """Return the values without Hydra's node. Raises OmegaConf's error for one that is missing."""
        config = copy.deepcopy(self.config)
        with read_write(config), open_dict(config):
            del config["hydra"]
        container: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return container


def compose_config(name: str, overrides: Sequence[str] = ()) -> Composition:
    """Compose conf/`name`.yaml. Raises the errors of Hydra and OmegaConf (see `command.user_error`)."""
    load_hydra_plugins()
    with version_base():
        if not OmegaConf.has_resolver("now"):
            setup_globals()
        loader = ConfigLoaderImpl(create_config_search_path(str(CONF)))
        typed = [f"hydra.job.name={name}", *overrides]
        config = loader.load_configuration(name, typed, RunMode.RUN, from_shell=False)
    return Composition(name, list(overrides), config, loader)


def load_hydra_plugins() -> None:
    """Import Hydra's plugins, which it does once in a process, from all folders but the working folder."""
    before = sys.path[:]
    remove_working_folder()
    try:
        Plugins.instance()
    finally:
        sys.path[:] = before


@contextmanager
def version_base() -> Iterator[None]:
    """Let Hydra follow the rules of its version 1.3 inside the block, and those of the application after it."""
    with _LOCK:
        state = version.VersionBase.instance()
        before = state.version_base
        version.setbase(VERSION_BASE)
        try:
            yield
        finally:
            state.version_base = before
