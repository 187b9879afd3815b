"""Entry point of `python -m seqclf.predict`."""

from seqclf.config.command import run

if __name__ == "__main__":
    run("predict")
