"""The keys of conf/ with their defaults and comments, read from the YAML files.

A comment on the line of a key explains the key. If the next line is only a comment and starts in column 20 or later, it
continues the comment above. A comment block at the start of a file describes the file. Any other comment block is a
note on the keys below, up to the next blank line. A mapping in braces counts as one value. A mapping whose keys are
chosen by users also counts as one value.

This module does not import Hydra and OmegaConf, so that help texts are fast.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import yaml

PACKAGED = Path(__file__).parents[1] / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

CONTINUATION_COLUMN = 20  # a comment line from this column on continues the comment above
CHOSEN_NAMES = ("fields", "usual")  # names of mappings whose keys are chosen by users
GLOBAL_GROUP = "experiment"  # config group whose files may set keys of other groups


@dataclass(frozen=True)
class Key:
    """A key of a config file, with its default value and its comments.

    `path`: dotted path of the key. `value`: default value as YAML text. A key with nested keys, such as `data.split`,
    has the value None. `comment`: comment on the line of the key. `note`: lines of the comment block above the key,
    including indentation.
    """

    path: str
    value: str | None
    comment: str
    note: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """True if the key has no default, so that the user must set a value."""
        return self.value == "???"


@dataclass(frozen=True)
class ConfigFile:
    """A YAML file of a config folder.

    `description`: lines of the comment block at the start of the file. `parents`: names of the files that this file
    extends, from Hydra's defaults list. `groups`: dict config group → choice, from Hydra's defaults list. `plain`:
    content of the file as a dict.
    """

    description: tuple[str, ...]
    parents: tuple[str, ...]
    groups: dict[str, str]
    keys: tuple[Key, ...]
    plain: dict[str, Any]


@dataclass(frozen=True)
class Choice:
    """A choice of a config group, such as `model=gru`.

    `base`: name of the choice that this choice extends. If the choice extends nothing, `base` equals `name`. `keys`:
    keys of the choice, including inherited keys.
    """

    group: str
    name: str
    base: str
    description: tuple[str, ...]
    keys: tuple[Key, ...]


class Command:
    """The config of a command: help texts, keys, and config groups with their default choices.

    `folders`: config folders. The first folder is conf/. The other folders come from Hydra's option `--config-dir`.

    >>> train = Command("train")
    >>> train.groups["model"], train.choices("optimizer")
    ('auto', ['adamw', 'sgd'])
    """

    @classmethod
    def typed(cls, name: str, arguments: Sequence[str]) -> Command:
        """Return the config of the command `name`.

        `arguments`: arguments of the command, which may contain `--config-dir`.
        """
        values = re.findall(r"^(?:--config-dir|-cd)[=\n](.*)$", "\n".join(arguments), re.MULTILINE)
        return cls(name, (CONF, *(Path(folder) for folder in values if Path(folder).is_dir())))

    def __init__(self, name: str, folders: Sequence[Path] = (CONF,)):
        self.name = name
        self.folders = tuple(folders)
        file = read_file(folders[0] / f"{name}.yaml")
        self.files = [*(read_file(folders[0] / f"{parent}.yaml") for parent in file.parents), file]
        texts = file.plain.get("hydra", {}).get("help", {})
        self.summary, self.examples = texts.get("header", ""), texts.get("template", "")
        self.groups = {group: choice for file in self.files for group, choice in file.groups.items()}

    @cached_property
    def own_keys(self) -> tuple[Key, ...]:
        """Keys of the command outside of config groups."""
        keys = merged(file.keys for file in self.files)
        return tuple(key for key in keys if _first(key.path) not in self.groups)

    def choices(self, group: str) -> list[str]:
        """Return the names of all choices of a config group. The default choice comes first in the list."""
        names = {path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")}
        return sorted(names, key=lambda name: (name != self.groups.get(group), name))

    def choice(self, group: str, name: str) -> Choice:
        """Return a choice of a config group, including inherited keys.

        If the config file of the command also sets a key of the choice, the command's value is used.
        """
        file = read_file(_path(self.folders, group, name))
        inherited = [self.choice(group, parent) for parent in file.parents if parent in self.choices(group)]
        if group == GLOBAL_GROUP:  # the comments on an experiment's keys are in other files
            comments = {key.path: key.comment for key in [*self._keys_of_all_groups(), *self.all_keys()]}
            keys = [replace(key, comment=key.comment or comments.get(key.path, "")) for key in file.keys]
            return Choice(group, name, name, file.description, tuple(keys))
        here = [replace(key, path=f"{group}.{key.path}") for key in file.keys]
        changed = [key for part in self.files for key in part.keys if _first(key.path) == group]
        keys = merged([*(parent.keys for parent in inherited), here, changed])
        return Choice(group, name, inherited[0].base if inherited else name, file.description, tuple(keys))

    def _keys_of_all_groups(self) -> Iterator[Key]:
        """Yield the keys of all choices in all config groups, including groups of other commands."""
        for group in sorted(path.name for path in self.folders[0].iterdir() if path.is_dir()):
            for name in self.choices(group) if group != GLOBAL_GROUP else ():
                yield from self.choice(group, name).keys

    def all_keys(self, chosen: dict[str, str] | None = None) -> list[Key]:
        """Return the keys of the command, including config groups.

        `chosen`: dict config group → choice, for choices other than the default.
        """
        groups = {**self.groups, **(chosen or {})}
        made = [pair for pair in groups.items() if pair[0] != GLOBAL_GROUP and pair[1] in self.choices(pair[0])]
        return [*self.own_keys, *(key for group, name in made for key in self.choice(group, name).keys)]

    def experiment_keys(self, chosen: Mapping[str, str]) -> tuple[Key, ...]:
        """Return the keys that the chosen experiment sets. `chosen`: dict config group → choice."""
        return self.choice(GLOBAL_GROUP, chosen[GLOBAL_GROUP]).keys if GLOBAL_GROUP in chosen else ()

    def variables(self, chosen: Mapping[str, str]) -> dict[str, str]:
        """Return the variables of the chosen experiment, as a dict name of a variable → comment.

        A variable is a top-level key of an experiment. A variable has no default, so the user must set its value.
        `chosen`: dict config group → choice.

        >>> Command("train").variables({"experiment": "trec"})
        {'path': 'folder that holds the files'}
        """
        keys = self.experiment_keys(chosen)
        return {key.path: key.comment for key in keys if key.is_required and "." not in key.path}

    def chosen(self, arguments: Sequence[str]) -> dict[str, str]:
        """Return the choices in arguments and in the chosen experiment, as a dict config group → choice.

        >>> Command("train").chosen(["model=gru", "data.train=x", "data=nonsense"])
        {'model': 'gru'}
        >>> Command("train").chosen(["model=gru", "experiment=listops"])
        {'data': 'listops_trees', 'model': 'gru', 'experiment': 'listops'}
        """
        pairs = [text.lstrip("+").partition("=")[::2] for text in arguments]
        typed = {group: name for group, name in pairs if group in self.groups and name in self.choices(group)}
        if GLOBAL_GROUP not in typed:
            return typed
        made = read_file(_path(self.folders, GLOBAL_GROUP, typed[GLOBAL_GROUP])).groups
        return {group: choice for group, choice in made.items() if group in self.groups} | typed

    def choice_with(self, path: str) -> tuple[str, str] | None:
        """Return a choice of a config group that has the key `path`, such as `loss.gamma`.

        It is the default, or else a choice that others inherit from, or else the first one. The result is a pair
        (group, choice), or None if no choice has the key.
        """
        group = _first(path)
        if group not in self.groups or group == GLOBAL_GROUP:
            return None
        choices = self.choices(group)
        names = [name for name in choices if any(key.path == path for key in self.choice(group, name).keys)]
        bases = {parent for name in choices for parent in read_file(_path(self.folders, group, name)).parents}
        return (group, min(names, key=lambda name: (name != choices[0], name not in bases))) if names else None


def command_names(folder: Path = CONF) -> list[str]:
    """Return the names of all commands. A command is a YAML file in `folder`.

    >>> "train" in command_names()
    True
    """
    return sorted(path.stem for path in folder.glob("*.yaml"))


def default_settings(name: str) -> Any:
    """Return the default values of a config group such as `model`, or the default of a key in conf/train.yaml.

    This function is for programs that do not compose a config. Hydra is not needed, because the files of default
    choices contain no references to other files or keys. Each call returns a new copy.

    >>> default_settings("seed"), default_settings("model")["cell"]
    (0, 'lstm')
    """
    file = read_file(CONF / "train.yaml")
    choice = f"{name}/{file.groups[name]}.yaml" if name in file.groups else None
    return copy.deepcopy(read_file(CONF / choice).plain if choice else file.plain[name])


def merged(parts: Iterable[Iterable[Key]]) -> list[Key]:
    """Merge the keys of several files. If a key occurs several times, its last value and its last comment are used.

    The keys of the result are in the order of their first occurrence. Keys with a common prefix stay together.
    """
    keys: dict[str, Key] = {}
    order: dict[str, int] = {}  # dict dotted key (or prefix of a key) → rank of its first occurrence
    for key in chain.from_iterable(parts):
        if (before := keys.get(key.path)) is not None:
            key = replace(key, comment=key.comment or before.comment, note=key.note or before.note)
        if key.value is not None:  # a new value of a key replaces all keys that are nested in it
            keys = {path: kept for path, kept in keys.items() if not path.startswith(f"{key.path}.")}
        keys[key.path] = key
        for path in _with_blocks(key.path):
            order.setdefault(path, len(order))
    return sorted(keys.values(), key=lambda key: [order[path] for path in _with_blocks(key.path)])


def _with_blocks(path: str) -> list[str]:
    """Return all prefixes of a dotted path, from the shortest prefix to the whole path."""
    return list(accumulate(path.split("."), "{}.{}".format))


@cache
def read_file(path: Path) -> ConfigFile:
    """Read a YAML file including its comments."""
    text = path.read_text(encoding="utf-8")
    lines = [*text.splitlines(), ""]  # PyYAML may report the end of the file as a line after the last line
    node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    plain = _plain(node) or {}
    defaults = plain.get("defaults", ())
    pairs = [pair for entry in defaults if isinstance(entry, dict) for pair in entry.items()]
    return ConfigFile(
        description=_description(lines),
        parents=tuple(entry for entry in defaults if isinstance(entry, str) and entry != "_self_"),
        # Hydra writes `override /group: choice` if the file changes a choice of a file that it extends.
        groups={re.sub("^(override )?/?", "", key): str(name or "null") for key, name in pairs if "hydra/" not in key},
        keys=tuple(_keys(node, text, lines, "")) if node is not None else (),
        plain=plain,
    )


def _plain(node: Any) -> Any:
    return None if node is None else yaml.SafeLoader("").construct_document(node)


def _path(folders: Sequence[Path], group: str, name: str) -> Path:
    """Return the path of a choice's YAML file.

    If several config folders have a file for the choice, the file in the last folder is used.
    """
    paths = (folder / group / f"{name}.yaml" for folder in reversed(folders))
    return next(path for path in paths if path.is_file())


def _first(path: str) -> str:
    return path.partition(".")[0]


def _description(lines: Sequence[str]) -> tuple[str, ...]:
    block = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            block.append(line[1:].removeprefix(" "))
    return tuple(block)


def _keys(node: Any, text: str, lines: Sequence[str], above: str) -> Iterator[Key]:
    """Yield the keys of a mapping, including nested keys. `above`: dotted prefix of the keys."""
    for key, value in node.value:
        path = f"{above}{key.value}"
        if path == "defaults":
            continue
        comment = _comment_of(key, value, lines)
        is_group = _is_block(value) and key.value not in CHOSEN_NAMES
        below = list(_keys(value, text, lines, f"{path}.")) if is_group else []
        found = [Key(path, None if is_group else _value(value, text), comment, _note(key, lines)), *below]
        # Hydra has many settings. Only the settings with a comment are shown to users.
        yield from (part for part in found if (part.comment and part.value) or not path.startswith("hydra"))


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and not node.flow_style


def _value(node: Any, text: str) -> str:
    """Return a value as YAML text on one line.

    The text is copied from the file, unless the value is a block mapping.
    """
    if _is_block(node):
        return yaml.safe_dump(_plain(node), default_flow_style=True, sort_keys=False, width=10**6).strip()
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return " ".join(node.value.split())
    return " ".join(text[node.start_mark.index : node.end_mark.index].split())


def _comment_of(key: yaml.Node, value: yaml.Node, lines: Sequence[str]) -> str:
    """Return the comment on the line of a key, including continuation lines, as one text."""
    is_long = _is_block(value) or (isinstance(value, yaml.ScalarNode) and value.style in ("|", ">"))
    mark = key.end_mark if is_long else value.end_mark
    beside = re.match(r"[:\s|>-]*#(.*)", lines[mark.line][mark.column :])
    if beside is None:
        return ""
    words = [beside[1].strip()]
    for line in lines[mark.line + 1 :]:
        text = line.lstrip()
        if not text.startswith("#") or len(line) - len(text) < CONTINUATION_COLUMN:
            break
        words.append(text[1:].strip())
    return " ".join(words)


def _note(key: yaml.Node, lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines of the comment block above a key. If the block describes the whole file, return no lines."""
    block: list[str] = []
    indent = key.start_mark.column
    for number in range(key.start_mark.line - 1, -1, -1):
        line, text = lines[number], lines[number].strip()
        is_comment = text.startswith("#") and line.index("#") == indent < CONTINUATION_COLUMN
        if is_comment:
            block.insert(0, line[indent + 1 :].removeprefix(" "))
        elif block or not text:
            break
    starts_file = bool(block) and number == 0 and lines[0].startswith("#")
    return () if starts_file else tuple(block)
