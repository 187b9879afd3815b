"""The arguments that a user typed after the name of a command, and clear errors for wrong ones."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from seqclf.config.documentation import Command
from seqclf.config.hints import choice_hint, key_hint, must_be_one_of, set_mapping
from seqclf.config.override_text import key_of, shell_word
from seqclf.errors import InputError

# Command-line options of Hydra with a value. Those in OWN_FILES name config files of the user.
OWN_FILES = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")
WITH_VALUE = (*OWN_FILES, "--cfg", "-c", "--package", "-p", "--experimental-rerun", "--info", "-i")
DATA_ENDINGS = (".csv", ".tsv", ".jsonl", ".json", ".parquet", ".arrow", ".txt")
GENERAL = "--help lists groups and keys"


class TypedArguments:
    """The command-line arguments that the user typed. `options`: dotted path of the command's pydantic model.

    >>> TypedArguments("train", ["lr=0.1"]).unknown_key("lr")
    InputError('lr: no such key; write optimizer.lr=0.1')
    """

    def __init__(self, name: str, arguments: Sequence[str], options: str | None = None):
        self.arguments = list(arguments)
        self.options = options
        self.command = Command.typed(name, arguments)
        self.chosen = self.command.chosen(arguments)  # dict config group → choice
        # An override is an argument that is not an option and not the value of an option.
        pairs = pairwise(["", *arguments])
        self.overrides = [text for before, text in pairs if before not in WITH_VALUE and not text.startswith("-")]

    @cached_property
    def keys(self) -> dict[str, Any]:
        """Dict dotted path → default, with all keys of the command for the chosen config groups."""
        return self.command.defaults(self.chosen)

    def value_of(self, key: str) -> str | None:
        """Return the value that the user typed for a key, or None."""
        return next((text.partition("=")[2] for text in self.arguments if key_of(text) == key and "=" in text), None)

    def missing_key(self, path: str) -> InputError:
        """Return an InputError for a required key without a value.

        >>> TypedArguments("export", []).missing_key("bundle")
        InputError('bundle: not set; give it as bundle=VALUE')
        """
        return InputError(path, "not set", f"give it as {path}=VALUE")

    def unknown_key(self, key: str) -> InputError:
        """Return an InputError for an unknown key of the command."""
        value = self.value_of(key)
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

    def hint_for_value(self, text: str) -> str:
        """Return a hint for an argument without `=`: a file or a bundle without its key, or a key without its value."""
        is_bundle = (Path(text) / "manifest.json").is_file()
        is_file = Path(text).exists() or Path(text).suffix in DATA_ENDINGS
        key = "bundle" if is_bundle else "input" if is_file else text
        return key_hint(self.command, key, None if key == text else text, self.chosen)
