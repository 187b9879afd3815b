"""The keys of conf/ with their defaults and comments, read from the YAML files themselves.

A comment on the line of a key explains that key; lines that hold only a comment, from column 20 on, continue it. A
comment block at the start of a file describes the file. A block anywhere else is a note on the keys below it, up to the
next blank line. A mapping in braces, or of names that users choose, is one value.

Reading them takes neither Hydra nor OmegaConf, so that help texts and shell completion are fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

PACKAGED = Path(__file__).parents[1] / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

CONTINUATION_COLUMN = 20  # from here on, a line that is only a comment continues the one above
CHOSEN_NAMES = ("fields", "usual")  # blocks whose keys users choose
GLOBAL_GROUP = "experiment"  # its files set keys of any group
SELF = "_self_"


@dataclass(frozen=True)
class Key:
    """A key of a config: its dotted path, its default as YAML text, and what its file says about it.

    A block of keys, such as `data.split`, has no value. `note`: the lines of the comment block above the key, with
    their indentation.
    """

    path: str
    value: str | None
    comment: str
    note: tuple[str, ...] = ()

    @property
    def is_required(self) -> bool:
        """True where a user must set the key."""
        return self.value == "???"


@dataclass(frozen=True)
class ConfigFile:
    """A YAML file of a config folder. `defaults`: pairs of group and choice; without a group, a file of this folder."""

    description: tuple[str, ...]
    defaults: tuple[tuple[str | None, str], ...]
    keys: tuple[Key, ...]
    help: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """A file of a group, `model=gru`. `base`: the choice that it extends, or itself. `keys`: its parents' too."""

    group: str
    name: str
    base: str
    description: tuple[str, ...]
    keys: tuple[Key, ...]


class Command:
    """The config of a command: its help, its groups with their usual choices, and its keys.

    `folders`: config folders, of which a later one adds files, as Hydra's `--config-dir` does.

    >>> train = Command("train")
    >>> train.groups["model"], train.key("batching.max_tokens").value
    ('lstm', '16384')
    """

    def __init__(self, name: str, folders: Sequence[Path] = (CONF,)):
        self.name = name
        self.folders = tuple(folders)
        self.files = [read_file(folders[0] / f"{name}.yaml")]
        parents = [choice for group, choice in self.files[0].defaults if group is None and choice != SELF]
        self.files = [*(read_file(folders[0] / f"{parent}.yaml") for parent in parents), *self.files]
        self.summary = self.files[-1].help.get("header", "")
        self.examples = self.files[-1].help.get("template", "")
        self.groups = {group: choice for file in self.files for group, choice in file.defaults if group is not None}

    @cached_property
    def own_keys(self) -> tuple[Key, ...]:
        """The keys of the command outside of its groups."""
        keys = merged(file.keys for file in self.files)
        return tuple(key for key in keys if _first(key.path) not in self.groups)

    def choices(self, group: str) -> list[str]:
        """Return the names of the choices of a group, the usual one first."""
        names = {path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")}
        return sorted(names, key=lambda name: (name != self.groups.get(group), name))

    def choice(self, group: str, name: str) -> Choice:
        """Return a choice with the keys that it sets or inherits, as the command changes them."""
        file = read_file(_path(self.folders, group, name))
        parents = [choice for above, choice in file.defaults if above is None and choice != SELF]
        inherited = [self.choice(group, parent) for parent in parents if parent in self.choices(group)]
        if group == GLOBAL_GROUP:  # its keys are those of groups, whose files explain them
            known = {key.path: key for key in [*self._keys_of_all_groups(), *self.all_keys()]}
            keys = [replace(key, comment=key.comment or _comment(known, key.path)) for key in file.keys]
            return Choice(group, name, name, file.description, tuple(keys))
        here = [replace(key, path=f"{group}.{key.path}") for key in file.keys]
        changed = [key for part in self.files for key in part.keys if _first(key.path) == group]
        keys = merged([*(parent.keys for parent in inherited), here, changed])
        return Choice(group, name, inherited[0].base if inherited else name, file.description, tuple(keys))

    def _keys_of_all_groups(self) -> Iterator[Key]:
        """Yield the keys of all choices, also of groups that the command does not have."""
        for group in sorted(path.name for path in self.folders[0].iterdir() if path.is_dir()):
            for name in self.choices(group) if group != GLOBAL_GROUP else ():
                yield from self.choice(group, name).keys

    def all_keys(self, chosen: dict[str, str] | None = None) -> list[Key]:
        """Return the keys of the command and of its groups. `chosen`: other choices than the usual ones, by group."""
        groups = {**self.groups, **(chosen or {})}
        of_groups = [
            self.choice(group, name).keys
            for group, name in groups.items()
            if group != GLOBAL_GROUP and name in self.choices(group)
        ]
        return [*self.own_keys, *(key for keys in of_groups for key in keys)]

    def experiment_keys(self, chosen: Mapping[str, str]) -> tuple[Key, ...]:
        """Return the keys that the chosen experiment sets. `chosen`: choice by group."""
        return self.choice(GLOBAL_GROUP, chosen[GLOBAL_GROUP]).keys if GLOBAL_GROUP in chosen else ()

    def experiment_groups(self, name: str) -> dict[str, str]:
        """Return the choices, by group, that an experiment makes in its defaults list.

        >>> Command("train").experiment_groups("listops")
        {'data': 'listops_trees', 'model': 'tree_lstm'}
        """
        file = read_file(_path(self.folders, GLOBAL_GROUP, name))
        return {group.removeprefix("/"): choice for group, choice in file.defaults if group is not None}

    def key(self, path: str, chosen: dict[str, str] | None = None) -> Key:
        """Return the key at a dotted path. Raises KeyError."""
        return {key.path: key for key in self.all_keys(chosen)}[path]


def command_names(folder: Path = CONF) -> list[str]:
    """Return the names of the commands, which have a file each.

    >>> "train" in command_names()
    True
    """
    return sorted(path.stem for path in folder.glob("*.yaml"))


def merged(parts: Iterable[Iterable[Key]]) -> list[Key]:
    """Return keys of several files in order of their first appearance, with the value and comment that come last."""
    keys: dict[str, Key] = {}
    for part in parts:
        for key in part:
            before = keys.get(key.path)
            if before is not None:
                key = replace(key, comment=key.comment or before.comment, note=key.note or before.note)
            if key.value is not None:  # a value in place of a block
                keys = {path: kept for path, kept in keys.items() if not path.startswith(f"{key.path}.")}
            if key.path in keys:
                keys[key.path] = key
            else:
                _insert(keys, key)
    return list(keys.values())


def _insert(keys: dict[str, Key], key: Key) -> None:
    """Add a key after those of its block, at the end where its block is new."""
    block = key.path.rpartition(".")[0]
    last = max((index for index, path in enumerate(keys) if f"{path}.".startswith(f"{block}.")), default=len(keys) - 1)
    after = list(keys.items())[last + 1 :] if block else []
    for path, _ in after:
        del keys[path]
    keys[key.path] = key
    keys.update(after)


@cache
def read_file(path: Path) -> ConfigFile:
    """Read one YAML file with its comments."""
    text = path.read_text(encoding="utf-8")
    lines = [*text.splitlines(), ""]  # a block at the end of the file ends on a line behind the last one
    node = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    entries = {key.value: value for key, value in node.value} if node is not None else {}
    return ConfigFile(
        description=_description(lines),
        defaults=tuple(_defaults(entries["defaults"])) if "defaults" in entries else (),
        keys=tuple(_keys(node, text, lines, "")) if node is not None else (),
        help=_help(entries),
    )


def _path(folders: Sequence[Path], group: str, name: str) -> Path:
    """Return the file of a choice, of the last folder that has it."""
    paths = (folder / group / f"{name}.yaml" for folder in reversed(folders))
    return next(path for path in paths if path.is_file())


def _first(path: str) -> str:
    return path.partition(".")[0]


def _comment(known: dict[str, Key], path: str) -> str:
    return known[path].comment if path in known else ""


def _defaults(node: yaml.Node) -> Iterator[tuple[str | None, str]]:
    """Yield group and choice of the entries of a defaults list, without Hydra's groups.

    A file that extends another one may override its choices.
    """
    for entry in yaml.safe_load(yaml.serialize(node)):
        if isinstance(entry, str):
            yield None, entry
            continue
        ((group, choice),) = entry.items()
        group = group.removeprefix("override ")
        if not group.startswith("hydra/"):
            yield group, "null" if choice is None else str(choice)


def _help(entries: dict[str, yaml.Node]) -> dict[str, str]:
    """Return the block hydra.help of a command's file."""
    block = yaml.safe_load(yaml.serialize(entries["hydra"])) if "hydra" in entries else {}
    return dict(block.get("help", {}))


def _description(lines: Sequence[str]) -> tuple[str, ...]:
    block = []
    for line in lines:
        if not line.startswith("#"):
            break
        if not line.startswith("# @package"):
            block.append(line[1:].removeprefix(" "))
    return tuple(block)


def _keys(node: Any, text: str, lines: Sequence[str], above: str) -> Iterator[Key]:
    """Yield the keys of a mapping, and of the mappings in it."""
    for key, value in node.value:
        path = f"{above}{key.value}"
        if path == "defaults":
            continue
        comment = _comment_of(key, value, lines)
        is_group = _is_block(value) and key.value not in CHOSEN_NAMES
        below = list(_keys(value, text, lines, f"{path}.")) if is_group else []
        found = [Key(path, None if is_group else _value(value, text), comment, _note(key, lines)), *below]
        # Hydra's settings are many; those with a comment are for users.
        yield from (part for part in found if (part.comment and part.value) or not path.startswith("hydra"))


def _is_block(node: yaml.Node) -> bool:
    return isinstance(node, yaml.MappingNode) and not node.flow_style


def _value(node: Any, text: str) -> str:
    """Return a value as YAML text in one line, as the file has it where it can be."""
    if _is_block(node):
        return yaml.safe_dump(
            yaml.safe_load(yaml.serialize(node)), default_flow_style=True, sort_keys=False, width=10**6
        ).strip()
    if isinstance(node, yaml.ScalarNode) and node.style in ("|", ">"):
        return " ".join(node.value.split())
    return " ".join(text[node.start_mark.index : node.end_mark.index].split())


def _comment_of(key: yaml.Node, value: yaml.Node, lines: Sequence[str]) -> str:
    """Return the comment beside a key, with its continuation lines, as one text."""
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
    """Return the comment block of the paragraph that a key is in, none where that block describes the file."""
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
