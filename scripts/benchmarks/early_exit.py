"""Time predictions of an adaptive model on long sequences whose answer stands early.

    python scripts/benchmarks/early_exit.py [--rows 1000] [--epochs 8] [--rounds 7]

Sequences of 200 to 400 tokens: two marks among the first 40 tokens, whose order is the class, and noise. Trains
model=adaptive and the same encoder as model=lstm, then predicts as many rows with the adaptive bundle, with the same
bundle at budget=1, and with the LSTM's model.onnx. Rounds are interleaved, figures are medians on one thread. Prints
one JSON line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf import Classifier

SHORTEST, LONGEST, EARLY = 200, 400, 40
MARKS = (1, 2)  # ids of the tokens that decide; noise has larger ones
NOISE = 20
FORWARD = ["model.bidirectional=false", "model.hidden_size=64", "model.embedding_size=32", "model.pooling=max"]


def sequence(label: int, random: np.random.Generator) -> list[int]:
    """Return noise with two marks among the first `EARLY` tokens. `label`: of four, a first and a second mark."""
    tokens = random.integers(max(MARKS) + 1, max(MARKS) + 1 + NOISE, random.integers(SHORTEST, LONGEST + 1))
    first, second = sorted(random.choice(EARLY, 2, replace=False))
    tokens[first], tokens[second] = MARKS[label // 2], MARKS[label % 2]
    return tokens.tolist()


def generate(rows: int, seed: int) -> pa.Table:
    """Return a table of sequences, as many of each class."""
    random = np.random.default_rng(seed)
    labels = [row % 4 for row in range(rows)]
    return pa.table({"tokens": [sequence(label, random) for label in labels], "label": [f"c{n}" for n in labels]})


def train(model: str, folder: Path, epochs: int) -> dict[str, Any]:
    """Train a model on the files of a folder, and return its metrics.json."""
    run = folder / model
    data = [f"data.{split}={folder / split}.parquet" for split in ("train", "test")]
    settings = ["logger=none", "baseline=false", f"trainer.max_epochs={epochs}", f"hydra.run.dir={run}"]
    command = [sys.executable, "-m", "seqclf.train", "data=files", *data, "data.label=label", f"model={model}"]
    subprocess.run([*command, *FORWARD, *settings], check=True, stdout=sys.stderr)
    return json.loads((run / "metrics.json").read_text())


def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Return the median seconds of predicting the test rows, by way."""
    ways = {
        "adaptive": Classifier(folder / "adaptive" / "bundle", threads=1),
        "adaptive, budget=1": Classifier(folder / "adaptive" / "bundle", threads=1, budget=1.0),
        "lstm": Classifier(folder / "lstm" / "bundle", threads=1),
    }
    sequences = pq.read_table(folder / "test.parquet").column("tokens").to_pylist()
    columns = ways["lstm"].to_columns(sequences)[0]
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, classifier in ways.items():
            started = time.perf_counter()
            classifier.predict_columns(columns)
            seconds[name].append(time.perf_counter() - started)
    return {name: statistics.median(values) for name, values in seconds.items()}


def main(rows: int, epochs: int, rounds: int) -> None:
    """Train, time, and print the result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, seed in (("train", 0), ("test", 1)):
            pq.write_table(generate(rows, seed), folder / f"{split}.parquet")
        metrics = {model: train(model, folder, epochs) for model in ("adaptive", "lstm")}
        seconds = measure(folder, rounds)
    halting = metrics["adaptive"]["halting"]
    points = halting["splits"]["test"]
    knee = next(point for point in points if point["threshold"] == halting["threshold"])
    result = {
        "tokens read": round(knee["tokens"], 3),
        "recall": round(knee["recall"], 4),
        "recall reading all": round(points[-1]["recall"], 4),
        "recall of lstm": round(metrics["lstm"]["test"]["recall"], 4),
        **{f"{way}, s": round(value, 3) for way, value in seconds.items()},
        "saved against budget=1": round(1 - seconds["adaptive"] / seconds["adaptive, budget=1"], 3),
        "saved against lstm": round(1 - seconds["adaptive"] / seconds["lstm"], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    main(**vars(parser.parse_args()))
