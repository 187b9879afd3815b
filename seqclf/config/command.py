"""The frame of every command: Hydra config in, one JSON line out, exit codes.

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
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import hydra
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.instantiate import Config, locate
from seqclf.config.suggestions import did_you_mean
from seqclf.errors import InputError
from seqclf.system import signals
from seqclf.system.atomic_files import DISK
from seqclf.system.json_result import JsonResult

if TYPE_CHECKING:
    from seqclf.config.options import CommandOptions

PACKAGED = Path(__file__).parents[1] / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

NEARLY_FULL = 2**20  # bytes


def command(name: str, options: str) -> Callable[[Callable[[Any], Any]], Callable[[], None]]:
    """Make `function(config)` a command that is configured by conf/`name`.yaml.

    `options`: dotted path of the pydantic model that checks the config. It is imported only when the command runs, so
    that `--help` stays fast. What the function returns, a `JsonResult` or plain values, is printed as one JSON line.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[[], None]:
        begun = False

        def run(config: DictConfig) -> None:
            nonlocal begun
            begun = True
            try:
                plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
                checked = check_config(name, options, plain)
                with signals.raised():
                    result = function(checked)
            except signals.Terminated:
                _remove_empty_run()
                raise
            except (InputError, OmegaConfBaseException, OSError) as error:
                if isinstance(error, OSError) and error.errno not in DISK:
                    raise
                _remove_empty_run()
                _fail(error, name)
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

        def entry() -> None:
            nonlocal begun
            begun = False
            os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # errors reach the lines below instead of Hydra's report
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
                _fail(error, name)  # the config could not be composed, or the run folder not be created

        return entry

    return decorate


def check_config(name: str, options: str, plain: Config) -> CommandOptions:
    """Return a composed config as a checked model. Raises InputError, which names the first key that is wrong."""
    from seqclf.config.options import parse_options
    from seqclf.config.validation_errors import unknown_key

    model = locate(options)
    # Config files may hold keys that the command does not read: an experiment's variables, or settings of training.
    unknown = (plain.keys() - model.model_fields.keys()) & _added_keys(name)
    if unknown:
        raise unknown_key(min(unknown), list(model.model_fields))
    return parse_options(model, plain)


def _added_keys(name: str) -> set[str]:
    """Return the top-level keys that only the command line adds, by `+key=value` or `++key=value`."""
    added: set[str] = set()
    forced: set[str] = set()
    for text in typed_overrides():
        if text.startswith("+"):
            key, _, package = text.lstrip("+").split("=")[0].partition("@")
            (forced if text.startswith("++") else added).add((package or key).split(".")[0])
    groups = set(HydraConfig.get().runtime.choices)
    if forced - groups:  # Hydra makes sure that a key with one plus is new, but two may change one that exists
        forced -= _composed_keys(name)
    return (added | forced) - groups


def _composed_keys(name: str) -> set[Any]:
    """Return the top-level keys of conf/`name`.yaml with the groups that were chosen."""
    groups = [text for text in typed_overrides() if (CONF / text.lstrip("+").split("=")[0]).is_dir()]
    return set(compose(name, groups))


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


def _remove_empty_run() -> None:
    """Remove the run's folder if it is empty, and the folders above that were created for it alone."""
    run, working_folder = run_folder(), Path.cwd()
    if run.resolve() == working_folder:
        return
    with suppress(OSError):  # another failing run in the same folder was quicker, or the disk is read-only
        for folder in (run, *run.parents):
            inside = working_folder in folder.resolve().parents or folder == run
            if inside and folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _fail(error: BaseException, name: str) -> NoReturn:
    """Print one line for an error that the user can fix, and exit with code 2. `name`: of the command."""
    while not str(error).strip() and error.__cause__ is not None:
        error = error.__cause__
    print(f"error: {_error_text(error, name)}", file=sys.stderr)
    sys.exit(2)


def _error_text(error: BaseException, name: str) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, InputError):
        return lines[0]
    if isinstance(error, OSError) and error.errno in DISK:
        return _disk_text(error)
    # The texts of Hydra and OmegaConf, which have no separate type for these errors.
    if unknown := re.match(r"Could not override '(.+?)'", lines[0]):
        hint = _nearest_key(name, unknown[1])
        return f"{unknown[1]}: no such key or group; {hint}--help lists the groups, --cfg job all keys"
    if missing := re.search(r"Missing mandatory value: (\S+)", str(error)):
        return f"{missing[1]}: is not set; give it as {missing[1]}=VALUE"
    if "override_grammar" in str(error):
        return f"{' '.join(lines[:2])}: cannot be read; put the value in quotes: \"KEY='VALUE'\""
    return " ".join(lines[:8])


def _nearest_key(name: str, typed: str) -> str:
    """Return a hint for a key that Hydra does not know, or "" where no key is similar."""
    with suppress(Exception), initialize_config_dir(str(CONF), version_base="1.3"):
        config_groups = [folder.name for folder in CONF.iterdir() if folder.is_dir()]
        # With the groups that were typed, whose keys may differ from those of the usual ones.
        groups = [text for text in sys.argv[1:] if "=" in text and (CONF / text.partition("=")[0]).is_dir()]
        plain: Any = OmegaConf.to_container(compose(name, groups), resolve=False)
        keys = [*config_groups, *_dotted_keys(plain)]
        # Within a group, names are compared without its own, which would make all of them similar.
        above, dot, _ = typed.rpartition(".")
        siblings = [key for key in keys if key.rpartition(".")[0] == above]
        if typed in keys:  # a block that got a key it does not have
            return f"to add a key to it, write +{typed}.KEY=VALUE, or ++{typed}={{…}}; "
        hint = did_you_mean(typed, siblings, ignoring=above + dot) if siblings else did_you_mean(typed, keys)
        if hint:
            return f"{hint} "
        return f"a new key has a plus: +{typed}=VALUE; " if above.partition(".")[0] in plain else ""
    return ""


def _dotted_keys(values: Config, above: str = "") -> Iterator[str]:
    for key, value in values.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _dotted_keys(value, f"{above}{key}.")


def _disk_text(error: OSError) -> str:
    """Name the file or, where a write to an open file failed and no name is known, the folders that are full."""
    where = str(error.filename2 or error.filename or "") or ", ".join(_full_folders())
    remedy = "free space or name another folder" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "name another"
    return f"{where or 'a file'}: {error.strerror}; {remedy}"


def _full_folders() -> list[str]:
    folders = {run_folder(), Path.cwd()}
    with suppress(OSError):
        folders.add(Path(tempfile.gettempdir()))
    folders.add(Path(os.environ.get("SEQCLF_CACHE", "~/.cache")).expanduser())
    return sorted(str(folder) for folder in folders if folder.is_dir() and shutil.disk_usage(folder).free < NEARLY_FULL)
