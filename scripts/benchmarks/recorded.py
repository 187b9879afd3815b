"""The figures in docs/figures.json, and the lines of the README that show them.

    python scripts/benchmarks/recorded.py      print those lines

The scripts `figures.py` and `peers.py` write the file with `--record`. A test holds the README equal to it.
"""

import datetime
import json
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
RECORDED = ROOT / "docs" / "figures.json"


class Row(NamedTuple):
    """A row of the README's table: the model and the order-blind baseline by one score of a recorded figure.

    `key`: the score's key in metrics.json, below `test` and `baseline`.
    """

    figure: str
    data: str
    score: str
    key: str


# The rows where the model is better come first.
ROWS = [
    Row("default", "spoken digits of new speakers, 2,200 rows", "accuracy", "accuracy"),
    Row("trec", "TREC: questions", "accuracy", "accuracy"),
    Row("sms_spam", "SMS: spam", "F1", "positive.f1"),
    Row("hdfs", "HDFS: anomalies in logs", "F1", "positive.f1"),
    Row("hdfs", "HDFS: anomalies in logs", "average precision", "positive.average_precision"),
    Row("japanese_vowels", "nine speakers, 270 rows", "accuracy", "accuracy"),
]
HEADER = ["| data, and command | score | model | order-blind |", "|---|---|---|---|"]


def load(path: Path = RECORDED) -> dict[str, Any]:
    """Return the recorded figures by name."""
    return json.loads(path.read_text()) if path.exists() else {}


def record(figures: dict[str, dict[str, Any]], path: Path = RECORDED) -> None:
    """Replace the figures of the same names, each with the date of today."""
    today = datetime.date.today().isoformat()
    merged = {**load(path), **{name: {"measured": today, **figure} for name, figure in figures.items()}}
    path.write_text(json.dumps(dict(sorted(merged.items())), indent=1) + "\n")


def table(figures: dict[str, Any]) -> list[str]:
    """Return the lines of the README's table. A baseline that is better than the model is bold."""
    return [*HEADER, *(_line(row, figures[row.figure]) for row in ROWS)]


def _line(row: Row, figure: dict[str, Any]) -> str:
    model, baseline = figure[f"test.{row.key}"], figure[f"baseline.{row.key}"]
    spread = f" ({model['min']:.3f} to {model['max']:.3f})" if model["min"] < model["max"] else ""
    mark = "**" if baseline["mean"] > model["mean"] else ""
    scores = f"{model['mean']:.3f}{spread} | {mark}{baseline['mean']:.3f}{mark}"
    return f"| {row.data}<br>`{figure['command']}` | {row.score} | {scores} |"


def speed(figures: dict[str, Any]) -> str:
    """Return the README's sentence on the speed of training."""
    ratios = {name: peer["seqclf_is"] for name, peer in figures["peers"]["peers"].items()}
    return (
        "`seqclf train model=lstm`, with all its logging, is "
        f"{ratios['torch_static']:.1f} times as fast as a bare PyTorch loop over static batches, "
        f"{ratios['torch_random']:.1f} times as fast as one over random batches, "
        f"{ratios['hf_grouped']:.2f} times as fast as Hugging Face's Trainer grouped by length, and "
        f"{ratios['torch_bucketed']:.2f} times as fast as a bare loop over the same batches."
    )


if __name__ == "__main__":
    print("\n".join([*table(load()), "", speed(load())]))
