"""Configs that Hydra composes: that of a command, whose function is called with it, and that of a Python program.

An error of a command that the user can fix is one line on stderr and exit code 2. Any other is a bug, with a traceback.
A program may use Hydra too, so a composition restores the global state that Hydra shares between all threads.
"""

from __future__ import annotations

import os
import re
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime
from hydra.types import RunMode
from hydra.version import VersionBase
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.arguments import TypedArguments, missing_key
from seqclf.config.build import Config, locate
from seqclf.config.command_keys import CONF, LOGGERS, NODES, nested_defaults
from seqclf.config.hints import fail, user_error
from seqclf.config.override_checks import HydraArguments
from seqclf.errors import InputError, first_line
from seqclf.settings.base import parse_options
from seqclf.settings.typed_text import key_of
from seqclf.system import signals
from seqclf.system.json_result import print_result
from seqclf.system.run_folder import FAILURE, remove_empty_folder
from seqclf.system.search_path import remove_working_folder

_LOCK = threading.RLock()


@dataclass(frozen=True)
class Composition:
    """The composed config of a command, with Hydra's settings in the node `hydra`.

    >>> compose_config("train", ["model=gru", "model.hidden_size=32"]).plain()["model"]["hidden_size"]
    32
    """

    config: DictConfig

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
    with _LOCK:
        base, application = VersionBase.instance(), GlobalHydra.instance()
        version, outer = base.version_base, application.hydra
        application.clear()  # Hydra does not allow a second initialization
        try:
            with initialize_config_dir(str(CONF), JobRuntime.instance().get("name"), version_base="1.3"):
                return Composition(compose(name, [f"hydra.job.name={name}", *overrides], return_hydra_config=True))
        finally:
            base.version_base, application.hydra = version, outer
            GlobalHydra.set_instance(application)


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


def run_command(name: str, function: Callable[[Any], Any]) -> None:
    """Compose the config of the command `name`, check it, and call `function` with it."""
    begun = False

    def run(config: DictConfig) -> None:
        nonlocal begun
        begun = True
        job = HydraArguments(name, [*config_folders(), *typed_overrides()])
        try:
            plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            checked = parse_options(job.command.settings, plain)
            with signals.raised():
                result = function(checked)
            print_result(result)
        except signals.Terminated:
            remove_empty_folder(run_folder())
            raise
        except Exception as error:
            is_bug = user_error(error) is None and not isinstance(error, OmegaConfBaseException)
            hydra_config = HydraConfig.get()
            # Any exception would end the multirun, or take the table of `CompareRuns` from its end.
            if hydra_config.mode == RunMode.MULTIRUN and "compare" in (hydra_config.callbacks or ()):
                _record_failure(error if is_bug else hydra_error(error, job))
                return
            if is_bug:
                raise
            remove_empty_folder(run_folder())
            fail(hydra_error(error, job))

    # Hydra reads the job name and the help text from the attributes of the function.
    run.__module__, run.__qualname__, run.__name__ = f"seqclf.{name}", name, name
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(run)
    typed = HydraArguments(name, sys.argv[1:])
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra should raise exceptions, and not print a report
    try:
        with signals.raised():
            typed.check()
            sys.argv[1:] = typed.for_hydra()
            main()
    except Exception as error:
        if begun:
            raise
        fail(hydra_error(error, typed))  # Hydra could not compose the config or create the run folder


def _record_failure(error: BaseException) -> None:
    """Print the error of a job and leave its line in the run folder. A bug has its traceback."""
    line = str(error) if isinstance(error, InputError) else f"{type(error).__name__}: {first_line(error)}"
    print(f"error: {line}" if isinstance(error, InputError) else traceback.format_exc(), file=sys.stderr)
    (run_folder() / FAILURE).write_text(line, encoding="utf-8")


def run_folder() -> Path:
    """Return the folder of the current run. The config key `hydra.run.dir` sets the folder."""
    return Path(HydraConfig.get().runtime.output_dir)


def typed_overrides() -> list[str]:
    """Return the overrides that the user typed on the command line."""
    return list(HydraConfig.get().overrides.task)


def config_folders() -> list[str]:
    """Return the user's `--config-dir` arguments, so that a command can pass them to another command."""
    sources = HydraConfig.get().runtime.config_sources
    return [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]


def sweep_name() -> str | None:
    """Return the name of the multirun's folder, or None for a single run."""
    hydra_config = HydraConfig.get()
    return Path(hydra_config.sweep.dir).name if hydra_config.mode == RunMode.MULTIRUN else None


def hydra_error(error: BaseException, typed: TypedArguments) -> InputError:
    """Convert an error that the user can fix to an InputError. `typed`: arguments of the failed command."""
    if known := user_error(error, run_folder() if HydraConfig.initialized() else None):
        return known
    while not str(error).strip() and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # Hydra and OmegaConf have no separate exception types for these errors, so the error texts are matched.
    if unknown := re.match(r"Could not (?:override|append to|delete) '(.+?)'", lines[0]):
        return typed.unknown_key(unknown[1])
    if choice := re.search(r"Could not find '(\w+)/(.*?)'", str(error)):
        return typed.unknown_choice(choice[1], choice[2])
    # OmegaConf's `full_key` is the missing key or a key that refers to the missing key. The pattern uses `full_key`
    # only if its last part is the missing key.
    if unset := re.search(r"Missing mandatory value: (\S+)(?:\s+full_key: (\S+\.\1)$)?", str(error), re.MULTILINE):
        return missing_key(unset[2] or unset[1])
    if merged := re.match(r"Error merging override (.*)", lines[0]):
        lists = (path for path, value in typed.keys.items() if isinstance(value, list))
        if above := next((path for path in lists if key_of(merged[1]).startswith(f"{path}.")), None):
            return InputError(merged[1], f"{above} is one list", f"give it as a whole: '{above}=[…]'")
        return InputError(merged[1], f"does not fit the config ({first_line(error.__cause__ or error)})")
    return InputError(None, " ".join(lines[:8]))
