"""Compare models on generated waveforms: recall and time per epoch of lstm, auto and the order-blind baseline.

    python scripts/benchmarks/waveforms.py [--families frequency event] [--rows 600] [--epochs 12] [optimizer.lr=0.01 …]

Every family has its own kind of class: frequency, direction of a chirp, shape of an event anywhere in noise, phase lag
between two channels, order of two events. Lengths are 100 to 2,000 tokens, amplitudes six decades. Overrides of
seqclf.train apply to all runs. Prints a Markdown table, and one JSON line at the end.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path(__file__).parents[2]
Generator = np.random.Generator
SHORTEST, LONGEST = 100, 2000
EVENT = 40  # tokens of an event


def frequency(label: int, time: int, random: Generator) -> np.ndarray:
    """A sine of one of four frequencies, a factor of 1.5 apart, in noise."""
    cycles = 0.02 * 1.5**label * random.uniform(0.95, 1.05)
    return _sine(cycles * np.arange(time), random) + _noise(1.5, time, random)


def chirp(label: int, time: int, random: Generator) -> np.ndarray:
    """A frequency that rises, falls, or rises and falls, in noise."""
    low, high = random.uniform(0.005, 0.02), random.uniform(0.05, 0.1)
    share = np.linspace(0, 1, time)
    path = (share, 1 - share, 1 - np.abs(2 * share - 1))[label]
    return _sine(np.cumsum(low + (high - low) * path), random) + _noise(0.5, time, random)


def event(label: int, time: int, random: Generator) -> np.ndarray:
    """A ramp up, a ramp down or a triangle, of either sign, anywhere in noise."""
    signal = _noise(1.0, time, random)
    _add(signal, _shape(label), random.integers(time - EVENT + 1), 4.0 * random.choice([-1, 1]))
    return signal


def phase_lag(label: int, time: int, random: Generator) -> np.ndarray:
    """Two channels of one frequency: in phase, or one of them a sixth of a cycle ahead, in noise."""
    phase = random.uniform(0.02, 0.06) * np.arange(time) + random.uniform()
    lag = (0.0, 1 / 6, -1 / 6)[label]
    channels = [np.sin(2 * np.pi * phase), np.sin(2 * np.pi * (phase - lag))]
    return np.stack([channel + _noise(1.0, time, random) for channel in channels])


def order(label: int, time: int, random: Generator) -> np.ndarray:
    """A ramp up before a ramp down, or after it, anywhere in noise."""
    signal = _noise(1.0, time, random)
    first = random.integers(time - 2 * EVENT + 1)
    second = random.integers(first + EVENT, time - EVENT + 1)
    for start, shape in ((first, label), (second, 1 - label)):
        _add(signal, _shape(shape), start, 4.0)
    return signal


FAMILIES: dict[str, tuple[Callable[[int, int, Generator], np.ndarray], int]] = {
    "frequency": (frequency, 4),
    "chirp": (chirp, 3),
    "event": (event, 3),
    "phase_lag": (phase_lag, 3),
    "order": (order, 2),
}


def _sine(cycles: np.ndarray, random: Generator) -> np.ndarray:
    return np.sin(2 * np.pi * (cycles + random.uniform()))


def _noise(deviation: float, time: int, random: Generator) -> np.ndarray:
    return deviation * random.standard_normal(time)


def _shape(label: int) -> np.ndarray:
    ramp = np.linspace(0, 1, EVENT)
    return (ramp, ramp[::-1], 1 - np.abs(2 * ramp - 1))[label]


def _add(signal: np.ndarray, shape: np.ndarray, start: int, height: float) -> None:
    signal[start : start + len(shape)] += height * shape


def generate(family: str, rows: int, seed: int, standardized: bool) -> pa.Table:
    """Return `rows` labelled waveforms, one column per channel. `standardized`: each by its mean and deviation."""
    function, classes = FAMILIES[family]
    random = np.random.default_rng([seed, list(FAMILIES).index(family)])
    labels = random.permutation(np.arange(rows) % classes)
    waves = []
    for label in labels:
        time = int(np.exp(random.uniform(np.log(SHORTEST), np.log(LONGEST))))
        wave = np.atleast_2d(function(int(label), time, random))
        scale, offset = 10 ** random.uniform(-3, 3), random.standard_normal((len(wave), 1))
        wave = scale * (wave + offset)
        if standardized:
            wave = (wave - wave.mean(axis=1, keepdims=True)) / wave.std(axis=1, keepdims=True)
        waves.append(wave)
    channels = {
        f"wave{channel}": pa.array([wave[channel].astype(np.float32) for wave in waves], pa.list_(pa.float32()))
        for channel in range(len(waves[0]))
    }
    return pa.table({**channels, "label": [f"class{label}" for label in labels]})


def train(folder: Path, model: str, scale: str, channels: list[str], options: argparse.Namespace) -> dict[str, Any]:
    """Train on the files of `folder`. Return the figures of the run (see `read_figures`)."""
    fields = ", ".join(f"{name}: {{kind: number, scale: {scale}}}" for name in channels)
    settings = [
        *("data=files", "data.name=waveforms", f"data.cache_dir={folder}/cache", "data.label=label"),
        *(f"data.{split}={folder}/{split}.parquet" for split in ("train", "validation")),
        f"data.fields={{{fields}}}",
        *(f"model={model}", f"trainer.max_epochs={options.epochs}", f"seed={options.seed}", "trainer.accelerator=cpu"),
        *("logger=none", "export=false", "patience=null", f"hydra.run.dir={folder}/{model}"),
        *("trainer.enable_progress_bar=false", *options.overrides),
    ]
    command = [sys.executable, "-m", "seqclf.train", *settings]
    completed = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    if completed.returncode:
        raise SystemExit(f"{model}: {completed.stderr}")
    return read_figures(folder / model)


def read_figures(run: Path) -> dict[str, Any]:
    """Return validation recall, that of the baseline (None with baseline=false), and seconds of an epoch."""
    metrics = json.loads((run / "metrics.json").read_text())
    with (run / "metrics.csv").open(newline="") as lines:
        seconds = [float(line["seconds"]) for line in csv.DictReader(lines)]
    return {
        "recall": metrics["validation"]["recall"],
        "baseline": metrics.get("baseline", {}).get("recall"),
        # The median, because the first epoch warms up and others may share the machine.
        "seconds": float(np.median(seconds)),
    }


def compare(family: str, options: argparse.Namespace) -> dict[str, Any]:
    """Train the models on one family. Return the cells of its row in the table."""
    given = options.scale == "given"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, (split, rows) in enumerate({"train": options.rows, "validation": options.rows // 2}.items()):
            table = generate(family, rows, 100 * options.seed + seed, standardized=given)
            pq.write_table(table, folder / f"{split}.parquet")
        channels = [name for name in table.column_names if name != "label"]
        scale = "none" if given else options.scale
        results = {model: train(folder, model, scale, channels, options) for model in options.models}
    seconds = [result["seconds"] for result in results.values()]
    return {
        "family": family,
        "order_blind": next(iter(results.values()))["baseline"],
        **{f"{model}_{figure}": results[model][figure] for model in results for figure in ("recall", "seconds")},
        **({"time_ratio": seconds[0] / seconds[1]} if len(seconds) == 2 else {}),  # of the first to the second model
    }


def table_row(result: dict[str, Any], models: list[str]) -> str:
    """Return a row of the Markdown table: recalls, and seconds of an epoch."""
    recalls = [result["order_blind"], *(result[f"{model}_recall"] for model in models)]
    cells = [result["family"], *("-" if recall is None else f"{recall:.3f}" for recall in recalls)]
    seconds = [f"{result[f'{model}_seconds']:.2f}" for model in models]
    return f"| {' | '.join([*cells, *seconds])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=list(FAMILIES))
    parser.add_argument("--models", nargs="+", default=["lstm", "auto"])
    parser.add_argument("--rows", type=int, default=600, help="training sequences; half as many are validated")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--scale", default="sequence", help="of the fields; given: each waveform is standardized first")
    parser.add_argument("overrides", nargs="*", help="of seqclf.train")
    options = parser.parse_intermixed_args()
    headings = ["family", "order-blind", *options.models, *(f"{model} s/epoch" for model in options.models)]
    print(f"| {' | '.join(headings)} |")
    print(f"|{'---|' * len(headings)}")
    results = []
    for family in options.families:
        results.append(compare(family, options))
        print(table_row(results[-1], options.models), flush=True)
    print(json.dumps(results, separators=(",", ":")))


if __name__ == "__main__":
    main()
