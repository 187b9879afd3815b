"""Errors that the user of a command can fix, which become one line on stderr and exit code 2."""

from __future__ import annotations

import errno
import re
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from seqclf.errors import InputError, first_line
from seqclf.system.atomic_files import DISK
from seqclf.system.resources import MEMORY_REMEDY, is_out_of_memory
from seqclf.system.version import DISTRIBUTION, RUNTIME

NO_HOME = "Could not determine home directory."  # message of `Path.expanduser`
MODULES = {"sklearn": "scikit-learn", "yaml": "pyyaml", "hydra": "hydra-core"}  # dict module → package, if different


def user_error(error: BaseException, run_folder: Path | None = None) -> InputError | None:
    """Return the InputError for an error that the user can fix, or None for a bug. `run_folder`: folder of a run."""
    if isinstance(error, InputError):
        return error
    if isinstance(error, OSError) and error.errno in DISK:
        return _disk_error(error, run_folder)
    if isinstance(error, RuntimeError) and str(error) == NO_HOME:
        return InputError("~", "the home folder is not known here", "write the whole path, or set HOME")
    if isinstance(error, ModuleNotFoundError):
        return missing_package(error)
    if isinstance(error, Exception) and is_out_of_memory(error):
        return InputError(None, f"out of memory ({first_line(error)})", MEMORY_REMEDY)
    return None


def fail(error: InputError) -> NoReturn:
    """Print an error as one line on stderr, and exit with its code, 2 by default."""
    with suppress(OSError):
        print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)


def missing_package(error: ModuleNotFoundError) -> InputError | None:
    """Return an InputError for a missing module, None if seqclf does not depend on its package.

    >>> missing_package(ModuleNotFoundError("No module named 'sklearn'", name="sklearn.metrics"))
    InputError('scikit-learn is not installed, which this needs; pip install scikit-learn')
    >>> missing_package(ModuleNotFoundError("No module named 'mine'", name="mine"))
    """
    module = (error.name or "").partition(".")[0]
    package = MODULES.get(module, module.replace("_", "-"))
    for distribution in (DISTRIBUTION, RUNTIME):
        for required in _requirements(distribution):
            if module and re.split(r"[\s<>=!~;\[]", required, maxsplit=1)[0] == package:
                extra = re.search(r"extra == ['\"](\w+)", required) if distribution == RUNTIME else None
                training = extra is not None and extra[1] == "train"
                whole = DISTRIBUTION if training else package if extra is None else f"'{RUNTIME}[{extra[1]}]'"
                return InputError(None, f"{package} is not installed, which this needs", f"pip install {whole}")
    return None


def _requirements(distribution: str) -> list[str]:
    from importlib.metadata import PackageNotFoundError, requires  # a slow import, for errors alone

    try:
        return requires(distribution) or []
    except PackageNotFoundError:  # seqclf is run from its sources
        return []


def _disk_error(error: OSError, run_folder: Path | None) -> InputError:
    """Return an InputError for a disk error, which names the file if it is known."""
    where = str(error.filename2 or error.filename or "")
    remedy = "free space or name another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another"
    if where and run_folder and Path(where).absolute() in (run_folder.absolute(), *run_folder.absolute().parents):
        remedy = f"{remedy} with hydra.run.dir=FOLDER"
    return InputError(where or "a file", error.strerror or first_line(error), remedy)
