"""The keys of all commands: those of classes of settings, and of the choices in conf/, read without Hydra."""

from __future__ import annotations

import ast
import copy
import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typing_extensions import is_typeddict

from seqclf.config.build import locate
from seqclf.settings.base import KeysOf, Options

PACKAGED = Path(__file__).parents[1] / "conf"
CONF = PACKAGED if PACKAGED.is_dir() else Path(__file__).parents[2] / "conf"

CHOSEN_NAMES = ("fields", "usual")  # names of mappings whose keys are chosen by users; such a mapping is one value
GLOBAL_GROUP = "experiment"  # config group whose files may set keys of other groups
# Classes of settings, by the name of their command, and for Hydra of their node.
SETTINGS = {"train": "seqclf.settings.train_settings.TrainConfig"} | {
    name: f"seqclf.settings.command_settings.{name.title()}Config"
    for name in ("retrain", "search", "describe", "evaluate", "compare", "predict", "export", "doctor")
}
LIGHT = ("predict", "evaluate", "compare", "doctor")  # commands without Hydra, conf/ and PyTorch
# Nodes that files of conf/ name in their defaults list, with the keys of one class of settings each.
LOGGERS = {f"keys_of_{name.lower()}": f"seqclf.settings.train_settings.{name}Options" for name in ("Wandb", "Mlflow")}
NODES = {f"keys_of_{name}": path for name, path in SETTINGS.items()} | LOGGERS
REQUIRED = "???"  # default of a key that the user must set, as Hydra has it


class Command:
    """The config of a command: its keys, and its config groups with their default choices.

    `folders`: config folders, conf/ first, then those of Hydra's option `--config-dir`. `files`: those of conf/ that
    Hydra reads for it. `nodes`: classes of settings whose keys it has.

    >>> train = Command("train")
    >>> train.groups["model"], train.choices("optimizer")
    ('auto', ['adamw', 'own', 'sgd'])
    """

    @classmethod
    def typed(cls, name: str, arguments: Sequence[str]) -> Command:
        """Return the config of the command `name`, whose arguments may contain `--config-dir`."""
        values = re.findall(r"^(?:--config-dir|-cd)[=\n](.*)$", "\n".join(arguments), re.MULTILINE)
        return cls(name, (CONF, *(Path(folder) for folder in values if Path(folder).is_dir())))

    def __init__(self, name: str, folders: Sequence[Path] = (CONF,)):
        self.name = name
        self.settings: Any = locate(SETTINGS[name])
        self.folders = tuple(folders)
        self.uses_hydra = name not in LIGHT
        path = folders[0] / f"{name}.yaml"
        self.files = _with_parents(path) if path.is_file() else []  # the runtime of bundles has no conf/
        self.nodes = [node for file in self.files for node in nodes_of(file)] or [self.settings]
        self.groups = {group: choice for file in self.files for group, choice in _groups_of(file).items()}

    @property
    def summary(self) -> str:
        """The first line of the docstring of its settings."""
        return self.settings.__doc__.partition("\n")[0]

    @cached_property
    def _own(self) -> dict[str, Any]:
        """Dict dotted key → default, with the keys that the command has with any choice, also in groups."""
        return _merged(*(flat_keys(nested_defaults(node)) for node in self.nodes), *map(_keys_of, self.files))

    def choices(self, group: str) -> list[str]:
        """Return the names of all choices of a config group. The default choice comes first in the list."""
        names = {path.stem for folder in self.folders for path in (folder / group).glob("*.yaml")}
        return sorted(names, key=lambda name: (name != self.groups.get(group), name))

    def file(self, group: str, choice: str) -> Path:
        """Return the YAML file of a choice. If several config folders have one, the last folder counts."""
        paths = (folder / group / f"{choice}.yaml" for folder in reversed(self.folders))
        return next(path for path in paths if path.is_file())

    def choice_keys(self, group: str, choice: str) -> dict[str, Any]:
        """Return the keys that a choice sets, with inherited ones, as a dict dotted key → value."""
        file = self.file(group, choice)
        if group == GLOBAL_GROUP:
            return _keys_of(file)
        inherited = [self.choice_keys(group, name) for name in parents_of(file) if name in self.choices(group)]
        parts = [*(flat_keys(nested_defaults(node)) for node in nodes_of(file)), _keys_of(file)]
        return _merged(*inherited, *({f"{group}.{path}": value for path, value in part.items()} for part in parts))

    def defaults(self, chosen: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the keys of the command, with those of its groups, as a dict dotted key → default.

        `chosen`: dict config group → choice, for choices other than the default.
        """
        choices = {**self.groups, **(chosen or {})}
        names = [name for name in choices if name != GLOBAL_GROUP and choices[name] in self.choices(name)]
        return _merged(self._own, *(self.choice_keys(name, choices[name]) for name in names))

    def experiment_keys(self, chosen: Mapping[str, str]) -> dict[str, Any]:
        """Return the keys that the chosen experiment sets. `chosen`: dict config group → choice."""
        return self.choice_keys(GLOBAL_GROUP, chosen[GLOBAL_GROUP]) if GLOBAL_GROUP in chosen else {}

    def variables(self, chosen: Mapping[str, str]) -> list[str]:
        """Return the variables of the `chosen` experiment: its top-level keys, which the user must set.

        >>> Command("train").variables({"experiment": "trec"})
        ['path']
        """
        return [key for key, value in self.experiment_keys(chosen).items() if value == REQUIRED and "." not in key]

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
        made = _groups_of(self.file(GLOBAL_GROUP, typed[GLOBAL_GROUP]))
        return {group: choice for group, choice in made.items() if group in self.groups} | typed

    def choice_with(self, path: str) -> tuple[str, str] | None:
        """Return the (group, choice) of a group that has the key `path`, such as `loss.gamma`, or None.

        It is the default, or else a choice that others inherit from, or else the first one.
        """
        group = path.partition(".")[0]
        if group not in self.groups or group == GLOBAL_GROUP:
            return None
        choices = self.choices(group)
        names = [name for name in choices if path in self.choice_keys(group, name)]
        bases = {parent for name in choices for parent in parents_of(self.file(group, name))}
        return (group, min(names, key=lambda name: (name != choices[0], name not in bases))) if names else None


def nested_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict dotted key → value as nested dicts.

    >>> nested_keys({"seed": 0, "data.split.test": 0.2})
    {'seed': 0, 'data': {'split': {'test': 0.2}}}
    """
    nested: dict[str, Any] = {}
    for path, value in keys.items():
        *above, name = path.split(".")
        block = nested
        for part in above:
            block = block.setdefault(part, {})
        block[name] = value
    return nested


def default_settings(name: str, choice: str | None = None) -> Any:
    """Return a new copy of the defaults of a block such as `model`, or of a key of `train`, without Hydra.

    `choice`: choice of the block, None for the default one.

    >>> default_settings("seed"), default_settings("model", "gru")["cell"]
    (0, 'gru')
    """
    return copy.deepcopy(nested_keys(_train_defaults(name, choice))[name])


@cache
def _train_defaults(group: str, choice: str | None) -> dict[str, Any]:
    return Command("train").defaults({} if choice is None else {group: choice})


def _entries(path: Path) -> list[str]:
    return [entry for entry in _read(path).get("defaults", ()) if isinstance(entry, str) and entry != "_self_"]


def parents_of(path: Path) -> list[str]:
    """Return the names of the files that a YAML file extends, from Hydra's defaults list."""
    return [entry for entry in _entries(path) if entry not in NODES]


def nodes_of(path: Path) -> list[Any]:
    """Return the classes of settings whose keys a YAML file takes, from Hydra's defaults list."""
    return [locate(NODES[entry]) for entry in _entries(path) if entry in NODES]


def _with_parents(path: Path) -> list[Path]:
    return [*(file for name in parents_of(path) for file in _with_parents(path.with_name(f"{name}.yaml"))), path]


def _groups_of(path: Path) -> dict[str, str]:
    """Return the choices in Hydra's defaults list of a file, as a dict config group → choice."""
    pairs = [pair for entry in _read(path).get("defaults", ()) if isinstance(entry, dict) for pair in entry.items()]
    # Hydra writes `override /group: choice` if the file changes a choice of a file that it extends.
    return {re.sub("^(override )?/?", "", key): str(name or "null") for key, name in pairs if "hydra/" not in key}


def _keys_of(path: Path) -> dict[str, Any]:
    content = _read(path)
    keys = {name: value for name, value in content.items() if name not in ("defaults", "hydra")}
    folder = content.get("hydra", {}).get("run", {})
    return flat_keys(keys) | {f"hydra.run.{name}": value for name, value in folder.items()}


def flat_keys(settings: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested settings as a dict dotted key → value."""
    keys: dict[str, Any] = {}
    for name, value in settings.items():
        is_block = isinstance(value, dict) and value and name not in CHOSEN_NAMES
        keys |= flat_keys(value, f"{above}{name}.") if is_block else {f"{above}{name}": value}
    return keys


def _merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge dicts dotted key → value. A later value takes the place of an earlier one, and of what is nested in it."""
    keys: dict[str, Any] = {}
    for part in parts:
        keys = {path: value for path, value in keys.items() if not any(_overlap(path, key) for key in part)}
        keys |= part
    return keys


def _overlap(path: str, other: str) -> bool:
    return path.startswith(f"{other}.") or other.startswith(f"{path}.")


@cache
def _read(path: Path) -> dict[str, Any]:
    content = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    return content or {}


def block_of(field: FieldInfo) -> KeysOf | None:
    """Return the block of keys below a key, or None."""
    if mark := next((part for part in field.metadata if isinstance(part, KeysOf)), None):
        return mark
    kind = field.annotation
    return KeysOf(kind) if isinstance(kind, type) and issubclass(kind, Options) else None


def nested_defaults(model: type[BaseModel], defaults: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Return the defaults of the keys below `model`, of which it inherits none, as nested dicts of plain values.

    Keys that a choice of a config group sets as a whole, such as `loss`, are left out. `defaults`: other ones.

    >>> from seqclf.settings.command_settings import DoctorConfig
    >>> nested_defaults(DoctorConfig)
    {'bundle': '???', 'device': 'auto', 'threads': None}
    """
    found: dict[str, Any] = {}
    for name in inspect.get_annotations(model):  # without those of its bases
        if (field := model.model_fields.get(name)) is None:
            continue
        block = block_of(field)
        if name in defaults:
            found[name] = defaults[name]
        elif block is not None:
            found[name] = nested_defaults(block.model, block.defaults)
        elif field.default_factory is not None:
            found[name] = field.get_default(call_default_factory=True)
        elif not field.is_required():
            found[name] = field.default or None if isinstance(field.default, tuple) else field.default
        elif not is_typeddict(field.annotation) and get_origin(field.annotation) not in (Union, UnionType):
            found[name] = REQUIRED
    return found


@cache
def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return a dict key → description, for the keys that `model` does not inherit: the docstrings below its fields."""
    tree = ast.parse(inspect.getsource(sys.modules[model.__module__]))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == model.__name__)
    found = {}
    for field, text in pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            value = text.value if isinstance(text, ast.Expr) else None
            found[field.target.id] = inspect.cleandoc(str(value.value)) if isinstance(value, ast.Constant) else ""
    return found
