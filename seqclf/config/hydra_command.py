"""Run a command: compose its config with Hydra, call its function, and print the result as one JSON line.

If the user can fix an error, the command prints one line on stderr and exits with code 2. Any other error is a bug, and
the command prints a traceback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.documentation import CONF
from seqclf.config.override_checks import TypedArguments
from seqclf.config.override_text import key_of
from seqclf.config.targets import Config, locate
from seqclf.errors import InputError, first_line
from seqclf.system import signals
from seqclf.system.atomic_files import DISK
from seqclf.system.json_result import JsonResult
from seqclf.system.memory_errors import is_out_of_memory
from seqclf.system.run_folder import remove_empty_folder

if TYPE_CHECKING:
    from seqclf.config.options import CommandOptions


# Errors for missing packages, if seqclf was installed without its dependencies.

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # dict name of a module → name of its package on PyPI, if different


def missing_package(error: ModuleNotFoundError) -> InputError | None:
    """Return an InputError for a missing module. Return None if seqclf does not depend on the module's package.

    >>> missing_package(ModuleNotFoundError("No module named 'sklearn'", name="sklearn.metrics"))
    InputError('scikit-learn is not installed, which this needs; pip install scikit-learn')
    >>> missing_package(ModuleNotFoundError("No module named 'mine'", name="mine"))
    """
    module = (error.name or "").partition(".")[0]
    package = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    try:
        required = {re.split(r"[\s<>=!~;\[]", text, maxsplit=1)[0] for text in requires("seqclf") or []}
    except PackageNotFoundError:  # seqclf is not installed, but run from its sources
        return None
    if not module or package not in required:
        return None
    return InputError(None, f"{package} is not installed, which this needs", f"pip install {package}")


NEARLY_FULL = 2**20  # bytes; a disk with less free space is called full
MEMORY_REMEDY = (
    "give it more memory, or lower what the command holds at once: batching.max_tokens in training, data.memory_limit "
    "in reading, threads in prediction"
)


def run_command(name: str, options: str, function: Callable[[Any], Any]) -> None:
    """Compose the config from conf/`name`.yaml and the command line, and call `function` with the config.

    `options`: dotted path of the pydantic model that checks the config.
    """
    begun = False

    def run(config: DictConfig) -> None:
        nonlocal begun
        begun = True
        job = TypedArguments(name, [*config_folders(), *typed_overrides()], options)
        try:
            plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            checked = check_config(job, plain, HydraConfig.get().runtime.choices)
            with signals.raised():
                result = function(checked)
        except signals.Terminated:
            remove_empty_folder(run_folder())
            raise
        except Exception as error:
            if not _is_of_user(error):
                raise
            remove_empty_folder(run_folder())
            _fail(error, job)
        exit_code = getattr(result, "exit_code", 0)
        if isinstance(result, JsonResult):
            result = result.to_dict()
        if result is not None:
            # One call writes the whole line, so that the lines of parallel jobs are not mixed.
            sys.stdout.write(json.dumps(result, separators=(",", ":"), default=str) + "\n")
            sys.stdout.flush()
        if exit_code:
            sys.exit(exit_code)

    # Hydra reads the job name and the help text from the attributes of the function.
    run.__module__, run.__qualname__, run.__name__ = function.__module__, function.__qualname__, name
    run.__doc__ = function.__doc__
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(run)
    typed = TypedArguments(name, sys.argv[1:], options)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra should raise exceptions, and not print a report
    try:
        with signals.raised():
            typed.check()
            sys.argv[1:] = typed.for_hydra()
            main()
    except Exception as error:
        if begun:
            raise
        _fail(error, typed)  # Hydra could not compose the config or create the run folder


def check_config(typed: TypedArguments, plain: Config, groups: Collection[Any]) -> CommandOptions:
    """Convert a composed config to its pydantic model. Raises InputError for the first wrong key.

    `typed`: the command-line arguments. `plain`: the composed config. `groups`: names of the config groups.
    """
    from seqclf.config.options import parse_options

    model = locate(str(typed.options))
    # Unknown keys in config files are allowed: variables of an experiment, and settings of other commands.
    known = [*typed.keys, *typed.command.experiment_keys(typed.chosen)]
    of_files = {path.partition(".")[0] for path in known}
    added = OverridesParser.create().parse_overrides([text for text in typed.overrides if text.startswith("+")])
    names = {str(override.package or override.key_or_group).partition(".")[0] for override in added}
    unknown = (plain.keys() - model.model_fields.keys()) & names - of_files - set(groups)
    if unknown:
        raise typed.unknown_key(min(unknown))
    return parse_options(model, plain)


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


def _is_of_user(error: Exception) -> bool:
    """Return True if the user can fix the error, False if the error is a bug."""
    if isinstance(error, OSError):
        return error.errno in DISK
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error) is not None
    return isinstance(error, (InputError, OmegaConfBaseException)) or is_out_of_memory(error)


def _fail(error: BaseException, typed: TypedArguments) -> NoReturn:
    """Print an error as one line on stderr, and exit with code 2."""
    print(f"error: {user_error(error, typed)}", file=sys.stderr)
    sys.exit(2)


def user_error(error: BaseException, typed: TypedArguments) -> InputError:
    """Convert an error that the user can fix to an InputError. `typed`: arguments of the failed command."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, OSError) and error.errno in DISK:
        return _disk_error(error)
    if isinstance(error, ModuleNotFoundError) and (missing := missing_package(error)):
        return missing
    if isinstance(error, Exception) and is_out_of_memory(error):
        return InputError(None, f"out of memory ({first_line(error)})", MEMORY_REMEDY)
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
        return typed.missing_key(unset[2] or unset[1])
    if merged := re.match(r"Error merging override (.*)", lines[0]):
        key = key_of(merged[1])
        if above := next((path for path, value in typed.keys.items() if _is_in_list(key, path, value)), None):
            return InputError(merged[1], f"{above} is one list", f"give it as a whole: '{above}=[…]'")
        return InputError(merged[1], f"does not fit the config ({first_line(error.__cause__ or error)})")
    return InputError(None, " ".join(lines[:8]))


def _is_in_list(key: str, path: str, value: Any) -> bool:
    return isinstance(value, list) and key.startswith(f"{path}.")


def _disk_error(error: OSError) -> InputError:
    """Return an InputError for a disk error.

    The error names the file or, if the file is not known, the folders on full disks.
    """
    where = str(error.filename2 or error.filename or "") or ", ".join(_full_folders())
    remedy = "free space or name another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another"
    if where and Path(where).absolute() in (run_folder().absolute(), *run_folder().absolute().parents):
        remedy = f"{remedy} with hydra.run.dir=FOLDER"
    return InputError(where or "a file", error.strerror or first_line(error), remedy)


def _full_folders() -> list[str]:
    folders = {run_folder(), Path.cwd()}
    with suppress(OSError):
        folders.add(Path(tempfile.gettempdir()))
    folders.add(Path(os.environ.get("SEQCLF_CACHE", "~/.cache")).expanduser())
    return sorted(str(folder) for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < NEARLY_FULL)
