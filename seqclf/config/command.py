"""Run a command, with signals handled before its slow imports.

Until the body of the command runs, imports do not search the working folder (see `search_path`).
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from seqclf.errors import InputError
from seqclf.system import signals
from seqclf.system.resources import yield_cores
from seqclf.system.search_path import remove_working_folder


def run(name: str) -> None:
    """Run the body of a command, `main(config)` in `seqclf.commands`, with the config of the command line.

    The result (a `JsonResult` or plain values) is printed as one JSON line. Hydra composes the config of a command that
    trains or reads the user's classes, which may be imported from the working folder.
    """
    yield_cores()
    search_path = remove_working_folder()
    with signals.ending_command():
        # The slow imports are inside this block, so that a signal can end the command during an import.
        from seqclf.config.arguments import TypedArguments, run_plain
        from seqclf.config.help_text import asks_for_help, print_help
        from seqclf.config.hints import fail, user_error

        def body(config: Any) -> Any:
            return import_module(f"seqclf.commands.{name}").main(config)

        if asks_for_help(sys.argv[1:]):
            print_help(name, sys.argv[1:])
            return
        typed = TypedArguments(name, sys.argv[1:])
        if not typed.command.uses_hydra:
            run_plain(typed, body)
            return
        try:
            if typed.command.files:
                typed.check_keys()
            from seqclf.config.hydra_config import load_hydra_plugins, run_command
        except (InputError, ModuleNotFoundError) as error:
            if known := user_error(error):
                fail(known)
            raise
        load_hydra_plugins()
        sys.path[:] = search_path
        run_command(name, body)
