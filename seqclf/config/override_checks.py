"""Checks of command-line arguments before Hydra parses them: one line with the argument to type instead.

For a wrong argument, Hydra would print a page about its grammar.
"""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from seqclf.config.arguments import OWN_FILES, WITH_VALUE, TypedArguments
from seqclf.config.command_keys import GLOBAL_GROUP
from seqclf.config.hints import OF_FILES
from seqclf.errors import InputError
from seqclf.settings.base import takes_text
from seqclf.settings.typed_text import argument, hydra_value, is_plain, key_of, label_text, quoted

SWEEP = ("--multirun", "-m")
OPTIONS = (*SWEEP, "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--shell-completion", "-sc")
FILE_KEYS = (*OF_FILES, "data.labels")
TOKEN = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|[\[\]{}(),:]|[^\[\]{}(),:]+""")
STARTS, ENDS = ("=", ",", "[", "{", ":", "("), ("", ",", "]", "}", ":", ")")  # what stands around a whole value
NUMBER = r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?"
QUOTE = "quote the argument, 'KEY={a: b}', and in it a text with punctuation, \"KEY='a, b'\""


def _field_override(text: str) -> str:
    """Return an override of fields that adds keys, with a kind as {kind: KIND}, so that another override adds options.

    >>> _field_override("data.fields.amount=number"), _field_override("data.fields={amount: number}")
    ('++data.fields.amount.kind=number', '++data.fields={amount: {kind: number}}')
    """
    if not (parts := re.match(r"(data\.(?:fields|static))(?:\.([^.=]+))?=(.*)", text, re.DOTALL)):
        return f"++{text}" if text.startswith(("data.fields.", "data.static.")) else text
    block, name, value = parts.groups()
    if name is not None:
        return f"++{block}.{name}.kind={value}" if re.fullmatch(r"(?!null$)\w+(,\w+)*", value) else f"++{text}"
    fields = None if "${" in value else OverridesParser.create().parse_override(text).value()
    if not isinstance(fields, dict) or not all(isinstance(part, str) for entry in fields.items() for part in entry):
        return f"++{text}"
    return f"++{block}={hydra_value({each: {'kind': kind} for each, kind in fields.items()})}"


def _read(mark: str) -> str:
    """Return the text of the number that Hydra reads a text as, or the text itself."""
    for kind in (int, float):
        with suppress(ValueError):
            return label_text(kind(mark))
    return mark


class HydraArguments(TypedArguments):
    """The arguments of a command whose config Hydra composes."""

    def check(self) -> None:
        """Raise InputError for the first argument that Hydra cannot parse or would parse in an unexpected way."""
        for text in self.arguments:
            if text.startswith("-") and text.partition("=")[0] not in (*OPTIONS, *WITH_VALUE):
                raise self.unknown_option(text)
        self.check_keys()
        for text in self.overrides:
            self._check_override(text)
        self._check_data_files()

    def for_hydra(self) -> list[str]:
        """Return the arguments for Hydra's parser: the options, then the overrides, which it rejects between options.

        A choice or a name is quoted if Hydra would parse it as a number, such as `data.label=2024_01`.

        >>> HydraArguments("train", ["data.label=2024_01", "--multirun", "seed=1"]).for_hydra()
        ['--multirun', "data.label='2024_01'", 'seed=1']
        """
        options = [text for text in self.arguments if text not in self.overrides]
        return options + [self._with_quotes(_field_override(text)) for text in self.overrides]

    def _with_quotes(self, text: str) -> str:
        """Quote the parts of an override that Hydra would parse as another type: choices and names."""
        key, equals, value = text.partition("=")
        group = key.lstrip("+")
        if not equals or re.fullmatch(r"(['\"]).*\1", value, re.DOTALL):
            return text
        if group not in self.command.groups:
            return self._with_quoted_names(text)
        awkward = [name for name in self.command.choices(group) if not is_plain(name)]
        return f"{key}={','.join(quoted(name) if name in awkward else name for name in value.split(','))}"

    def _with_quoted_names(self, text: str) -> str:
        """Quote the numbers of an override that name something, such as the column 2024_01 (not 202401)."""
        key, _, value = text.partition("=")
        is_text = takes_text(self.command.settings, key_of(text))
        result, before, entry = f"{key}=", "=", ""
        for token, after in pairwise([*TOKEN.findall(value), ""]):
            mark = token.strip()
            entry = before if mark == ":" else entry
            is_whole = before in STARTS and after in ENDS and ("{" in result or ":" not in (before, after))
            read = _read(mark) if is_whole else mark
            if read != mark and after == ":":
                remedy = f"set {key_of(text)} in a YAML file, with '{mark}' in quotes"
                raise InputError(text, f"the key {mark} would be read as {read}", remedy)
            is_name = read != mark and (is_text or entry in ("column", "columns"))
            result += token.replace(mark, f"'{mark}'") if is_name else token
            before = mark or before
        return result

    def _check_override(self, text: str) -> None:
        key, equals, value = text.partition("=")
        if not equals and not text.startswith("~"):
            raise self.no_assignment(text)
        try:
            override = OverridesParser.create().parse_override(self._with_quotes(text))
        except HydraException:
            raise InputError(text, "cannot be read", QUOTE) from None
        if not override.is_sweep_override():
            # Hydra would replace a config group or a block of nested keys.
            key, new = key_of(text), override.value()
            if key in self.command.groups:
                if not isinstance(new, str) and text[0] != "~":
                    raise InputError(text, "a group takes the name of a choice", f"--help {key} lists them")
            elif not isinstance(new, dict | None) and (error := self.block_of_keys(text, key)):
                raise error
        elif not {*SWEEP} & {*self.arguments} and not key.startswith("hydra"):
            is_text = key_of(text) not in self.command.groups and not re.fullmatch(rf"{NUMBER}(,{NUMBER})*", value)
            remedy = f"for one value, write {argument(key, value)}" if is_text else "for one run, give one value"
            raise InputError(text, "several values are several runs, by -m", remedy)

    def _check_data_files(self) -> None:
        """Raise InputError if the user typed a data file but not data=files, and data=files is not the default."""
        files = [text for text in self.overrides if key_of(text) in FILE_KEYS]
        brings_files = self.command.groups.get("data", "files") != "files"
        names_data = {"data", GLOBAL_GROUP, *OWN_FILES} & {key_of(text) for text in self.arguments}
        if files and brings_files and not names_data:
            raise InputError(files[0], "is a key of data=files", "add data=files")
