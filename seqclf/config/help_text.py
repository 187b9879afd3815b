"""Help texts of the commands. The texts are made from the comments and the defaults in conf/."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence

from seqclf.config.documentation import GLOBAL_GROUP, Command, Key
from seqclf.config.hints import did_you_mean
from seqclf.errors import InputError

MAX_WIDTH = 100  # maximum characters of a line, because longer lines are hard to read
HELP = ("--help", "-h")
INDENT = "    "
FOOTER = """Options:
  --help TOPIC      explain a group, choice or key, as {topics}
  --cfg job         print the whole configuration
  -m, --multirun    run every combination of the values in KEY=A,B
  --config-dir DIR  add a folder of YAML files: DIR/GROUP/CHOICE.yaml
  --hydra-help      print all options"""


def help_text(command: Command, topics: Sequence[str], chosen: dict[str, str], width: int | None = None) -> str:
    """Return the help text of a command or of `topics`. A topic is a config group, a choice (`model=gru`) or a key.

    `chosen`: dict config group → choice, for choices other than the default. `width`: maximum characters of a line,
    None for the width of the terminal. Raises InputError for an unknown topic.
    """
    columns = width or min(shutil.get_terminal_size().columns, MAX_WIDTH)
    if not topics:
        lines = list(_overview(command, chosen, columns))
    else:
        lines = [line for topic in topics for line in ["", *_topic(command, topic, chosen, columns)]]
    return "\n".join(line.rstrip() for line in lines).lstrip("\n")


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return True if the arguments of a command contain `--help` or `-h`."""
    return any(text in HELP for text in arguments)


def print_help(name: str, arguments: Sequence[str]) -> None:
    """Print the help text of a command. The arguments after `--help` are topics.

    If the arguments before `--help` contain choices such as `model=gru`, the help text describes these choices. An
    unknown topic ends the process with exit code 2.
    """
    position = min(arguments.index(text) for text in HELP if text in arguments)
    command = Command.typed(name, arguments)
    topics = [text for text in arguments[position + 1 :] if not text.startswith("-")]
    topics = topics or [text for text in arguments[:position] if "=" not in text and not text.startswith("-")]
    try:
        print(help_text(command, topics, command.chosen(arguments[:position])), flush=True)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:  # the process that reads the output, such as `head`, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def reflowed(lines: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Split a comment block into paragraphs. Yield the level and the text of each paragraph.

    List items have level 1, and other paragraphs have level 0. A line that is indented by two spaces starts a list
    item. A line with more indentation continues the list item. An empty line ends a paragraph.

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
    topics = ", ".join(["model=gru or model.layers"] if "model" in command.groups else [command.own_keys[0].path])
    yield from FOOTER.format(topics=topics).splitlines()


def _topic(command: Command, topic: str, chosen: dict[str, str], width: int) -> Iterator[str]:
    name, _, value = topic.rstrip(".=").lstrip("+~").partition("=")
    if name in command.groups and not value:
        yield from _group(command, name, chosen.get(name), width)
    elif name in command.groups and value in command.choices(name):
        yield from _choice(command, name, value, width)
    else:
        # If the default choice of a group lacks a key, such as `loss.gamma`, the first choice with this key is used.
        usual = command.all_keys(chosen)
        is_usual = any(key.path == name for key in usual)
        keys = usual if is_usual else command.all_keys({**dict(filter(None, [command.choice_with(name)])), **chosen})
        exact = [key for key in keys if f"{key.path}.".startswith(f"{name}.")]
        shown = exact or [key for key in keys if key.path.endswith(f".{name}")]
        if not shown or name in command.groups:
            hint = did_you_mean(name, command.groups) or "--help lists groups and keys"
            raise InputError(f"--help {topic}", "no such group, choice or key", hint)
        yield from _keys(shown, width)


def _group(command: Command, group: str, chosen: str | None, width: int) -> Iterator[str]:
    usual = command.groups[group]
    for name in command.choices(group):
        mark = " (default)" if name == usual else ""
        yield f"{group}={name}{mark}"
        _, text = next(reflowed(command.choice(group, name).description), (0, ""))
        yield from _wrapped(text, width, INDENT)
    if group == GLOBAL_GROUP:
        yield ""
        yield f"--help {group}=NAME prints the keys that an experiment sets."
        return
    name = chosen or command.choice(group, command.choices(group)[0]).base
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
    """Yield the help text of keys, line by line. A note comes first, then each key with its default and comment."""
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


def _wrapped(text: str, width: int, first: str, rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=first if rest is None else rest,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
