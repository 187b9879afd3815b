"""Measure the cost of metrics: their share of training time, and the report's time and size.

    python scripts/benchmarks/metrics_cost.py data=transactions trainer.max_epochs=3      any overrides of seqclf.train

Runs the command in this process, with a clock around everything that counts, scores or records during training. That is
exact on the CPU, where PyTorch computes in step with Python. Nothing is logged unless a logger is set. Prints one JSON
line after that of the command.
"""

import json
import sys
import time
from collections import defaultdict
from functools import wraps
from pathlib import Path
from typing import Any

import lightning.pytorch as pl

from seqclf.config.command import run
from seqclf.runs import steps
from seqclf.training.epoch_metrics import EpochMetrics, EvaluationMetrics
from seqclf.training.task import SequenceTask
from seqclf.training.training_log import EpochRecord

METRIC_METHODS = [
    *((accumulator, "update") for accumulator in (EpochMetrics, EvaluationMetrics)),
    *((SequenceTask, name) for name in ("on_train_epoch_end", "on_validation_epoch_end", "on_train_batch_end")),
    *((EpochRecord, name) for name in ("on_train_epoch_start", "on_train_batch_end", "on_train_epoch_end")),
]


running: set[str] = set()  # parts whose calls have not returned


def add_clock(seconds: dict[str, float], owner: Any, name: str, part: str) -> None:
    """Replace `owner.name` by a function that adds the seconds of each call to those of `part`.

    Nested calls of the same part count once.
    """
    function = getattr(owner, name)

    @wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        if part in running:
            return function(*arguments, **options)
        running.add(part)
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            seconds[part] += time.perf_counter() - start
            running.remove(part)

    setattr(owner, name, timed)


def add_clocks(seconds: dict[str, float]) -> None:
    """Put clocks on metrics, fit, final scores and report."""
    for owner, name in METRIC_METHODS:
        add_clock(seconds, owner, name, "metrics")
    add_clock(seconds, pl.Trainer, "fit", "fit")
    # The module looks these functions up by name when it calls them, so replacing them there is enough.
    add_clock(seconds, steps, "score_contenders", "scoring at the end")
    for name in ("judge_scores", "write_run_page"):
        add_clock(seconds, steps, name, "report")


def record_report_paths() -> list[Path]:
    """Return a list to which every report that is written adds its path."""
    paths: list[Path] = []
    write = steps.write_run_page

    def recording(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        paths.append(path)

    steps.write_run_page = recording
    return paths


def main() -> None:
    seconds: dict[str, float] = defaultdict(float)
    add_clocks(seconds)
    report_paths = record_report_paths()
    sys.argv[1:] = ["logger=none", *sys.argv[1:]]
    run("train")
    result = {
        "metrics_share": round(seconds["metrics"] / seconds["fit"], 4),
        **{f"{part} s": round(value, 3) for part, value in seconds.items()},
        "report kB": round(report_paths[0].stat().st_size / 1e3, 1),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
