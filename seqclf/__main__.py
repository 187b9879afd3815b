"""The command `seqclf`: `seqclf train …` is `python -m seqclf.train …`."""

from __future__ import annotations

from seqclf.system import signals


def main() -> None:
    """Run the command that the first argument names, or list the commands."""
    with signals.ending_command():
        # Imported here, because a signal must end the command during the imports too.
        from seqclf.subcommands import dispatch

        dispatch()


if __name__ == "__main__":
    main()
