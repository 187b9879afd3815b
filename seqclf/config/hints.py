"""Errors that the user of a command can fix, as one line and exit code 2, and hints for a wrong name in them."""

from __future__ import annotations

import difflib
import errno
import re
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from seqclf.errors import InputError, first_line
from seqclf.settings.typed_text import argument, shell_word
from seqclf.system.atomic_files import DISK
from seqclf.system.resources import MEMORY_REMEDY, is_out_of_memory
from seqclf.system.version import DISTRIBUTION, RUNTIME

if TYPE_CHECKING:  # prediction imports this file, but does not need the next module
    from seqclf.config.command_keys import Command

NEAR = 0.8  # minimum similarity (0 to 1) of a typed key to the proposed key
NEAR_CHOICE = 0.7  # minimum similarity of a typed choice; lower than for keys, because a config group has few choices
OF_FILES = ("data.train", "data.test", "data.validation")  # keys that exist only with data=files

# Names in other libraries → keys with the same meaning. The first key that the command has is proposed.
ALIASES = {
    **dict.fromkeys(["lr", "learning_rate"], ("optimizer.lr",)),
    **dict.fromkeys(["batch_size", "bs"], ("batching.max_sequences",)),
    **dict.fromkeys(["epochs", "num_epochs"], ("trainer.max_epochs",)),
    **dict.fromkeys(["hidden_dim", "d_model"], ("model.hidden_size",)),
    **dict.fromkeys(["num_layers", "n_layers"], ("model.layers",)),
    "gpus": ("trainer.devices", "device"),
    "device": ("trainer.accelerator", "device"),
    **dict.fromkeys(["ckpt", "resume", "bundle", "model"], ("checkpoint", "bundle")),
    **dict.fromkeys(["file", "input"], ("input", "data.train", "checkpoint")),
    "random_state": ("seed",),
    "max_len": ("data.max_length",),
    **dict.fromkeys(["output", "output_dir"], ("output", "bundle", "hydra.run.dir")),
    "sep": ("data.delimiter",),
    "target": ("data.label",),
    "text": ("sequence",),
}
NO_HOME = "Could not determine home directory."  # message of `Path.expanduser`
MODULES = {"sklearn": "scikit-learn", "yaml": "pyyaml", "hydra": "hydra-core"}  # dict module → package, if different


def key_hint(command: Command, typed: str, value: str | None, chosen: Mapping[str, str]) -> str:
    """Return a hint for an unknown key that the user typed with `value` or None, or "" if no known key is similar.

    `chosen`: dict config group → choice.

    >>> from seqclf.config.command_keys import Command
    >>> key_hint(Command("train"), "lr", "0.1", {})
    'write optimizer.lr=0.1'
    >>> key_hint(Command("train"), "optimizer.momentum", "0.8", {})
    'write optimizer=sgd optimizer.momentum=0.8'
    >>> key_hint(Command("train"), "model.layers", "2", {"model": "tree_lstm"})
    'model=tree_lstm has no layers, so remove it (model=auto has layers)'
    """
    typed = typed.lstrip("+~")
    keys = command.defaults(chosen)
    name = _name(typed)
    if name in command.variables(chosen):
        return f"write {_argument(name, value)}"
    if typed not in keys and (other := command.choice_with(typed)):
        group, choice = other
        if group in chosen:  # do not propose another choice, because the user typed a choice of this group
            below = typed.removeprefix(f"{group}.")
            return f"{group}={chosen[group]} has no {below}, so remove it ({group}={choice} has {below})"
        return f"write {shell_word(f'{group}={choice}')} {_argument(typed, value)}"
    if above := next((path for path in keys if typed.startswith(f"{path}.")), None):
        return f"{above} is one mapping; write {set_mapping(keys, above, _nested(typed, above, value))}"
    if meant := _meant(typed, [*keys, *command.groups]):
        files = "data=files " if meant in OF_FILES and {**command.groups, **chosen}.get("data") != "files" else ""
        return f"write {files}{_argument(meant, value)}"
    block = typed.rpartition(".")[0]
    is_block = block in command.groups or any(path.startswith(f"{block}.") for path in keys)
    return f"to add a new key, write {_argument(f'+{typed}', value)}" if is_block else ""


def choice_hint(command: Command, group: str, value: str) -> str:
    """Return a hint for an unknown choice of a config group, such as `model=gruu`.

    >>> from seqclf.config.command_keys import Command
    >>> choice_hint(Command("train"), "data", "my.csv")
    'write data=files data.train=my.csv data.label=COLUMN'
    """
    if group == "data" and ("." in value or "/" in value):
        return f"write data=files {argument('data.train', value)} data.label=COLUMN"
    if "/" in value or value.endswith((".yaml", ".yml")):
        stem = Path(value).stem
        return f"for FOLDER/{group}/{stem}.yaml, write --config-dir=FOLDER {argument(group, stem)}"
    near = difflib.get_close_matches(value.lower().replace("-", "_"), command.choices(group), 1, NEAR_CHOICE)
    return f"write {group}={near[0]}" if near else f"--help {group} lists its keys"


def set_mapping(keys: Mapping[str, object], key: str, value: str) -> str:
    """Return the arguments that set a mapping. In Hydra, `key=value` merges two mappings.

    >>> print(set_mapping({"data.fields": {"tokens": "category"}}, "data.fields", "{x: number}"))
    '~data.fields' '+data.fields={x: number}'
    """
    is_set = keys.get(key) is not None
    return f"'~{key}' {shell_word(f'+{key}={value}')}" if is_set else shell_word(f"{key}={value}")


def _meant(typed: str, known: Collection[str]) -> str:
    """Return the known key that is meant: by ALIASES, by the same last part, or the most similar one, or ""."""
    name = _name(typed).lower().replace("-", "_")
    aliases = [path for path in ALIASES.get(name, ()) if path in known]
    # Among keys with the same last part, a key with a shorter path is preferred, because it is used more often.
    same_name = sorted((path for path in known if _name(path) == name), key=lambda path: path.count("."))
    # Only the last parts are compared: `optimizer.eps` and `optimizer.betas` are similar only because of their group.
    near_names = difflib.get_close_matches(name, {_name(path) for path in known}, 3, NEAR)
    near = difflib.get_close_matches(typed, [path for path in known if _name(path) in near_names], 1, 0)
    return next(iter([*aliases, *same_name, *near]), "")


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _argument(key: str, value: str | None) -> str:
    """The value is not quoted for Hydra, because the user typed it in Hydra's grammar."""
    return f"{key}=VALUE" if value is None else shell_word(f"{key}={value}")


def _nested(typed: str, above: str, value: str | None) -> str:
    """Return the mapping that a value of the key `typed` is, inside of the key `above`.

    >>> _nested("data.fields.x.kind", "data.fields", "number")
    '{x: {kind: number}}'
    """
    names = typed.removeprefix(f"{above}.").split(".")
    return "{" + ": {".join(names) + f": {value or 'VALUE'}" + "}" * len(names)


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
