"""Advice for keys that a command does not have: the key that was meant, as an argument that can be typed.

A name is looked up in this order: a key of another choice of the group, a misspelled key of the same group, a key of
that name in another group, the name that other libraries use for it, and a misspelled key of any group.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePath

from seqclf.config.documentation import GLOBAL_GROUP, Command, Key
from seqclf.config.key_aliases import BY_COMMAND, BY_HABIT, NOT_SET, as_boolean
from seqclf.config.override_text import argument, shell_word

NEAR = 0.8  # least similarity of a misspelled name
NEAR_CHOICE = 0.7  # of a choice of a group, of which there are few
FIELDS = "data.fields."
VERY_NEAR = 0.85  # of a key that conf/ does not list
OF_FILES = ("data.train", "data.test", "data.validation")  # keys that need data=files
VALUES = {  # values that other names come with → values of the key
    ("device", "cuda"): "gpu",
    ("cuda", "true"): "gpu",
    ("cuda", "false"): "cpu",
    ("cuda", "1"): "gpu",
    ("fp16", "true"): "16-mixed",
    ("bf16", "true"): "bf16-mixed",
    ("amp", "true"): "16-mixed",
    ("early_stopping", "false"): "null",
}


def advise_key(
    command: Command, typed: str, value: str | None, chosen: Mapping[str, str], declared: Collection[str] = ()
) -> str:
    """Return advice for a key that the command does not have, or "" where nothing is similar.

    `value`: as typed, None where none was. `chosen`: choice by group. `declared`: keys that may be added by a plus.

    >>> advise_key(Command("train"), "lr", "0.1", {})
    'write optimizer.lr=0.1'
    >>> advise_key(Command("train"), "optimizer.momentum", "0.8", {})
    'write optimizer=sgd optimizer.momentum=0.8'
    >>> advise_key(Command("train"), "model.layers", "2", {"model": "tree_lstm"})
    'model=tree_lstm has no layers, so remove it (model=lstm has layers)'
    """
    typed = typed.lstrip("+~")
    if note := NOT_SET.get(command.name, {}).get(typed):
        return note
    if typed.startswith(FIELDS):
        mapping = _fields(typed.removeprefix(FIELDS), value)
        return f"fields are one mapping; write {set_mapping('data.fields', mapping, _has_fields(command, chosen))}"
    keys = {key.path: key for key in command.all_keys(dict(chosen)) if key.value is not None}
    above, _, name = typed.rpartition(".")
    if name != typed and name in experiment_variables(command, chosen):
        return f"write {_argument(name, value)}"
    if other := _of_other_choice(command, typed):
        group, _, below = typed.partition(".")
        if group in chosen:  # another choice would undo what the user has decided
            return f"{group}={chosen[group]} has no {below}, so remove it ({other} has {below})"
        return f"write {shell_word(other)} {_argument(typed, value)}"
    if typed in declared:
        return f"write {_argument(f'+{typed}', value)}"
    if candidates := _meant(command, typed, keys):
        files = "" if {**command.groups, **chosen}.get("data") == "files" else "data=files "
        written = (_write(keys[path], name, value, candidates, files) for path in candidates)
        return f"write {', or '.join(written)}"
    if added := difflib.get_close_matches(typed, declared, 1, VERY_NEAR):
        return f"write {_argument(f'+{added[0]}', value)}"
    if near := _near(typed, [*command.groups, *keys]):
        return f"write {_argument(near, value)}"
    blocks = {key.path for key in command.all_keys(dict(chosen)) if key.value is None}
    has_keys = above in command.groups or above in blocks
    return f"to add a new key, write {_argument(f'+{typed}', value)}" if has_keys else ""


def advise_choice(command: Command, group: str, value: str) -> str:
    """Return advice for a choice that a group does not have.

    >>> advise_choice(Command("train"), "data", "my.csv")
    'write data=files data.train=my.csv data.label=COLUMN'
    """
    if group == "data" and ("." in value or "/" in value):
        key = "data.test" if command.name == "evaluate" else "data.train"
        return f"write data=files {argument(key, value)} data.label=COLUMN"
    if "/" in value or value.endswith((".yaml", ".yml")):
        stem = PurePath(value).stem
        return f"for FOLDER/{group}/{stem}.yaml, write --config-dir=FOLDER {argument(group, stem)}"
    choices = command.choices(group)
    name = value.lower().replace("-", "_")
    same = [choice for choice in choices if name in (choice, _initials(choice))]
    if near := same or difflib.get_close_matches(name, choices, 1, NEAR_CHOICE):
        return f"write {group}={near[0]}"
    keys = {key.path for key in command.all_keys()}
    return f"write {group}.{value}=VALUE" if f"{group}.{value}" in keys else ""


def experiment_variables(command: Command, chosen: Mapping[str, str]) -> dict[str, str]:
    """Return the keys that the chosen experiment needs, with what its file says about them.

    >>> experiment_variables(Command("train"), {"experiment": "trec"})
    {'path': 'folder that holds the files'}
    """
    keys = command.experiment_keys(chosen)
    return {key.path: key.comment for key in keys if key.is_required and "." not in key.path}


def advise_topic(command: Command, topic: str) -> str:
    """Return advice for a topic of `--help` that the command does not have."""
    name, _, value = topic.partition("=")
    if name in command.groups:
        near = difflib.get_close_matches(value.lower(), command.choices(name), 1)
        listed = f"{name} has {', '.join(command.choices(name))}"
        return f"did you mean '--help {name}={near[0]}'? {listed}" if near else listed
    keys = {key.path: key for key in command.all_keys()}
    meant = [*_meant(command, name, keys), *filter(None, [_near(name, [*command.groups, *keys])])]
    return f"did you mean '--help {meant[0]}'?" if meant else "--help lists groups and keys"


def _initials(name: str) -> str:
    parts = name.split("_")
    return "".join(part[0] for part in parts) if len(parts) > 1 else name


def set_mapping(key: str, value: str, is_set: bool) -> str:
    """Return the arguments that set a mapping. `is_set`: it has a value, which Hydra would merge with the new one.

    >>> print(set_mapping("data.fields", "{x: number}", True))
    '~data.fields' '+data.fields={x: number}'
    """
    return f"'~{key}' {shell_word(f'+{key}={value}')}" if is_set else shell_word(f"{key}={value}")


def _fields(path: str, value: str | None) -> str:
    """Return the mapping of fields for `data.fields.PATH=value`, as Hydra adds no keys to a null."""
    name, _, option = path.partition(".")
    if option in ("", "kind"):
        is_kind = value is not None and re.fullmatch(r"[a-z]+|\{.*\}" if option == "" else "[a-z]+", value)
        return f"{{{name}: {value if is_kind else 'KIND'}}}"
    return f"{{{name}: {{kind: KIND, {option}: {value or 'VALUE'}}}}}"


def _has_fields(command: Command, chosen: Mapping[str, str]) -> bool:
    """True if the chosen data, or the experiment, have fields."""
    keys = [*command.all_keys(dict(chosen)), *command.experiment_keys(chosen)]
    values = [key.value for key in keys if key.path == FIELDS.rstrip(".")]
    return bool(values) and values[-1] != "null"


def _meant(command: Command, typed: str, keys: Mapping[str, Key]) -> list[str]:
    """Return the keys that a typed one stands for: misspelled in its group, of its name elsewhere, or by habit."""
    above, _, name = typed.rpartition(".")
    name = name.lower().replace("-", "_")
    siblings = {path.rpartition(".")[2]: path for path in keys if path.rpartition(".")[0] == above}
    if above and (near := difflib.get_close_matches(name, siblings, 1, NEAR)):
        return [siblings[near[0]]]
    special = BY_COMMAND.get(command.name, {}).get(name)
    same_name = [path for path in keys if path.rpartition(".")[2] == name and path != typed]
    # A short path is a setting that many need; a deep one is a detail of the same name.
    depth = min((path.count(".") for path in same_name), default=0)
    same_name = [path for path in same_name if path.count(".") == depth]
    habitual = [path for path in BY_HABIT.get(name, []) if path in keys]
    if special and special in keys and not above:
        return [special]
    if same_name and not (habitual and len(same_name) > 1):
        return same_name[:2]
    # Of several keys the first is the closest, except that a batch has two sizes here.
    return habitual[:2] if habitual[:1] == ["batching.max_sequences"] else habitual[:1]


def _of_other_choice(command: Command, typed: str) -> str | None:
    """Return `group=choice` of the first choice that has a key which the chosen one lacks."""
    group = typed.partition(".")[0]
    if group not in command.groups or group == GLOBAL_GROUP:
        return None
    names = [
        name for name in command.choices(group) if any(key.path == typed for key in command.choice(group, name).keys)
    ]
    return f"{group}={names[0]}" if names else None


def _write(key: Key, name: str, value: str | None, candidates: list[str], files: str) -> str:
    """Return the argument to type for a key, with what the key is where there are several."""
    if key.value in ("true", "false") and value is not None:
        value = as_boolean(value) or value
    value = VALUES.get((name, (value or "").lower()), value)
    if len(candidates) == 1:
        return (files if key.path in OF_FILES else "") + _argument(key.path, value)
    meaning = key.comment.partition(";")[0].partition(",")[0]
    return f"{_argument(key.path, value if key.path == candidates[0] else None)} ({meaning})"


def _argument(key: str, value: str | None) -> str:
    """Return an argument with the value as it was typed. It is Hydra's grammar already."""
    return f"{key}=VALUE" if value is None else shell_word(f"{key}={value}")


def _near(typed: str, known: Iterable[str]) -> str | None:
    """Return the known path nearest to a typed one, of those with a similar last name.

    The group alone makes paths similar: `optimizer.eps` is not meant as `optimizer.betas`.
    """

    def likeness(path: str, text: str) -> float:
        return difflib.SequenceMatcher(None, path, text).ratio()

    name = typed.rpartition(".")[2].lower()
    similar = [path for path in known if likeness(path.rpartition(".")[2], name) >= NEAR]
    return max(similar, key=lambda path: likeness(path, typed), default=None)
