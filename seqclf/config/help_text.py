"""Help texts of the commands, from the comments of conf/: groups, their choices, and keys with default and comment."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from seqclf.config.command_line import chosen_groups, typed_command
from seqclf.config.documentation import GLOBAL_GROUP, Command, Key
from seqclf.config.key_advice import advise_topic
from seqclf.errors import InputError

MAX_WIDTH = 100  # longer lines are hard to read
HELP = ("--help", "-h")
INDENT = "    "
FOOTER = """Options:
  --help TOPIC      explain a group, choice or key, as {topics}
  --cfg job         print the whole configuration
  -m, --multirun    run every combination of the values in KEY=A,B
  --config-dir DIR  add a folder of YAML files: DIR/GROUP/CHOICE.yaml
  --hydra-help      print all options"""


def help_text(command: Command, topics: Sequence[str], chosen: dict[str, str], width: int | None = None) -> str:
    """Return the help of a command, or of its `topics`: a group, a choice (`model=gru`), a block or a key.

    `chosen`: choice by group, other than the usual ones. Raises InputError for a topic that the command does not have.
    """
    columns = width or min(shutil.get_terminal_size().columns, MAX_WIDTH)
    if not topics:
        lines = list(_overview(command, chosen, columns))
    else:
        lines = [line for topic in topics for line in ["", *_topic(command, topic, chosen, columns)]]
    return "\n".join(line.rstrip() for line in lines).lstrip("\n")


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return True for the arguments of a command that asks for its help."""
    return any(text in HELP for text in arguments)


def print_help(name: str, arguments: Sequence[str]) -> None:
    """Print the help of a command. What follows `--help` are topics, what precedes it chooses from groups.

    Ends with exit code 2 for an unknown topic.
    """
    position = min(arguments.index(text) for text in HELP if text in arguments)
    command = typed_command(name, arguments)
    topics = [text for text in arguments[position + 1 :] if not text.startswith("-")]
    topics = topics or [text for text in arguments[:position] if "=" not in text and not text.startswith("-")]
    try:
        print(help_text(command, topics, chosen_groups(command, arguments[:position])), flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the reader, such as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reflowed(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the paragraphs of a comment block with their level: 0, or 1 for an item.

    A line that is indented by two starts an item, a deeper one continues it, and an empty one ends a paragraph.

    >>> list(reflowed(["Kinds of", "fields:", "  text: words.", "    Options.", "  tree"]))
    [(0, 'Kinds of fields:'), (1, 'text: words. Options.'), (1, 'tree')]
    """
    level, words = 0, list[str]()
    for line in [*lines, ""]:
        indent = len(line) - len(line.lstrip())
        continues = bool(line) and bool(words) and (indent > 2 if level else indent == 0)
        if words and not continues:
            yield level, " ".join(words)
            words = []
        if line:
            level = level if continues else min(indent // 2, 1)
            words.append(line.strip())


def _overview(command: Command, chosen: dict[str, str], width: int) -> Iterator[str]:
    yield command.summary
    yield ""
    yield from (f"  {line}" for line in command.examples.splitlines())
    if command.groups:
        yield ""
        yield "Groups (GROUP=CHOICE), with the default choice first:"
        for group in command.groups:
            names = [chosen[group]] if group in chosen else []
            names += [name for name in command.choices(group) if name not in names]
            yield from _wrapped(", ".join(names), width, f"  {group:12}", " " * 14)
    yield ""
    yield "Keys (KEY=VALUE), with their defaults:"
    yield from _keys(command.own_keys, width)
    yield ""
    topics = ", ".join(["model=gru or model.layers"] if "model" in command.groups else [_an_own_key(command)])
    yield from FOOTER.format(topics=topics).splitlines()


def _an_own_key(command: Command) -> str:
    return command.own_keys[0].path


def _topic(command: Command, topic: str, chosen: dict[str, str], width: int) -> Iterator[str]:
    name, _, value = topic.rstrip(".=").lstrip("+~").partition("=")
    if name in command.groups and not value:
        yield from _group(command, name, chosen.get(name), width)
    elif name in command.groups and value in command.choices(name):
        yield from _choice(command, name, value, width)
    else:
        keys = command.all_keys({**_choice_with_key(command, name), **chosen})
        exact = [key for key in keys if key.path == name or key.path.startswith(f"{name}.")]
        shown = exact or [key for key in keys if key.path.endswith(f".{name}")]
        if not shown or name in command.groups:
            raise InputError(f"--help {topic}", "no such group, choice or key", advise_topic(command, topic))
        yield from _keys(shown, width)


def _choice_with_key(command: Command, name: str) -> dict[str, str]:
    """Return the choice that has a key which the usual choice of its group lacks, such as `loss.gamma`."""
    group = name.partition(".")[0]
    if group in command.groups and not any(key.path == name for key in command.all_keys()):
        for choice in command.choices(group):
            if any(key.path == name for key in command.choice(group, choice).keys):
                return {group: choice}
    return {}


def _group(command: Command, group: str, chosen: str | None, width: int) -> Iterator[str]:
    usual = command.groups[group]
    for name in command.choices(group):
        mark = " (default)" if name == usual else ""
        yield f"{group}={name}{mark}"
        yield from _wrapped(_first_paragraph(command.choice(group, name).description), width, INDENT)
    if group == GLOBAL_GROUP:
        yield ""
        yield f"--help {group}=NAME prints the keys that an experiment sets."
        return
    start = usual if usual in command.choices(group) else command.choices(group)[0]
    name = chosen or command.choice(group, start).base
    yield ""
    yield f"Keys of {group}={name}, with their defaults:"
    yield from _choice(command, group, name, width, described=False)


def _choice(command: Command, group: str, name: str, width: int, described: bool = True) -> Iterator[str]:
    choice = command.choice(group, name)
    if described:
        yield f"{group}={name}"
        yield from _paragraphs(choice.description, width)
        yield ""
    elif len(list(reflowed(choice.description))) > 1:
        yield from _paragraphs(choice.description, width)
    yield from _keys(choice.keys, width)


def _keys(keys: Iterable[Key], width: int) -> Iterator[str]:
    """Yield each key with its default on one line, its comment below, and a note above the keys that it is about."""
    note: tuple[str, ...] = ()
    for key in keys:
        if key.note != note and key.note:
            yield ""
            yield from _paragraphs(key.note, width)
        note = key.note
        if key.value is None:
            yield from _wrapped(f"{key.path}: {key.comment}" if key.comment else "", width, "  ", INDENT)
            continue
        shown = f"{key.path}=VALUE, which is required" if key.is_required else f"{key.path}={key.value}"
        yield from _wrapped(shown, width, "  ", INDENT * 2)
        yield from _wrapped(key.comment, width, INDENT + "  ")


def _paragraphs(lines: Sequence[str], width: int) -> Iterator[str]:
    for level, text in reflowed(lines):
        yield from _wrapped(text, width, INDENT if level == 0 else INDENT + "- ", INDENT + "  " * level)


def _first_paragraph(lines: Sequence[str]) -> str:
    return next((text for _, text in reflowed(lines)), "")


def _wrapped(text: str, width: int, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=first if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
