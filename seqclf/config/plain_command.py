"""Run a command whose config needs no Hydra: the keys of conf/, its groups, and KEY=VALUE arguments.

Such a command starts fast and where Hydra is not installed. Values are written as for Hydra, but a text stands for
itself, so that a path or a sequence needs no quotes but those of the shell.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any

import yaml

from seqclf.config.override_text import unquoted
from seqclf.config.targets import Config, locate
from seqclf.config.typed_arguments import GENERAL, TypedArguments
from seqclf.config.user_errors import fail, user_error
from seqclf.errors import InputError, first_line
from seqclf.system import signals
from seqclf.system.json_result import print_result

FOLDER_OPTIONS = ("--config-dir", "-cd")
DATA_OPTIONS = "seqclf.data.options.DataOptions"  # model of the keys data.*, which a command may leave to its function
NAMED = {"null": None, "true": True, "false": False}
INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
ENTRY = re.compile(r"""\s*(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^,])+""")  # one entry of a list


def run_plain(name: str, options: str, function: Callable[[Any], Any]) -> None:
    """Compose the config from conf/`name`.yaml and the command line, call `function`, and print its result.

    `options`: dotted path of the pydantic model that checks the config.
    """
    try:
        with signals.raised():
            from seqclf.config.options import parse_options

            typed = TypedArguments(name, sys.argv[1:], options)
            result = function(parse_options(locate(options), compose_plain(typed)))
        print_result(result)
    except Exception as error:
        known = user_error(error)
        if known is None:
            raise
        fail(known)


def compose_plain(typed: TypedArguments) -> Config:
    """Return the config of the typed arguments as nested dicts.

    Raises InputError for an unknown key, choice or option, for a key that is not set, and for a value that cannot be
    read.

    >>> arguments = ["run=my run, v2", "decision.min_recall=9e-1"]
    >>> typed = TypedArguments("judge", arguments, "seqclf.command_options.JudgeConfig")
    >>> config = compose_plain(typed)
    >>> config["run"], config["decision"]["min_recall"], config["output"]
    ('my run, v2', 0.9, None)
    """
    options = [text for text in typed.arguments if text.startswith("-")]
    for text in options:
        if text.partition("=")[0] not in FOLDER_OPTIONS:
            raise typed.unknown_option(text)
    keys = dict(typed.keys)
    for text in typed.overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise InputError(text, "is no KEY=VALUE", typed.hint_for_value(text) or f"write KEY=VALUE; {GENERAL}")
        if key in typed.command.groups:
            if value not in typed.command.choices(key):
                raise typed.unknown_choice(key, value)
        elif key in keys:
            is_text, is_list = _kinds(typed, key)
            keys[key] = read_value(key, value, is_text=is_text, is_list=is_list)
        elif inner := next((path for path in keys if path.startswith(f"{key}.")), None):
            raise InputError(text, "is a block of keys", f"set one of them: {inner}=VALUE")
        else:
            raise typed.unknown_key(key.lstrip("+~"))
    config: Config = {}
    for path, value in keys.items():
        if value == "???":
            raise typed.missing_key(path)
        if path not in {text.partition("=")[0] for text in typed.overrides} and "${" in str(value):
            raise InputError(f"{path}={value}", "refers to another key or the environment", f"set {path} here")
        *above, name = path.split(".")
        block = config
        for part in above:
            block = block.setdefault(part, {})
        block[name] = value
    return config


def read_value(key: str, text: str, *, is_text: bool = False, is_list: bool = True) -> Any:
    r"""Return the value of an argument, for a key of texts (`is_text`), or of a list (`is_list`).

    >>> read_value("runs", "[runs/*, 'a, b', it's]", is_text=True)
    ['runs/*', 'a, b', "it's"]
    >>> read_value("id", "2024_01", is_text=True), read_value("threads", "2"), read_value("threads", "null")
    ('2024_01', 2, None)
    """
    if text == "null":
        return None
    if (inner := unquoted(text)) is not None:
        return inner
    if is_list and text[:1] == "[" and text[-1:] == "]":
        entries = [match[0].strip() for match in ENTRY.finditer(text[1:-1])]
        return [read_value(key, entry, is_text=is_text) for entry in entries]
    if is_text:
        return text
    if text[:1] == "{":
        try:
            return yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise InputError(f"{key}={text}", f"cannot be read ({first_line(error)})") from None
    if text in NAMED:
        return NAMED[text]
    try:
        return int(text) if INTEGER.fullmatch(text) else float(text)
    except ValueError:
        return text


def _kinds(typed: TypedArguments, key: str) -> tuple[bool, bool]:
    """Return whether a key takes texts, and whether it takes a list."""
    from seqclf.config.validation_errors import takes_list, takes_text  # imports pydantic, which is slow

    of_data = key.startswith("data.")
    model, name = locate(DATA_OPTIONS if of_data else str(typed.options)), key[5:] if of_data else key
    return takes_text(model, name), takes_list(model, name)
