"""Entry point of `python -m seqclf.retrain`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("retrain")
