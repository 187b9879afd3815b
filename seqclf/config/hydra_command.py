"""The run of a command: Hydra config in, one JSON line out, exit codes.

An error that the user can fix ends with one line on stderr and exit code 2. Anything else is a bug and shows its
traceback.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.composition import compose_config
from seqclf.config.documentation import CONF
from seqclf.config.override_checks import TypedArguments
from seqclf.config.targets import Config, locate
from seqclf.errors import InputError, first_line
from seqclf.system import signals
from seqclf.system.atomic_files import DISK
from seqclf.system.json_result import JsonResult
from seqclf.system.memory_errors import is_out_of_memory
from seqclf.system.run_folder import remove_empty_folder

if TYPE_CHECKING:
    from seqclf.config.options import CommandOptions


# Errors about packages that an installation without dependencies left out.

DISTRIBUTIONS = {"sklearn": "scikit-learn"}  # of modules with another name


def missing_package(error: ModuleNotFoundError) -> InputError | None:
    """Return the error line of a missing module, None if it is of no package that seqclf requires.

    >>> missing_package(ModuleNotFoundError("No module named 'sklearn'", name="sklearn.metrics"))
    InputError('scikit-learn is not installed, which this needs; pip install scikit-learn')
    >>> missing_package(ModuleNotFoundError("No module named 'mine'", name="mine"))
    """
    module = (error.name or "").partition(".")[0]
    package = DISTRIBUTIONS.get(module, module.replace("_", "-"))
    try:
        required = {re.split(r"[\s<>=!~;\[]", text, maxsplit=1)[0] for text in requires("seqclf") or []}
    except PackageNotFoundError:  # run from the sources, without an installation that could lack something
        return None
    if not module or package not in required:
        return None
    return InputError(None, f"{package} is not installed, which this needs", f"pip install {package}")


NEARLY_FULL = 2**20  # bytes
MEMORY_REMEDY = (
    "give it more memory, or lower what the command holds at once: batching.max_tokens in training, data.memory_limit "
    "in reading, threads in prediction"
)


def run_command(name: str, options: str, function: Callable[[Any], Any]) -> None:
    """Run `function` with the config that conf/`name`.yaml and the arguments of the command line give.

    `options`: dotted path of the pydantic model that checks the config.
    """
    begun = False

    def run(config: DictConfig) -> None:
        nonlocal begun
        begun = True
        try:
            plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
            checked = check_config(name, options, plain, typed_overrides(), HydraConfig.get().runtime.choices)
            with signals.raised():
                result = function(checked)
        except signals.Terminated:
            remove_empty_folder(run_folder())
            raise
        except Exception as error:
            if (known := _known(error)) is None:
                raise
            remove_empty_folder(run_folder())
            _fail(known, TypedArguments(name, sys.argv[1:], options))
        if isinstance(result, JsonResult):
            result = result.to_dict()
        if result is not None:
            # One write, so that jobs of a multirun that run at a time do not tear each other's lines.
            sys.stdout.write(json.dumps(result, separators=(",", ":"), default=str) + "\n")
            sys.stdout.flush()

    # Hydra derives the name of its job, and of the module to document, from the function.
    run.__module__, run.__qualname__, run.__name__ = function.__module__, function.__qualname__, name
    run.__doc__ = function.__doc__
    main = hydra.main(version_base="1.3", config_path=str(CONF), config_name=name)(run)
    typed = TypedArguments(name, sys.argv[1:], options)
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach the lines below instead of Hydra's report
    try:
        with signals.raised():
            typed.check()
            sys.argv[1:] = typed.for_hydra()
            main()
    except Exception as error:
        if begun:
            raise
        _fail(error, typed)  # the config could not be composed, or the run folder not be created


def check_config(
    name: str, options: str, plain: Config, overrides: Sequence[str], groups: Collection[Any]
) -> CommandOptions:
    """Return a composed config as a checked model. Raises InputError, which names the first key that is wrong.

    `overrides`: from which conf/`name`.yaml was composed. `groups`: names of its config groups.
    """
    from seqclf.config.options import parse_options

    model = locate(options)
    # Config files may hold keys that the command does not read: an experiment's variables, or settings of training.
    unknown = (plain.keys() - model.model_fields.keys()) & _added_keys(name, overrides, set(groups))
    if unknown:
        raise TypedArguments(name, overrides, options).unknown_key(min(unknown))
    return parse_options(model, plain)


def _added_keys(name: str, overrides: Sequence[str], groups: set[Any]) -> set[str]:
    """Return the top-level keys that only the overrides add, by `+key=value` or `++key=value`."""
    added: set[str] = set()
    forced: set[str] = set()
    for text in overrides:
        if text.startswith("+"):
            key, _, package = text.lstrip("+").split("=")[0].partition("@")
            (forced if text.startswith("++") else added).add((package or key).split(".")[0])
    if forced - groups:  # Hydra makes sure that a key with one plus is new, but two may change one that exists
        forced -= _composed_keys(name, overrides)
    return (added | forced) - groups


def _composed_keys(name: str, overrides: Sequence[str]) -> set[Any]:
    """Return the top-level keys of conf/`name`.yaml with the groups that were chosen."""
    groups = [text for text in overrides if (CONF / text.lstrip("+").split("=")[0]).is_dir()]
    return set(compose_config(name, groups).config)


def run_folder() -> Path:
    """Return the folder of this run, `hydra.run.dir`."""
    return Path(HydraConfig.get().runtime.output_dir)


def typed_overrides() -> list[str]:
    """Return the overrides of the command line, as they were typed."""
    return list(HydraConfig.get().overrides.task)


def config_folders() -> list[str]:
    """Return the argument `--config-dir` of the command line, if there is one, for a command that this one starts."""
    sources = HydraConfig.get().runtime.config_sources
    return [f"--config-dir={source.path}" for source in sources if source.provider == "command-line"]


def sweep_name() -> str | None:
    """Return the name of a multirun's folder, which its runs share, or None outside of one."""
    hydra_config = HydraConfig.get()
    return Path(hydra_config.sweep.dir).name if hydra_config.mode == RunMode.MULTIRUN else None


def _known(error: Exception) -> Exception | None:
    """Return an error that the user can fix, as one line or what becomes one. None for a bug."""
    if isinstance(error, OSError):
        return error if error.errno in DISK else None
    if isinstance(error, (InputError, OmegaConfBaseException)):
        return error
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    if is_out_of_memory(error):
        return InputError(None, f"out of memory ({first_line(error)})", MEMORY_REMEDY)
    return None


def _fail(error: BaseException, typed: TypedArguments) -> NoReturn:
    """Print one line for an error that the user can fix, and exit with code 2."""
    print(f"error: {user_error(error, typed)}", file=sys.stderr)
    sys.exit(2)


def user_error(error: BaseException, typed: TypedArguments) -> InputError:
    """Return an error that the user can fix with its place and remedy. `typed`: the arguments that failed."""
    if isinstance(error, InputError):
        return typed.with_variable(error)
    while not str(error).strip() and error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, OSError) and error.errno in DISK:
        return _disk_error(error)
    # The texts of Hydra and OmegaConf, which have no separate type for these errors.
    if unknown := re.match(r"Could not (?:override|append to|delete) '(.+?)'", lines[0]):
        return typed.unknown_key(unknown[1])
    if merged := re.match(r"Error merging override ([^=]+)=", lines[0]):
        return typed.unmergeable(merged[1].lstrip("+"))
    if choice := re.search(r"Could not find '(\w+)/(.+)'", str(error)):
        return typed.unknown_choice(choice[1], choice[2])
    if lines[0].startswith("Config group override must be"):
        return typed.bad_group_value()
    # The whole key follows the name, unless an interpolation needs that: then it is the key of the interpolation.
    if missing := re.search(r"Missing mandatory value: (\S+)(?:\s+full_key: (\S+\.\1)$)?", str(error), re.MULTILINE):
        return typed.missing_key(missing[2] or missing[1])
    return InputError(None, " ".join(lines[:8]))


def _disk_error(error: OSError) -> InputError:
    """Name the file or, where a write to an open file failed and no name is known, the folders that are full."""
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
