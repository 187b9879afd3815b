"""Entry point of `python -m seqclf.export`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("export")
