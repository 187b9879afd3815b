"""Entry point of `python -m seqclf.describe`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("describe")
