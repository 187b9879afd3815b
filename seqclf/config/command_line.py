"""Command lines, read without Hydra for help texts and completion."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path

from seqclf.config.documentation import CONF, GLOBAL_GROUP, Command


def typed_command(name: str, arguments: Sequence[str]) -> Command:
    """Return the config of a command, with the files of `--config-dir`."""
    folders = [folder for folder in option_values(arguments, ("--config-dir", "-cd")) if folder.is_dir()]
    return Command(name, (CONF, *folders))


def chosen_groups(command: Command, arguments: Sequence[str]) -> dict[str, str]:
    """Return choice by group, of the arguments that choose one, and of the experiment.

    >>> chosen_groups(Command("train"), ["model=gru", "data.train=x", "data=nonsense"])
    {'model': 'gru'}
    >>> chosen_groups(Command("train"), ["model=gru", "experiment=listops"])
    {'data': 'listops_trees', 'model': 'gru', 'experiment': 'listops'}
    """
    pairs = [text.lstrip("+").partition("=")[::2] for text in arguments]
    typed = {group: name for group, name in pairs if group in command.groups and name in command.choices(group)}
    of_experiment = command.experiment_groups(typed[GLOBAL_GROUP]) if GLOBAL_GROUP in typed else {}
    return {**{group: name for group, name in of_experiment.items() if group in command.groups}, **typed}


def option_values(arguments: Sequence[str], names: Collection[str]) -> list[Path]:
    """Return the values of an option, as `--name VALUE` or `--name=VALUE`.

    >>> [str(path) for path in option_values(["--config-dir=a", "-cd", "b"], ("--config-dir", "-cd"))]
    ['a', 'b']
    """
    values = [text.partition("=")[2] for text in arguments if text.partition("=")[0] in names and "=" in text]
    values += [value for name, value in pairwise(arguments) if name in names]
    return [Path(value) for value in values]
