"""The keys of a choice of a config group, with those of the tree of settings, without composing a config."""

from typing import Any

from seqclf.config.documentation import Command, nested_keys


def settings_of(group: str, choice: str) -> dict[str, Any]:
    """A new copy of the block of a choice, such as `settings_of("model", "lstm")`."""
    return nested_keys(Command("train").defaults({group: choice}))[group]
