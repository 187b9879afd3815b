"""Help texts of the commands: the YAML files in conf/, whose comments explain the keys."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from seqclf.config.documentation import CONF, Command, parents_of
from seqclf.config.hints import must_be_one_of
from seqclf.config.user_errors import fail
from seqclf.errors import InputError
from seqclf.system.json_result import write_stdout

HELP = ("--help", "-h")
OPTIONS = """Options:
  --help GROUP          explain the keys of a group, or of a choice: {topics}
  --config-dir DIR      add a folder of YAML files: DIR/GROUP/CHOICE.yaml"""
HYDRA_OPTIONS = """
  --cfg job             print the whole configuration
  -m, --multirun        run every combination of the values in KEY=A,B
  --hydra-help          print all options"""


def asks_for_help(arguments: Sequence[str]) -> bool:
    """Return True if the arguments of a command contain `--help` or `-h`."""
    return any(text in HELP for text in arguments)


def print_help(name: str, arguments: Sequence[str]) -> None:
    """Print the help text of a command, or of the topics among the arguments. An unknown one ends with exit code 2."""
    command = Command.typed(name, arguments)
    topics = [text for text in arguments if not text.startswith("-")]
    try:
        write_stdout(help_text(command, topics))
    except InputError as error:
        fail(error)


def help_text(command: Command, topics: Sequence[str] = ()) -> str:
    """Return the help text of a command or of `topics`, or raise InputError for an unknown one.

    A topic is a config group, a choice (`model=gru`) or a key, whose first part is a group or a key of the command.
    """
    if not topics:
        return "\n".join(_overview(command))
    return "\n\n".join("\n".join(_topic(command, topic)) for topic in topics)


def _own_settings(command: Command) -> str:
    text = re.split(r"\n(?:  )?help:\n", command.path.read_text(encoding="utf-8"))[0]  # the last block of each file
    return re.sub(r"\A# .*\n|^defaults:\n(  .*\n)+\n?", "", text, flags=re.MULTILINE).strip("\n")


def _overview(command: Command) -> Iterator[str]:
    yield command.summary
    yield ""
    yield from (f"  {line}" for line in command.examples.splitlines())
    if command.groups:
        yield ""
        yield "Groups (GROUP=CHOICE), with the default choice first:"
        yield from (f"  {group:10}  {', '.join(command.choices(group))}" for group in command.groups)
    yield ""
    beside = f", beside those of seqclf {' and '.join(parents_of(command.path))}" if parents_of(command.path) else ""
    yield f"Keys (KEY=VALUE; a key in a block as BLOCK.KEY=VALUE){beside}:"
    yield ""
    yield _own_settings(command)
    yield ""
    if command.groups or command.uses_hydra:
        options = OPTIONS + HYDRA_OPTIONS * command.uses_hydra
        yield options.format(topics=next((f"{group}, {group}=CHOICE" for group in command.groups), "none here"))


def _topic(command: Command, topic: str) -> Iterator[str]:
    name, _, choice = topic.lstrip("+~").partition("=")
    group = name.partition(".")[0]
    if group not in command.groups:
        if any(f"{key}.".startswith(f"{group}.") for key in command.defaults()):
            yield from _overview(command)
            return
        raise InputError(f"--help {topic}", *must_be_one_of(group, command.groups))
    choices = command.choices(group)
    if choice and choice not in choices and name == group:
        raise InputError(f"--help {topic}", *must_be_one_of(choice, choices))
    yield f"# {group}: {', '.join(choices)}"
    yield from _choice(command, group, choice if name == group and choice else choices[0])


def _choice(command: Command, group: str, choice: str) -> Iterator[str]:
    file = command.file(group, choice)
    yield ""
    yield f"# {group}/{file.name}" if file.is_relative_to(CONF) else f"# {file}"
    yield file.read_text(encoding="utf-8").strip("\n")
    for parent in parents_of(file):
        if parent in command.choices(group):
            yield from _choice(command, group, parent)
