"""What every command shares: its Hydra config, its exit codes, its last line.

A user's error ends with one line on stderr and exit code 2; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.checks import check_types
from seqclf.errors import InputError
from seqclf.system import signals
from seqclf.system.atomic_files import DISK

PACKAGED = Path(__file__).parents[1] / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

NEARLY_FULL = 2**20  # bytes


def command(name: str) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[[], None]]:
    """Make `function(config)` a command configured by conf/`name`.yaml; what it returns is printed as one JSON line."""

    def decorate(function: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        begun = []

        def run(config: DictConfig) -> None:
            begun.append(True)
            try:
                plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
                check_types(plain, _defaults(name))
                with signals.raised():
                    result = function(plain)
            except signals.Terminated:
                _forget_empty_run()
                raise
            except (InputError, OmegaConfBaseException, OSError) as error:
                if isinstance(error, OSError) and error.errno not in DISK:
                    raise
                _forget_empty_run()
                _fail(error)
            if result is not None:
                print(json.dumps(result, separators=(",", ":"), default=str))

        run.__module__, run.__qualname__, run.__name__ = function.__module__, function.__qualname__, name
        run.__doc__ = function.__doc__
        main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(run)

        def entry() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach the lines below instead of Hydra's own report
            signals.install()
            try:
                with signals.raised():
                    main()
            except signals.Terminated as end:
                if end.code:
                    print("; ".join(filter(None, (f"stopped by {end.name}", end.advice))), file=sys.stderr)
                sys.exit(end.code)
            except Exception as error:
                if begun:
                    raise
                _fail(error)  # the configuration could not be put together, or its folder not be made

        return entry

    return decorate


def _defaults(name: str) -> dict[str, Any]:
    """conf/`name`.yaml with the groups that were chosen and no value overridden; what has no default there is null."""
    chosen = [text for text in HydraConfig.get().overrides.task if (CONF / text.lstrip("+").split("=")[0]).is_dir()]
    plain = OmegaConf.to_container(hydra.compose(name, chosen), resolve=False)
    return _without_open_values(plain)


def _without_open_values(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _without_open_values(entry) for key, entry in value.items()}
    return None if isinstance(value, str) and ("${" in value or value == "???") else value


def run_folder() -> Path:
    """The folder of this run, `hydra.run.dir`."""
    return Path(HydraConfig.get().runtime.output_dir)


def given_overrides() -> list[str]:
    """What was typed of the config, as it was typed."""
    return list(HydraConfig.get().overrides.task)


def sweep_name() -> str | None:
    """What the runs of a multirun have in common: the name of its folder."""
    hydra_config = HydraConfig.get()
    return Path(hydra_config.sweep.dir).name if hydra_config.mode == RunMode.MULTIRUN else None


def _forget_empty_run() -> None:
    """Remove the run's folder if nothing was made in it, and the folders above that were made for it alone."""
    run, here = run_folder(), Path.cwd()
    if run.resolve() == here:
        return
    with suppress(OSError):  # another run that failed in the same folder was quicker, or the disk is read-only
        for folder in (run, *run.parents):
            inside = here in folder.resolve().parents or folder == run
            if inside and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _fail(error: BaseException) -> NoReturn:
    while not str(error).strip() and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    unknown = re.match(r"Could not override '(.+?)'", lines[0])
    if isinstance(error, InputError):
        text = lines[0]
    elif isinstance(error, OSError) and error.errno in DISK:
        text = _disk_text(error)
    elif unknown:
        text = f"{unknown[1]}: no such key or group; --help lists the groups, --cfg job all keys"
    elif missing := re.search(r"Missing mandatory value: (\S+)", str(error)):
        text = f"{missing[1]}: is not set; give it as {missing[1]}=VALUE"
    elif "override_grammar" in str(error):
        text = f"{' '.join(lines[:2])}: cannot be read; put the value in quotes of its own: \"KEY='VALUE'\""
    else:
        text = " ".join(lines[:8])
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)


def _disk_text(error: OSError) -> str:
    """Name the file, or where the error comes without one (from a write to an open file) the folders that are full."""
    where = str(error.filename2 or error.filename or "") or ", ".join(_full_folders())
    remedy = "free space or name another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another"
    return f"{where or 'a file'}: {error.strerror}; {remedy}"


def _full_folders() -> list[str]:
    folders = {run_folder(), Path.cwd()}
    with suppress(OSError):
        folders.add(Path(tempfile.gettempdir()))
    folders.add(Path(os.environ.get("SEQCLF_CACHE", "~/.cache")).expanduser())
    return sorted(str(folder) for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < NEARLY_FULL)
