"""The command `seqclf`, which runs the others: `seqclf train …` runs `python -m seqclf.train …`."""

from __future__ import annotations

from seqclf.system import signals


def main() -> None:
    """Run the command that is named in the first argument. Without arguments, list the commands."""
    with signals.ending_command():
        # The slow import is inside this block, so that a signal can end the command during the import.
        from seqclf.subcommands import dispatch

        dispatch()


if __name__ == "__main__":
    main()
