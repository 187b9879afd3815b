"""Entry point of `python -m seqclf.search`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("search")
