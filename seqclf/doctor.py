"""Entry point of `python -m seqclf.doctor`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("doctor")
