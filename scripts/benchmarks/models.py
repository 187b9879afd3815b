"""Compare the models of the package: time of a training step and of prediction, on the same sequences.

    python scripts/benchmarks/models.py [ROUNDS [SEQUENCES]]

Log-normal lengths from 2 to 400 tokens, batches of 32 similar lengths, models with the defaults of conf/model, without
dropout. The Tree-LSTM reads trees of as many nodes. Rounds of all models are interleaved, figures are medians on one
thread. Prints a table and one JSON line.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from seqclf import load_config
from seqclf.batching.collate import pad
from seqclf.benchmark.mode_trainer import ModeTrainer
from seqclf.benchmark.modes import MODES, BenchmarkSettings, reads_trees
from seqclf.benchmark.settings import model_without_noise
from seqclf.benchmark.workload import generate_workload
from seqclf.bundle.session import open_session
from seqclf.config.documentation import CONF
from seqclf.models.onnx_export import export_onnx

REFERENCE = "lstm"
BATCH_SIZE, BATCHES = 32, 16


class ModelTimer:
    """A model with its workload, in PyTorch for training and in ONNX Runtime for prediction."""

    def __init__(self, name: str, sequences: int, folder: Path):
        config = model_without_noise(load_config([f"model={name}"])["model"])
        trees = reads_trees(config)
        self.workload = generate_workload("log_normal", sequences, BATCH_SIZE, BATCHES, seed=0, trees=trees)
        self.trainer = ModeTrainer(
            MODES["dynamic"], self.workload, BenchmarkSettings(config, 3e-3, "cpu", "32-true", seed=0)
        )
        self.weights = sum(weight.numel() for weight in self.trainer.model.parameters())
        export_onnx(self.trainer.model, self.workload.fields, folder / f"{name}.onnx")
        self.session = open_session(folder / f"{name}.onnx", "cpu")
        self.training: list[float] = []
        self.prediction: list[float] = []

    def run(self) -> None:
        """Run all batches once in training and once in prediction, and note the milliseconds of a batch."""
        seconds = [self.trainer.step(rows) for rows in self.workload.batches]
        self.training.append(1000 * statistics.mean(seconds))
        started = time.perf_counter()
        for rows in self.workload.batches:
            fields, lengths = pad(self.workload.split.sequences, rows)
            self.session.run(["logits"], {**fields, "lengths": lengths})
        self.prediction.append(1000 * (time.perf_counter() - started) / BATCHES)


def measure(rounds: int, sequences: int) -> dict[str, dict[str, Any]]:
    """Return the weights and the median milliseconds of a batch, by model."""
    names = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        timers = {name: ModelTimer(name, sequences, Path(folder)) for name in names}
        for timer in timers.values():
            timer.run()  # to warm up
            timer.training.clear()
            timer.prediction.clear()
        for _ in range(rounds):
            for timer in timers.values():
                timer.run()
    return {
        name: {
            "weights": timer.weights,
            "train_ms": round(statistics.median(timer.training), 2),
            "predict_ms": round(statistics.median(timer.prediction), 2),
        }
        for name, timer in timers.items()
    }


def table(figures: dict[str, dict[str, Any]]) -> str:
    """Return the figures as a Markdown table, the quickest training first, with ratios to the reference."""
    lines = ["| model | weights | training step | prediction of a batch |", "|---|---|---|---|"]
    reference = figures[REFERENCE]
    for name, values in sorted(figures.items(), key=lambda entry: entry[1]["train_ms"]):
        times = [
            f"{values[key]:.1f} ms ({values[key] / reference[key]:.2f} of `{REFERENCE}`)"
            for key in ("train_ms", "predict_ms")
        ]
        lines.append(f"| `{name}` | {values['weights']:,} | {' | '.join(times)} |")
    return "\n".join(lines)


def main(rounds: int, sequences: int) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    figures = measure(rounds, sequences)
    print(table(figures))
    print(json.dumps({"rounds": rounds, "sequences": sequences, "models": figures}))


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:3]]
    main(*given, *(5, 2048)[len(given) :])
