"""The decorator that turns a function into a command, which handles signals before its slow imports.

Until the function is called, imports do not search the working folder (see `search_path`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from seqclf.system import signals
from seqclf.system.search_path import remove_working_folder
from seqclf.system.threads import yield_cores


def command(name: str, options: str) -> Callable[[Callable[[Any], Any]], Callable[[], None]]:
    """Return a decorator that turns `function(config)` into a command. The config is conf/`name`.yaml.

    The command prints the function's result (a `JsonResult` or plain values) as one JSON line. If the YAML file has a
    block `hydra`, Hydra composes the config, and the command may import classes from the working folder, which the
    config may name. `options`: dotted path of the pydantic model that checks the config, whose slow import `--help`
    does not need.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[[], None]:
        def entry() -> None:
            yield_cores()
            search_path = remove_working_folder()
            with signals.ending_command():
                # The slow imports are inside this block, so that a signal can end the command during an import.
                from seqclf.config.documentation import Command
                from seqclf.config.help_text import asks_for_help, print_help

                if asks_for_help(sys.argv[1:]):
                    print_help(name, sys.argv[1:])
                    return
                if not Command(name).uses_hydra:
                    from seqclf.config.plain_command import run_plain

                    run_plain(name, options, function)
                    return
                try:
                    from seqclf.config.composition import load_hydra_plugins
                    from seqclf.config.hydra_command import run_command
                except ModuleNotFoundError as error:
                    from seqclf.config.user_errors import fail, missing_package

                    if missing := missing_package(error):
                        fail(missing)
                    raise
                load_hydra_plugins()
                sys.path[:] = search_path
                run_command(name, options, function)

        return entry

    return decorate
