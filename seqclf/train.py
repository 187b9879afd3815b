"""Entry point of `python -m seqclf.train`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("train")
