"""The decorator of every command. It handles signals before it imports anything that takes time.

The imports before the run of a command never read the working folder (see `search_path`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from seqclf.system import signals
from seqclf.system.search_path import remove_working_folder


def command(
    name: str, options: str, *, imports_own_code: bool = True
) -> Callable[[Callable[[Any], Any]], Callable[[], None]]:
    """Make `function(config)` a command that is configured by conf/`name`.yaml.

    `options`: dotted path of the pydantic model that checks the config. It is imported only when the command runs, so
    that `--help` stays fast. What the function returns, a `JsonResult` or plain values, is printed as one JSON line.
    `imports_own_code`: False for a command that imports nothing from the working folder, where others find the classes
    that a config names.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[[], None]:
        def entry() -> None:
            search_path = remove_working_folder()
            with signals.ending_command():
                # Imported here, because a signal must end the command during the imports too.
                from seqclf.config.help_text import asks_for_help, print_help

                if asks_for_help(sys.argv[1:]):
                    print_help(name, sys.argv[1:])
                    return
                from seqclf.config.composition import load_hydra_plugins
                from seqclf.config.hydra_command import run_command

                load_hydra_plugins()
                if imports_own_code:
                    sys.path[:] = search_path
                run_command(name, options, function)

        return entry

    return decorate
