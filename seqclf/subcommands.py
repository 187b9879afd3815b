"""Entry point of `seqclf`. The first argument is the name of a command, or an option such as `--help`."""

from __future__ import annotations

import runpy
import sys

from seqclf.config.command_keys import SETTINGS, Command
from seqclf.config.help_text import asks_for_help, print_help
from seqclf.config.hints import fail
from seqclf.errors import InputError
from seqclf.settings.typed_text import did_you_mean
from seqclf.system.json_result import write_stdout
from seqclf.system.version import __version__

REPLACED = {"judge": "seqclf evaluate run=RUN, or scores=FILE", "report": "seqclf evaluate run=RUN"}
EXAMPLES = """Examples:
  seqclf train data=files data.train=train.parquet data.label=label
  seqclf predict bundle=RUN/bundle input=new.parquet output=scores.parquet

`seqclf COMMAND --help` lists the keys of a command."""


def dispatch() -> None:
    """Run the command or the option that is named in the first argument. Without arguments, list the commands."""
    name, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in SETTINGS:
        run(name, arguments)
    elif name in ("--help", "-h", "help", "--version"):
        try:
            write_stdout(f"seqclf {__version__}" if name == "--version" else overview())
        except InputError as error:
            fail(error)
    else:
        sys.exit(refuse(name))


def run(name: str, arguments: list[str]) -> None:
    """Run the module of a command like `python -m`, so that child processes run the same command."""
    if asks_for_help(arguments):
        print_help(name, arguments)  # the help is printed without importing Hydra, which is slow
        return
    sys.argv = [f"seqclf {name}", *arguments]
    runpy.run_module(f"seqclf.{name}", run_name="__main__", alter_sys=True)


def overview() -> str:
    """Return the text that lists all commands."""
    commands = "\n".join(f"  {name:12}{Command(name).summary}" for name in SETTINGS)
    return f"Train classifiers of sequences, export them, and predict without PyTorch.\n\n{commands}\n\n{EXAMPLES}"


def refuse(name: str) -> int:
    """Print an error for an unknown command `name`. Return the exit code."""
    if name in REPLACED:
        hint = f"write {REPLACED[name]}"
    elif "=" in name:
        hint = f"name the command first: seqclf train {name}"
    else:
        hint = did_you_mean(name, SETTINGS) or f"the commands are {', '.join(SETTINGS)}"
    print(f"error: {name}: no such command; {hint}", file=sys.stderr)
    return 2
