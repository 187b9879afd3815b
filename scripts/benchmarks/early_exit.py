"""Time predictions of an adaptive model on long sequences whose answer stands early.

    python scripts/benchmarks/early_exit.py [--rows 1000] [--epochs 8] [--rounds 7]
    python scripts/benchmarks/early_exit.py --run RUN

Sequences of 200 to 400 tokens: two marks among the first 40 tokens, whose order is the class, and noise. Trains
model=adaptive and the same encoder as model=lstm, then predicts as many rows with both bundles: the adaptive one reads
by chunks of 16 tokens, and halted rows leave the batch. Rounds are interleaved, figures are medians on one thread.
Prints one JSON line.

With --run it prints a bound for the data of a run instead, of two classes of category tokens with a positive label: the
share of the tokens of negative test rows that any reader must read who misses none, or one, of the positive rows.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from seqclf import Classifier
from seqclf.data.prepare_data import prepare
from seqclf.settings.data_settings import DataOptions

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


def tokens_needed(negative: Counter[tuple[int, ...]], positive: list[tuple[int, ...]], missed: int) -> float:
    """Return the least share of the tokens of negative rows that a reader needs who misses 0 or 1 positive rows.

    A positive row shows itself at the first token at which it differs from all negative rows, or by its end. A negative
    row that agrees with it up to there must be read to that token, or the reader could not tell them apart.
    """
    prefixes = {row[:end] for row in negative for end in range(1, len(row) + 1)}
    marks: Counter[tuple[tuple[int, ...], int]] = Counter()
    for row in positive:
        end = next((end for end in range(1, len(row) + 1) if row[:end] not in prefixes), len(row) + 1)
        marks[row[: end - 1], end] += 1

    def read(without: Any = None) -> int:
        left = marks.keys() - {without}
        return sum(
            count * max([end for end in range(1, len(row) + 1) if (row[: end - 1], end) in left] + [1])
            for row, count in negative.items()
        )

    alone = [mark for mark, count in marks.items() if count == 1]
    least = min([read(mark) for mark in alone] if missed and alone else [read()])
    return least / sum(count * len(row) for row, count in negative.items())


def print_run(run: Path) -> None:
    """Print the bound where there is a positive label."""
    dataset = prepare(DataOptions.build(**yaml.safe_load((run / "config.yaml").read_text())["data"]))
    if dataset.positive is None:
        return
    split, index = dataset.splits["test"], dataset.classes.index(dataset.positive)
    ids = next(iter(split.sequences.fields.values()))
    rows = [tuple(ids[start:stop].tolist()) for start, stop in itertools.pairwise(split.sequences.offsets)]
    positive = [row for row, label in zip(rows, split.labels, strict=True) if label == index]
    negative = Counter(row for row, label in zip(rows, split.labels, strict=True) if label != index)
    needed = {f"needed, {missed} missed": round(tokens_needed(negative, positive, missed), 3) for missed in (0, 1)}
    print(json.dumps({"positive rows": len(positive), **needed}))


def train(model: str, folder: Path, epochs: int) -> dict[str, Any]:
    """Train a model on the files of a folder, and return its metrics.json."""
    run = folder / model
    data = [f"data.{split}={folder / split}.parquet" for split in ("train", "test")]
    settings = ["logger=none", "baseline=false", f"trainer.max_epochs={epochs}", f"hydra.run.dir={run}"]
    command = [sys.executable, "-m", "seqclf.train", "data=files", *data, "data.label=label", f"model={model}"]
    subprocess.run([*command, *FORWARD, *settings], check=True, stdout=sys.stderr)
    return json.loads((run / "metrics.json").read_text())


def measure(folder: Path, rounds: int) -> dict[str, float]:
    """Return the median seconds of predicting the test rows, by way, and the share of the tokens that are read."""
    ways = {
        "adaptive": Classifier(folder / "adaptive" / "bundle", threads=1),
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
    predictions = ways["adaptive"].predict_columns(columns)
    share = float(predictions.extra["tokens_read"].sum() / predictions.kept.sum())
    return {"tokens read": share, **{name: statistics.median(values) for name, values in seconds.items()}}


def main(rows: int, epochs: int, rounds: int) -> None:
    """Train, time, and print the result."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split, seed in (("train", 0), ("test", 1)):
            pq.write_table(generate(rows, seed), folder / f"{split}.parquet")
        metrics = {model: train(model, folder, epochs) for model in ("adaptive", "lstm")}
        seconds = measure(folder, rounds)
    share = seconds.pop("tokens read")
    result = {
        "tokens read": round(share, 3),
        "recall": round(metrics["adaptive"]["test"]["recall"], 4),
        "recall of lstm": round(metrics["lstm"]["test"]["recall"], 4),
        **{f"{way}, s": round(value, 3) for way, value in seconds.items()},
        "saved against lstm": round(1 - seconds["adaptive"] / seconds["lstm"], 3),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--run", type=Path)
    given = vars(parser.parse_args())
    run = given.pop("run")
    main(**given) if run is None else print_run(run)
