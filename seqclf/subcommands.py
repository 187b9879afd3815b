"""The first argument of `seqclf`: a command to run, or a question about the commands."""

from __future__ import annotations

import runpy
import sys

from seqclf.config.command_line import typed_command
from seqclf.config.completion import SCRIPTS, completions
from seqclf.config.documentation import command_names
from seqclf.config.help_text import asks_for_help, print_help
from seqclf.config.suggestions import did_you_mean
from seqclf.system.version import __version__

ORDER = ("train", "export", "predict", "evaluate", "describe", "walkthrough", "search", "bench")
EXAMPLES = """Examples:
  seqclf train data=files data.train=train.parquet data.label=label
  seqclf predict bundle=RUN/bundle input=new.parquet output=scores.parquet

`seqclf COMMAND --help` lists the keys of a command. Completion with the tab key:
  eval "$(seqclf --completion bash)"      or zsh"""


def dispatch() -> None:
    """Run the command that the first argument names, or list the commands."""
    name, arguments = (sys.argv[1], sys.argv[2:]) if len(sys.argv) > 1 else ("--help", [])
    if name in command_names():
        run(name, arguments)
    elif name in ("--help", "-h", "help"):
        print(overview())
    elif name == "--version":
        print(f"seqclf {__version__}")
    elif name == "--completion" and arguments and arguments[0] in SCRIPTS:
        print(SCRIPTS[arguments[0]])
    elif name == "--complete":  # asked by those scripts
        print("\n".join(completions(arguments)))
    else:
        sys.exit(refuse(name))


def run(name: str, arguments: list[str]) -> None:
    """Run the module of a command as `python -m` does, so that processes which it starts are the same command."""
    if asks_for_help(arguments):
        print_help(name, arguments)  # without Hydra, which takes longer to import than all of this
        return
    sys.argv = [f"seqclf {name}", *arguments]
    runpy.run_module(f"seqclf.{name}", run_name="__main__", alter_sys=True)


def overview() -> str:
    """Return the list of the commands."""
    names = sorted(command_names(), key=lambda name: (name not in ORDER, ORDER.index(name) if name in ORDER else name))
    commands = "\n".join(f"  {name:12}{typed_command(name, []).summary}" for name in names)
    return f"Train classifiers of sequences, export them, and predict without PyTorch.\n\n{commands}\n\n{EXAMPLES}"


def refuse(name: str) -> int:
    """Print the error line for something that is no command. Returns the exit code."""
    if name == "--completion":
        print(f"error: --completion: must be {' or '.join(SCRIPTS)}", file=sys.stderr)
        return 2
    if "=" in name:
        hint = f"name the command first: seqclf train {name}"
    else:
        hint = did_you_mean(name, command_names()) or f"the commands are {', '.join(command_names())}"
    print(f"error: {name}: no such command; {hint}", file=sys.stderr)
    return 2
