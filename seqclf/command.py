"""What every command shares: its Hydra config, its exit codes, its last line.

A user's error ends with one line on stderr and exit code 2; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.checks import check_types
from seqclf.errors import InputError

PACKAGED = Path(__file__).parent / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[1] / "conf"

BEFORE_TRAINING = {"config.yaml", "quarantine.jsonl"}  # what a run folder holds before its first epoch


def command(name: str) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[[], None]]:
    """Make `function(config)` a command configured by conf/`name`.yaml; what it returns is printed as one JSON line."""

    def decorate(function: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        begun = []

        def run(config: DictConfig) -> None:
            begun.append(True)
            try:
                plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
                check_types(plain, _defaults(name))
                result = function(plain)
            except (InputError, OmegaConfBaseException) as error:
                _forget_empty_run()
                _fail(error)
            if result is not None:
                print(json.dumps(result, separators=(",", ":"), default=str))

        run.__module__, run.__qualname__, run.__name__ = function.__module__, function.__qualname__, name
        run.__doc__ = function.__doc__
        main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(run)

        def entry() -> None:
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach the lines below instead of Hydra's own report
            try:
                main()
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
    """Remove the run's folder if nothing was made in it yet, and the folders above that were made for it alone."""
    run, here = run_folder(), Path.cwd()
    if run.resolve() == here:
        return
    with suppress(FileNotFoundError):  # another run that failed in the same folder was quicker
        if {path.name for path in run.iterdir()} <= BEFORE_TRAINING:
            for name in BEFORE_TRAINING:
                (run / name).unlink(missing_ok=True)
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
