"""Arguments of a command line, checked before Hydra reads them, and the remedies for what Hydra refuses.

Hydra explains its grammar on a page of text. Here, each mistake is one line with the argument to type instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import (  # with the names of ANTLR, in the version that Hydra needs
    CommonTokenStream,
    InputStream,
    OverrideLexer,
    OverrideParser,
    OverridesParser,
)
from hydra.errors import HydraException

from seqclf.config.command_line import chosen_groups, typed_command
from seqclf.config.documentation import GLOBAL_GROUP
from seqclf.config.key_advice import advise_choice, advise_key, experiment_variables, set_mapping
from seqclf.config.override_text import argument, is_plain, quoted, shell_word
from seqclf.config.suggestions import must_be_one_of
from seqclf.config.targets import locate
from seqclf.errors import InputError

OWN_FILES = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn")
FILE_KEYS = ("data.train", "data.validation", "data.test", "data.labels")
# A quoted text after `{` or `,` and before `:`.
QUOTED_KEY = re.compile(r"""(?P<before>[{,]\s*)(?P<mark>['"])(?P<key>(?:\\.|(?!(?P=mark))[^\\])*)(?P=mark)\s*:""")
NUMBER = r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?"
FIX_QUERY = "fix the query"
GENERAL = "--help lists groups and keys"
GROUP_VALUE = "a group takes the name of a choice"


class TypedArguments:
    """The arguments of a command, as they were typed. `options`: dotted path of the model of its config.

    >>> TypedArguments("train", ["lr=0.1"]).unknown_key("lr")
    InputError('lr: no such key; write optimizer.lr=0.1')
    """

    def __init__(self, name: str, arguments: Sequence[str], options: str | None = None):
        self.arguments = list(arguments)
        self.options = options
        self.command = typed_command(name, arguments)

    @property
    def chosen(self) -> dict[str, str]:
        """Choice by group."""
        return chosen_groups(self.command, self.arguments)

    def check(self) -> None:
        """Raise InputError for the first argument that Hydra cannot read, or that would mean something else."""
        parsed = self._options()
        self._check_split_values(parsed.overrides)
        for text in parsed.overrides:
            self._check_override(text, multirun=parsed.multirun)
        self._check_data_files(parsed.overrides)

    def missing_key(self, path: str) -> InputError:
        """Return the error of a key that has to be set, with the comment that explains it in conf/.

        >>> TypedArguments("export", []).missing_key("bundle")
        InputError('bundle: not set; give it as bundle=VALUE (folder to write)')
        """
        known = [*self.command.all_keys(self.chosen), *self.command.experiment_keys(self.chosen)]
        comments = [key.comment.partition(";")[0] for key in known if key.path == path and key.comment]
        meaning = f" ({comments[-1]})" if comments else ""
        return InputError(path, "not set", f"give it as {path}=VALUE{meaning}")

    def for_hydra(self) -> list[str]:
        """Return the options, then the overrides, with quotes around choices that Hydra would read as numbers.

        Hydra's parser takes overrides before options or after them, and refuses those between and around them.

        >>> TypedArguments("train", ["debug=nan", "--multirun", "seed=1"]).for_hydra()
        ['--multirun', "debug='nan'", 'seed=1']
        """
        options, overrides = list(self.arguments), self._options().overrides
        for text in overrides:
            options.remove(text)
        return options + [self._with_quoted_choices(text) for text in overrides]

    def _with_quoted_choices(self, text: str) -> str:
        key, equals, value = text.partition("=")
        group = key.lstrip("+")
        if not equals or group not in self.command.groups:
            return text
        choices = [name for name in self.command.choices(group) if not is_plain(name)]
        return f"{key}={','.join(quoted(name) if name in choices else name for name in value.split(','))}"

    def unknown_key(self, key: str) -> InputError:
        """Return the error of a key that the command does not have."""
        value = next((text.partition("=")[2] for text in self.arguments if _key(text) == key and "=" in text), None)
        known = {entry.path: entry for entry in self.command.all_keys(self.chosen)}
        if key in known and value is not None:
            return InputError(key, *self._refused_mapping(key, value, is_block=known[key].value is None))
        if key in self.command.groups:
            choices = " or ".join(f"{key}={name}" for name in self.command.choices(key))
            return InputError(key, "is a group", f"choose {choices}")
        if self._names_class(key.partition(".")[0]):
            # What its class takes beside the keys of the chosen file is known only once the class is imported.
            added = "VALUE" if value is None else value
            return InputError(key, "no such key", f"to add a new key, write {shell_word(f'+{key}={added}')}")
        advice = advise_key(self.command, key, value, self.chosen, self._declared(key))
        return InputError(key, "no such key", advice or GENERAL)

    def _names_class(self, group: str) -> bool:
        """True if the arguments name a class of another package in a group."""
        classes = [text for text in self.arguments if re.match(rf"\+*{re.escape(group)}\.([\w.]+\.)?_target_=", text)]
        return any(not text.partition("=")[2].startswith("seqclf.") for text in classes)

    def unknown_choice(self, group: str, value: str) -> InputError:
        """Return the error of a choice that a group does not have."""
        advice = advise_choice(self.command, group, value)
        allowed, _ = must_be_one_of("", self.command.choices(group))  # the advice has the nearest
        return InputError(f"{group}={value}", allowed, advice)

    def with_variable(self, error: InputError) -> InputError:
        """Return an error about a query that names the variable of the experiment of which its paths are made."""
        for name, comment in experiment_variables(self.command, self.chosen).items():
            value = next((text.partition("=")[2] for text in self.arguments if _key(text) == name), "")
            if value and error.remedy == FIX_QUERY and value in str(error):
                return error.with_remedy(f"check {argument(name, value)}{f' ({comment})' if comment else ''}")
        return error

    def bad_group_value(self) -> InputError:
        """Return the error for a group that was set to a value that cannot name a choice, such as 3."""
        for text in self.arguments:
            key, _, value = text.partition("=")
            if key in self.command.groups and value not in self.command.choices(key):
                error = self.unknown_choice(key, value)
                return error.with_remedy("; ".join(filter(None, [error.remedy, f"--help {key} lists its keys"])))
        return InputError(None, f"{GROUP_VALUE}: GROUP=CHOICE", GENERAL)

    def unmergeable(self, key: str) -> InputError:
        """Return the error for a list, or another value that is no mapping, in place of a mapping."""
        value = next((text.partition("=")[2] for text in self.arguments if _key(text) == key and "=" in text), "")
        entries = {entry.path: entry for entry in self.command.all_keys(self.chosen)}
        inner = [path for path in entries if path.startswith(f"{key}.")]
        if inner:
            remedy = f"set one of them: {inner[0]}=VALUE (--help {key})"
            return InputError(f"{key}={value}", "is a block of keys", remedy)
        default = entries[key].value if key in entries else None
        return InputError(f"{key}={value}", f"must be a mapping{f', such as {default}' if default else ''}")

    def _declared(self, key: str) -> list[str]:
        """Return the keys that the options have beside those of the config, in the group of a key."""
        if self.options is None or "." not in key:
            return []
        from seqclf.config.validation_errors import declared_keys  # pydantic, which only checks need

        return declared_keys(locate(self.options), key.rpartition(".")[0])

    def _options(self) -> Any:
        parser = get_args_parser()

        def refuse(message: str) -> NoReturn:
            raise InputError(None, message, "--hydra-help lists the options")

        parser.error = refuse  # type: ignore[method-assign]
        parsed, unknown = parser.parse_known_intermixed_args(self.arguments)
        for option in unknown:
            name, equals, value = option.lstrip("-").partition("=")
            position = self.arguments.index(option)
            following = self.arguments[position + 1 : position + 2]
            if not equals and following and "=" not in following[0] and not following[0].startswith("-"):
                value = following[0]
            known = {key.path for key in self.command.all_keys(self.chosen)} | self.command.groups.keys()
            if name in known:
                typed = shell_word(f"{name}={value or 'VALUE'}")
                raise InputError(option, "keys have no dashes", f"write {typed}")
            advice = advise_key(self.command, name.replace("-", "_"), value or None, self.chosen)
            raise InputError(option, "no such option", advice or GENERAL)
        return parsed

    def _check_split_values(self, overrides: Sequence[str]) -> None:
        """Refuse a value in braces or brackets that the shell has split at its spaces, and spaces around `=`."""
        for position, text in enumerate(overrides):
            if "=" in overrides[position + 1 : position + 2]:
                value = "".join(overrides[position + 2 : position + 3])
                raise InputError(
                    f"{text} = {value}", "has spaces around the =", f"write {_without_spaces(text, value)}"
                )
            if "=" in text and _open_brackets(text) > 0:
                rest = list(_until_closed(overrides[position:]))
                if len(rest) > 1 and _open_brackets(" ".join(rest)) == 0:
                    raise InputError(text, "the shell splits it at its spaces", f"write {shell_word(' '.join(rest))}")
                raise InputError(text, "has a bracket or brace that is not closed", "close it, and quote the argument")

    def _check_override(self, text: str, multirun: bool) -> None:
        key, equals, value = text.partition("=")
        if not equals and not text.startswith("~"):
            raise InputError(text, "is no KEY=VALUE", self._for_value(text))
        if value.isspace():
            raise InputError(text, "has a value of spaces without quotes", f"write {_without_spaces(key, value)}")
        if key != key.rstrip() or value != value.lstrip():
            raise InputError(text, "has spaces around the =", f"write {_without_spaces(key, value)}")
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:
            if (escaped := _without_quoted_keys(text)) is not None:
                remedy = f"keys in braces cannot be quoted; write {shell_word(escaped)}"
            elif not value or value[0] in "{[":
                remedy = "quote the parts that hold punctuation: key={a: 'b, c'}" if value else f"write {key}=VALUE"
            else:
                remedy = f"put the value in quotes: {shell_word(f'{key}={quoted(value)}')}"
            raise InputError(text, "cannot be read", remedy) from None
        # Parsing takes milliseconds, and most arguments have no mapping.
        if "{" in text and (repeated := repeated_key(text)) is not None:
            raise InputError(text, f"has the key {repeated} twice in one mapping", "remove one of them")
        self._check_list(key, value)
        if key in self.command.groups and isinstance(override.value(), (list, dict)):
            raise InputError(text, GROUP_VALUE, GENERAL)
        if override.is_sweep_override() and not multirun and not key.startswith("hydra"):
            raise InputError(text, "several values are several runs, by -m", self._one_value(key, value))

    @cached_property
    def _lists(self) -> dict[str, str]:
        """Default by key of the keys that hold a list."""
        keys = self.command.all_keys(self.chosen)
        return {key.path: key.value for key in keys if key.value is not None and key.value.startswith("[")}

    def _check_list(self, key: str, value: str) -> None:
        """Refuse a mapping for a key that holds a list, and a key below it. Hydra's errors do not name the key."""
        lists, name = self._lists, key.lstrip("+~")
        above, _, below = name.rpartition(".")
        if name in lists and value.startswith("{"):
            raise InputError(name, "is a list", f"write {shell_word(f'{name}=[{value}]')}")
        if above in lists and not below.isdecimal():
            example = f"[{{{below}: {value}}}]" if lists[above] == "[]" else lists[above]
            raise InputError(name, f"{above} is a list", f"write {shell_word(f'{above}={example}')}")

    def _one_value(self, key: str, value: str) -> str:
        """Return the remedy for values joined by commas that were meant as one run."""
        values = [part.strip() for part in value.split(",")]
        if key.lstrip("+") in self.command.groups:
            return f"for one run, choose one: {key}={values[0]}"
        if not all(re.fullmatch(NUMBER, part) for part in values):
            return f"for one value, write {argument(key, value)}"
        default = next((entry.value for entry in self.command.all_keys(self.chosen) if entry.path == key), None)
        takes_decimals = not re.fullmatch(r"-?\d+", default or "")
        if len(values) == 2 and takes_decimals and values[1].isdigit():
            return f"decimals follow a point: {key}={values[0]}.{values[1]}"
        return f"for one run, write {key}={values[0]}"

    def _check_data_files(self, overrides: Sequence[str]) -> None:
        """Refuse files of the user's beside a dataset that brings files of its own."""
        if self.command.groups.get("data", "files") == "files":
            return
        groups = {_key(text) for text in overrides}
        if {"data", GLOBAL_GROUP} & groups or any(text.split("=")[0] in OWN_FILES for text in self.arguments):
            return
        typed = next((text for text in overrides if _key(text) in FILE_KEYS), None)
        if typed is not None:
            raise InputError(typed, "is a key of data=files", "add data=files")

    def _for_value(self, text: str) -> str:
        """Return the remedy for an argument without a key: its key, where it looks like a file, or its value."""
        looks_like_file = "/" in text or Path(text).exists() or re.search(r"\.\w{2,8}$", text)
        known = {key.path for key in self.command.all_keys(self.chosen)}
        if text in known or text in self.command.groups:
            return f"write {text}=VALUE"
        if not looks_like_file or "=" in text:
            return advise_key(self.command, text, None, self.chosen) or f"write KEY=VALUE; {GENERAL}"
        return advise_key(self.command, "bundle" if _is_bundle(text) else "input", text, self.chosen) or (
            f"write {argument('bundle' if _is_bundle(text) and 'bundle' in known else 'input', text)}"
        )

    def _refused_mapping(self, key: str, value: str, is_block: bool) -> tuple[str, str]:
        """Return the problem and the remedy for a mapping with keys that the key's mapping does not have."""
        if is_block:
            override: Any = OverridesParser.create().parse_override(f"{key}={value}").value()
            if not isinstance(override, dict):
                return "is a block of keys", f"set one of them: --help {key}"
            added = " ".join(shell_word(f"+{key}.{name}={part}") for name, part in override.items())
            return f"has other keys than {', '.join(map(str, override))}", f"to add them, write {added}"
        # Hydra merges mappings. One that brings other keys has to take the place of the first.
        return "is set already", f"to replace it, write {set_mapping(key, value, is_set=True)}"


def repeated_key(text: str) -> str | None:
    """Return the first key that a mapping in an override has twice, of which Hydra would keep the last.

    >>> repeated_key("structure=[{epoch: 2, layers: 2, layers: 3}]"), repeated_key("a=[{b: 1}, {b: 2}]")
    ('layers', None)
    """
    waiting: list[Any] = [OverrideParser(CommonTokenStream(OverrideLexer(InputStream(text)))).override()]
    while waiting:
        node = waiting.pop()
        if isinstance(node, OverrideParser.DictContainerContext):
            keys = [pair.dictKey().getText() for pair in node.dictKeyValuePair()]
            if repeated := [name for index, name in enumerate(keys) if name in keys[:index]]:
                return repeated[0]
        waiting += getattr(node, "children", None) or []
    return None


def _without_spaces(key: str, value: str) -> str:
    """Return the argument without spaces around its `=`. A value of nothing but spaces is meant, and needs quotes.

    >>> print(_without_spaces("seed ", " 1"), _without_spaces("data.list_separator", " "))
    seed=1 "data.list_separator=' '"
    """
    key = key.rstrip()
    return argument(key, value) if value.isspace() else shell_word(f"{key}={value.lstrip()}")


def _without_quoted_keys(text: str) -> str | None:
    """Return an override whose keys in braces have backslashes instead of quotes, None if that is no remedy."""

    def escaped(match: re.Match[str]) -> str:
        bare = re.sub(r"\\([\\'\"])", r"\1", match["key"])
        return match["before"] + re.sub(r"[\\()\[\]{}:=,]", r"\\\g<0>", bare) + ":"

    written = QUOTED_KEY.sub(escaped, text)
    if written == text:
        return None
    try:
        OverridesParser.create().parse_override(written)
    except HydraException:
        return None
    return written


def _key(text: str) -> str:
    return text.lstrip("+~").partition("=")[0].partition("@")[0]


def _open_brackets(text: str) -> int:
    """Return how many braces and brackets a text leaves open, outside of quotes."""
    bare = re.sub(r"'(\\.|[^'\\])*'|\"(\\.|[^\"\\])*\"", "", text)
    return sum(bare.count(mark) for mark in "{[") - sum(bare.count(mark) for mark in "}]")


def _until_closed(texts: Sequence[str]) -> Iterator[str]:
    opened = 0
    for text in texts:
        yield text
        opened += _open_brackets(text)
        if opened <= 0:
            return


def _is_bundle(text: str) -> bool:
    return (Path(text) / "manifest.json").is_file()
