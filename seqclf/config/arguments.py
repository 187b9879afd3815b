"""The arguments that a user typed after the name of a command: clear errors for wrong ones, and their values.

A command without Hydra starts fast and where Hydra is not installed. Values are written as for Hydra, but a text stands
for itself, so that a path or a sequence needs no quotes but those of the shell.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from seqclf.config.build import Config
from seqclf.config.command_keys import REQUIRED, Command, nested_keys
from seqclf.config.hints import choice_hint, fail, key_hint, set_mapping, user_error
from seqclf.errors import InputError, first_line
from seqclf.settings.base import parse_options, takes_list, takes_text
from seqclf.settings.typed_text import key_of, must_be_one_of, shell_word, unquoted
from seqclf.system import signals
from seqclf.system.json_result import print_result

# Command-line options of Hydra with a value. Those in OWN_FILES name config files of the user.
OWN_CONFIG = ("--config-path", "-cp", "--config-name", "-cn")
OWN_FILES = ("--config-dir", "-cd", *OWN_CONFIG)
WITH_VALUE = (*OWN_FILES, "--cfg", "-c", "--package", "-p", "--experimental-rerun", "--info", "-i")
DATA_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".txt")
GENERAL = "--help lists groups and keys"
BOOLEANS = {"true": True, "false": False}
INTEGER = re.compile(r"[+-]?\d+(_\d+)*")
ENTRY = re.compile(r"""\s*(?:'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[^,])+""")  # one entry of a list


class Values(yaml.SafeLoader):
    """YAML in which yes, no, on and off are texts, as in Hydra: labels are often called so."""


BOOLEAN = "tag:yaml.org,2002:bool"
Values.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] != BOOLEAN]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Values.add_implicit_resolver(BOOLEAN, re.compile("(?:true|false)$", re.IGNORECASE), list("tTfF"))


class TypedArguments:
    """The command-line arguments that the user typed after the name of a command.

    >>> TypedArguments("train", ["lr=0.1"]).unknown_key("lr")
    InputError('lr: no such key; write optimizer.lr=0.1')
    """

    def __init__(self, name: str, arguments: Sequence[str]):
        self.arguments = list(arguments)
        self.command = Command.typed(name, arguments)
        self.chosen = self.command.chosen(arguments)  # dict config group → choice
        # An override is an argument that is not an option and not the value of an option.
        pairs = pairwise(["", *arguments])
        self.overrides = [text for before, text in pairs if before not in WITH_VALUE and not text.startswith("-")]

    @cached_property
    def keys(self) -> dict[str, Any]:
        """Dict dotted path → default, with all keys of the command for the chosen config groups."""
        return self.command.defaults(self.chosen)

    def check_keys(self) -> None:
        """Raise InputError for a typed key that the command cannot have, without Hydra, whose import is slow."""
        if any(text.partition("=")[0] in OWN_CONFIG for text in self.arguments):
            return  # the config of the user may have other keys
        known, groups = [*self.keys, *self.command.experiment_keys(self.chosen)], {*self.command.groups, "hydra"}
        blocks = groups | {path.partition(".")[0] for path in known}
        for text in self.overrides:
            key = text.lstrip("+~").partition("=")[0].rpartition("@")[2]
            if text[0] == "+" or key.startswith("hydra."):  # a key that is added, to a block that exists
                is_known = key.partition(".")[0] in blocks
            else:
                near = (f"{path}.".startswith(f"{key}.") or key.startswith(f"{path}.") for path in known)
                is_known = key in groups or any(near)
            if "=" in text and not is_known:
                raise self.unknown_key(key)

    def unknown_key(self, key: str) -> InputError:
        """Return an InputError for an unknown key of the command."""
        values = (text.partition("=")[2] for text in self.arguments if key_of(text) == key and "=" in text)
        value = next(values, None)
        if value is not None and key in self.keys:  # Hydra rejected a key inside the typed mapping
            known = self.keys | self.command.experiment_keys(self.chosen)
            return InputError(key, "is set already", f"to replace it, write {set_mapping(known, key, value)}")
        group = re.escape(key.partition(".")[0])
        foreign = [text for text in self.arguments if re.match(rf"\+*{group}\.([\w.]+\.)?_target_=(?!seqclf\.)", text)]
        if any(key_of(text) != key for text in foreign):
            # The user typed a class of another package. The class may have this argument, but is not imported yet.
            added = shell_word(f"+{key}={'VALUE' if value is None else value}")
            return InputError(key, "no such key", f"to add a new key, write {added}")
        return InputError(key, "no such key", key_hint(self.command, key, value, self.chosen) or GENERAL)

    def unknown_choice(self, group: str, value: str) -> InputError:
        """Return an InputError for an unknown choice of a config group."""
        allowed, _ = must_be_one_of("", self.command.choices(group))  # the hint comes from `choice_hint`
        return InputError(f"{group}={value}", allowed, choice_hint(self.command, group, value))

    def unknown_option(self, text: str) -> InputError:
        """Return an InputError for an unknown option, such as `--lr=0.1`."""
        name, equals, value = text.lstrip("-").partition("=")
        following = self.arguments[self.arguments.index(text) + 1 :][:1]
        if not equals and following and "=" not in following[0] and not following[0].startswith("-"):
            value = following[0]
        hint = key_hint(self.command, name.replace("-", "_"), value or None, self.chosen)
        return InputError(text, "keys have no dashes" if hint else "no such option", hint or GENERAL)

    def no_assignment(self, text: str) -> InputError:
        """Return an InputError for an argument without `=`: a file or a bundle without its key, a key without value."""
        is_bundle = (Path(text) / "manifest.json").is_file()
        is_file = Path(text).exists() or Path(text).suffix in DATA_ENDINGS
        key = "bundle" if is_bundle else "input" if is_file else text
        hint = key_hint(self.command, key, None if key == text else text, self.chosen)
        return InputError(text, "is no KEY=VALUE", hint or f"write KEY=VALUE; {GENERAL}")

    def block_of_keys(self, text: str, key: str) -> InputError | None:
        """Return an InputError if an override sets a block of nested keys, else None."""
        inner = next((path for path in self.keys if path.startswith(f"{key}.")), None)
        return InputError(text, "is a block of keys", f"set one of them: {inner}=VALUE") if inner else None


def missing_key(path: str) -> InputError:
    """Return an InputError for a required key without a value."""
    return InputError(path, "not set", f"give it as {path}=VALUE")


def run_plain(typed: TypedArguments, function: Callable[[Any], Any]) -> None:
    """Compose the config of a command without Hydra, call `function` with it, and print its result."""
    try:
        with signals.raised():
            result = function(parse_options(typed.command.settings, compose_plain(typed)))
        print_result(result)
    except Exception as error:
        known = user_error(error)
        if known is None:
            raise
        fail(known)


def compose_plain(typed: TypedArguments) -> Config:
    """Return the config of the typed arguments as nested dicts.

    Raises InputError for an unknown key or option, for a key that is not set, and for a value that cannot be read.

    >>> config = compose_plain(TypedArguments("predict", ["bundle=my run, v2", "max_far=9e-1"]))
    >>> config["bundle"], config["max_far"], config["output"]
    ('my run, v2', 0.9, None)
    """
    for text in typed.arguments:
        if text.startswith("-"):
            raise typed.unknown_option(text)
    keys = dict(typed.keys)
    for text in typed.overrides:
        key, equals, value = text.partition("=")
        if not equals:
            raise typed.no_assignment(text)
        if key == "data" and "data.test" in keys:  # a choice of `train`, of which only one is needed here
            if value != "files":
                file = value if "." in value else "FILE"
                raise InputError(text, "is a choice of seqclf train", f"name the file: data.test={file}")
            continue
        if key in keys:
            settings = typed.command.settings
            keys[key] = read_value(key, value, is_text=takes_text(settings, key), is_list=takes_list(settings, key))
        else:
            raise typed.block_of_keys(text, key) or typed.unknown_key(key.lstrip("+~"))
    if missing := next((path for path, value in keys.items() if value == REQUIRED), None):
        raise missing_key(missing)
    return nested_keys(keys)


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
            return yaml.load(text, Values)
        except yaml.YAMLError as error:
            raise InputError(f"{key}={text}", f"cannot be read ({first_line(error)})") from None
    if text in BOOLEANS:
        return BOOLEANS[text]
    try:
        return int(text) if INTEGER.fullmatch(text) else float(text)
    except ValueError:
        return text
