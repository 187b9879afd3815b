"""Write docs/configuration.md, every config key with its default and comment, from the comments in conf/.

python scripts/configuration_page.py
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from seqclf.config.documentation import GLOBAL_GROUP, Command, Key, command_names
from seqclf.config.help_text import reflowed

PAGE = Path(__file__).parents[1] / "docs" / "configuration.md"
INTRODUCTION = """# Configuration

Every key of every command, with its default. This page is generated from the comments in `conf/` by
`python scripts/configuration_page.py`. In the terminal, `seqclf train --help data` prints the same.

Set a key as `KEY=VALUE`, and choose from a group as `GROUP=CHOICE`: `seqclf train model=gru model.layers=2`. Quote
values with braces, brackets or spaces for the shell: `'data.fields={items: category}'`. A key that no file lists is
added with a plus: `+trainer.overfit_batches=2`. `seqclf train -m seed=0,1,2` runs once for each value.
"""
COMMANDS = ("train", "describe", "walkthrough", "search", "bench", "export", "predict", "evaluate")


def page() -> str:
    """Return the page as Markdown."""
    train = Command("train")
    names = [*COMMANDS, *(name for name in command_names() if name not in COMMANDS)]
    lines = [INTRODUCTION, "## Commands", ""]
    for name in names:
        lines += _command(Command(name), train)
    lines += ["## Groups", ""]
    for group in train.groups:
        lines += _group(train, group)
    return "\n".join(lines).rstrip() + "\n"


def _command(command: Command, train: Command) -> Iterator[str]:
    yield f"### seqclf {command.name}"
    yield ""
    yield command.summary
    yield ""
    yield "```bash"
    yield from command.examples.splitlines()
    yield "```"
    yield ""
    if command.groups:
        shown = (f"[{group}](#{group})={choice}" for group, choice in command.groups.items() if choice != "null")
        yield f"Groups, with their defaults: {', '.join(shown)}."
        yield ""
    inherited = {key.path: key.value for key in train.own_keys}
    keys = [key for key in command.own_keys if command.name == "train" or inherited.get(key.path) != key.value]
    if len(keys) < len(command.own_keys):
        yield "Keys beside those of `seqclf train`, and other defaults:"
        yield ""
    yield from _keys(keys)


def _group(command: Command, group: str) -> Iterator[str]:
    usual = command.groups[group]
    yield f"### {group}"
    yield ""
    base = _base(command, group)
    keys = {key.path: key for key in command.choice(group, base).keys}
    for name in sorted(command.choices(group), key=lambda name: name != base):
        choice = command.choice(group, name)
        mark = " (default)" if name == usual else ""
        paragraphs = list(reflowed(choice.description))
        yield f"**`{group}={name}`**{mark}: {_text(paragraphs[0][1]) if paragraphs else ''}"
        yield ""
        yield from _items(paragraphs[1:])
        if group == GLOBAL_GROUP or choice.name == choice.base:
            yield from _keys(choice.keys)
        else:
            changed = [
                replace(key, note=())
                for key in choice.keys
                if key.path not in keys or keys[key.path].value != key.value
            ]
            yield f"As `{group}={choice.base}`, except:"
            yield ""
            yield from _keys(changed)


def _base(command: Command, group: str) -> str:
    usual = command.groups[group]
    names = command.choices(group)
    return command.choice(group, usual if usual in names else names[0]).base


def _keys(keys: Iterable[Key]) -> Iterator[str]:
    """Yield tables of keys, with a new one after each note."""
    note: tuple[str, ...] | None = None
    for key in keys:
        if key.note != note:
            if note is not None:
                yield ""
            yield from _items(list(reflowed(key.note)))
            yield "| key | default | meaning |"
            yield "|---|---|---|"
        note = key.note
        value = "" if key.value is None else "required" if key.is_required else f"`{_cell(key.value)}`"
        yield f"| `{key.path}` | {value} | {_text(key.comment)} |"
    if note is not None:
        yield ""


def _items(paragraphs: Sequence[tuple[int, str]]) -> Iterator[str]:
    for position, (level, text) in enumerate(paragraphs):
        yield f"- {_text(text)}" if level else _text(text)
        if not (level and position + 1 < len(paragraphs) and paragraphs[position + 1][0]):
            yield ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _text(text: str) -> str:
    """Return a comment as Markdown: code as code, and nothing that Markdown would read as markup."""
    parts = re.split(r"(`[^`]*`)", _cell(text))
    escaped = (part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)
    return "".join(escaped)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
