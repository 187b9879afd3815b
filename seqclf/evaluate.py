"""Entry point of `python -m seqclf.evaluate`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("evaluate")
