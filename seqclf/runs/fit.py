"""Step `fit`: the data and settings of a run become its finished model."""

from __future__ import annotations

import time
from pathlib import Path

from seqclf.documents.terminal import console
from seqclf.runs.prepare import open_data, write_json
from seqclf.runs.threshold_rows import fit_to_validation
from seqclf.runs.training import Training
from seqclf.settings.training import TrainConfig
from seqclf.system.run_folder import FIT, MODEL
from seqclf.training.loggers.run_logger import RunLogger
from seqclf.training.task import save_model


def fit(run: Path, config: TrainConfig, *, logger: RunLogger | None = None) -> None:
    """Train, and let validation rows set what they set after it → checkpoints/, metrics.csv, model.ckpt, fit.json.

    A training of `trainer.fast_dev_run` leaves no model.
    """
    training = Training.build(config, open_data(run, config), run)
    weights = sum(weight.numel() for weight in training.task.parameters())
    console.print(f"model: {weights:,} weights on {training.device}, threads: {training.threads}")
    training.trainer.loggers = [] if logger is None else [logger.curves]
    started = time.perf_counter()
    training.run()
    if config.trainer["fast_dev_run"]:
        return
    seconds = time.perf_counter() - started
    task = training.load(training.checkpoint())
    chosen, before = fit_to_validation(task, training.dataset.splits["validation"])
    save_model(run / MODEL, task, len(training.hooks.record.history), before)
    facts = {
        "step": task.trained_steps,
        "seconds": round(seconds, 2),
        "weights": weights,
        "by_validation": chosen,
        "is_complete": training.has_reached_limit,  # what a callback stopped goes on in a resumed run
    }
    write_json(run / FIT, facts)
