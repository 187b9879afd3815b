"""Composition of a config in a Python program (without a command): overrides are merged into the files of conf/.

The program may use Hydra too, so each composition restores the global state that Hydra shares between all threads.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf

from seqclf.config.build import Config, locate
from seqclf.config.documentation import CONF, LOGGERS, NODES
from seqclf.settings.tree import nested_defaults
from seqclf.system.search_path import remove_working_folder

_LOCK = threading.RLock()


@dataclass(frozen=True)
class Composition:
    """The composed config of a command, with Hydra's settings in the node `hydra`, and the caller's overrides.

    >>> composition = compose_config("train", ["model=gru", "model.hidden_size=32"])
    >>> composition.plain()["model"]["hidden_size"], composition.choices["model"]
    (32, 'gru')
    """

    name: str
    overrides: list[str]
    config: DictConfig

    @property
    def choices(self) -> dict[str, Any]:
        """Dict config group → name of the choice."""
        return dict(self.config.hydra.runtime.choices)

    @property
    def run_folder(self) -> Path:
        """Absolute path of the run folder (`hydra.run.dir`)."""
        return Path(self.config.hydra.run.dir).absolute()

    def plain(self) -> Config:
        """Return the config as plain Python values, without the node `hydra`. A missing value is OmegaConf's error."""
        keys = [str(key) for key in self.config if key != "hydra"]
        config = OmegaConf.masked_copy(self.config, keys)
        container: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        return container


def compose_config(name: str, overrides: Sequence[str] = ()) -> Composition:
    """Compose conf/`name`.yaml with overrides. Raises exceptions of Hydra and OmegaConf (see `hydra_error`)."""
    load_hydra_plugins()
    with config_loader():
        config = compose(name, [f"hydra.job.name={name}", *overrides], return_hydra_config=True)
    return Composition(name, list(overrides), config)


def load_hydra_plugins() -> None:
    """Import Hydra's plugins, except plugins in the working folder, and store the keys of the tree of settings.

    Hydra does not import plugins a second time.
    """
    store = ConfigStore.instance()
    for name, path in NODES.items():
        store.store(name, nested_defaults(locate(path)), group="logger" if name in LOGGERS else None)
    before = sys.path[:]
    remove_working_folder()
    try:
        Plugins.instance()
    finally:
        sys.path[:] = before


@contextmanager
def config_loader() -> Iterator[ConfigLoader]:
    """Initialize Hydra with conf/, and restore the program's Hydra state at the end of the block."""
    with _LOCK:
        base, application = VersionBase.instance(), GlobalHydra.instance()
        version, hydra = base.version_base, application.hydra
        application.clear()  # Hydra does not allow a second initialization
        try:
            with initialize_config_dir(str(CONF), JobRuntime.instance().get("name"), version_base="1.3"):
                yield GlobalHydra.instance().config_loader()
        finally:
            base.version_base, application.hydra = version, hydra
            GlobalHydra.set_instance(application)
