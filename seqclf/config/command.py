"""The decorator of every command. It handles signals before it imports anything that takes time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from seqclf.system import signals


def command(name: str, options: str) -> Callable[[Callable[[Any], Any]], Callable[[], None]]:
    """Make `function(config)` a command that is configured by conf/`name`.yaml.

    `options`: dotted path of the pydantic model that checks the config. It is imported only when the command runs, so
    that `--help` stays fast. What the function returns, a `JsonResult` or plain values, is printed as one JSON line.
    """

    def decorate(function: Callable[[Any], Any]) -> Callable[[], None]:
        def entry() -> None:
            with signals.ending_command():
                # Imported here, because a signal must end the command during the imports too.
                from seqclf.config.help_text import asks_for_help, print_help

                if asks_for_help(sys.argv[1:]):
                    print_help(name, sys.argv[1:])
                    return
                from seqclf.config.hydra_command import run_command

                run_command(name, options, function)

        return entry

    return decorate
