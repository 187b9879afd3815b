"""What following recall costs: the share of training that goes into metrics, and the report's time and size.

    python scripts/benchmarks/metrics_cost.py data=transactions trainer.max_epochs=3      any overrides of seqclf.train

Runs the command in this process with a clock around everything that counts, scores or records while it trains. That is
exact where PyTorch computes in step with Python: on the CPU. Nothing is logged unless a logger is named. Prints one
JSON line after the command's own.
"""

import json
import sys
import time
from collections import defaultdict
from functools import wraps
from pathlib import Path
from typing import Any

import seqclf.train
from seqclf import pipeline
from seqclf.training.epoch_metrics import EpochMetrics, EvaluationMetrics
from seqclf.training.epoch_record import EpochRecord
from seqclf.training.module import SequenceTask

METRICS = [
    *((kind, "update") for kind in (EpochMetrics, EvaluationMetrics)),
    *((SequenceTask, name) for name in ("on_train_epoch_end", "on_validation_epoch_end", "on_train_batch_end")),
    *((EpochRecord, name) for name in ("on_train_epoch_start", "on_train_batch_end", "on_train_epoch_end")),
]


running: set[str] = set()  # kinds of the calls that have not returned


def clocked(seconds: dict[str, float], owner: Any, name: str, kind: str) -> None:
    """Add the time of each call of `owner.name` to `seconds[kind]`, once where such calls are nested."""
    function = getattr(owner, name)

    @wraps(function)
    def timed(*arguments: Any, **options: Any) -> Any:
        if kind in running:
            return function(*arguments, **options)
        running.add(kind)
        start = time.perf_counter()
        try:
            return function(*arguments, **options)
        finally:
            seconds[kind] += time.perf_counter() - start
            running.remove(kind)

    setattr(owner, name, timed)


def main() -> None:
    seconds: dict[str, float] = defaultdict(float)
    pages: list[Path] = []
    for owner, name in METRICS:
        clocked(seconds, owner, name, "metrics")
    clocked(seconds, pipeline.pl.Trainer, "fit", "fit")
    clocked(seconds, pipeline, "_outcome", "scoring at the end")
    for name in ("run_mistakes", "run_report", "write_report"):
        clocked(seconds, pipeline, name, "report")
    write = pipeline.write_report

    def noted(page: Any, path: Path) -> None:
        pages.append(path)
        write(page, path)

    pipeline.write_report = noted
    sys.argv[1:] = ["logger=none", *sys.argv[1:]]
    seqclf.train.main()
    print(
        json.dumps(
            {
                "metrics_share": round(seconds["metrics"] / seconds["fit"], 4),
                **{f"{kind} s": round(value, 3) for kind, value in seconds.items()},
                "report kB": round(pages[0].stat().st_size / 1e3, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
