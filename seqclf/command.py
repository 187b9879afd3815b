"""What every command shares: its Hydra config, its exit codes, its last line.

A user's error ends with one line on stderr and exit code 2; anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import MissingMandatoryValue, OmegaConfBaseException

from seqclf.errors import InputError

PACKAGED = Path(__file__).parent / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[1] / "conf"


def command(name: str) -> Callable[[Callable[[dict[str, Any]], Any]], Callable[[], None]]:
    """Make `function(config)` a command configured by conf/`name`.yaml; what it returns is printed as one JSON line."""

    def decorate(function: Callable[[dict[str, Any]], Any]) -> Callable[[], None]:
        def run(config: DictConfig) -> None:
            try:
                plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
                assert isinstance(plain, dict)
                result = function({str(key): value for key, value in plain.items()})
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
            except (HydraException, OmegaConfBaseException) as error:
                _fail(error)

        return entry

    return decorate


def run_folder() -> Path:
    """The folder of this run, `hydra.run.dir`."""
    return Path(HydraConfig.get().runtime.output_dir)


def _forget_empty_run() -> None:
    """Remove the run's folder if nothing was written to it, and the folders above that were made for it alone."""
    folder, here = run_folder().resolve(), Path.cwd()
    while folder.is_dir() and folder != here and not any(folder.iterdir()):
        folder.rmdir()
        folder = folder.parent if here in folder.parents else here


def _fail(error: BaseException) -> NoReturn:
    while not str(error).strip() and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    unknown = re.match(r"Could not override '(.+?)'", lines[0])
    if isinstance(error, InputError):
        text = lines[0]
    elif unknown:
        text = f"{unknown[1]}: no such key or group; --help lists the groups, --cfg job all keys"
    elif isinstance(error, MissingMandatoryValue):
        text = f"{error.full_key or lines[0]}: is not set; give it as {error.full_key or 'KEY'}=VALUE"
    else:
        text = " ".join(lines[:8])
    print(f"error: {text}", file=sys.stderr)
    sys.exit(2)
