"""Entry point of `python -m seqclf.compare`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("compare")
