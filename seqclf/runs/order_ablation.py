"""Ablation of the order (order_ablation=true): the network of a run, trained again on shuffled tokens.

The second model sees the same tokens in each row, and has the same config. What the network of the run adds to it comes
from the order of the tokens alone.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from seqclf.data.storage.shuffled import shuffle_split
from seqclf.documents.terminal import console, show_note
from seqclf.errors import InputError
from seqclf.evaluation import ladder
from seqclf.evaluation.scores import SHUFFLED, Scores
from seqclf.runs.fit import ABLATION, Training, set_halting
from seqclf.runs.head_weights import set_by_validation
from seqclf.runs.score import score_task
from seqclf.system import progress


def check_one_process(training: Training) -> None:
    """Raise InputError if several ranks train. The second model would need ranks of its own."""
    if training.trainer.world_size > 1:
        raise InputError("order_ablation=true", "trains a second model in one process", "set trainer.devices=1")


def score_shuffled(training: Training, run: Path) -> Scores | None:
    """Train the network of a run on shuffled tokens, and return its scores of the last split.

    An error ends in a printed note and None, because it must not cost the model that is trained already. A signal ends
    the run, as in the first training.
    """
    folder = run / ABLATION
    shutil.rmtree(folder, ignore_errors=True)  # left by a killed run
    console.print("order_ablation=true: trains the same network on shuffled tokens")
    try:
        with progress.stage("training on shuffled tokens"):
            return _train(training, folder)
    except Exception as error:
        reason = str(error) if isinstance(error, InputError) else repr(error)
        show_note(f"order_ablation=true: {' '.join(reason.split())}; the run goes on without the shuffled tokens")
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _train(training: Training, folder: Path) -> Scores:
    # Callbacks of the user may write files, which belong to the first training.
    trainer_settings = {**training.config.trainer, "callbacks": None, "profiler": None}
    config = training.config.model_copy(update={"trainer": trainer_settings, "checkpoint": None})
    with progress.stage("shuffling the tokens"):
        splits = {
            name: shuffle_split(split, folder / "data" / name, config.seed + number)
            for number, (name, split) in enumerate(training.dataset.splits.items())
        }
    dataset = replace(training.dataset, splits=splits, held_out=None)
    second = Training.build(config, dataset, folder, show=lambda *_: None)
    second.run()
    task = second.load(second.checkpoint())
    set_by_validation(task, splits["validation"])
    set_halting(task, second.batches, dataset)
    return score_task(task, second.batches, dataset, list(splits)[-1:], SHUFFLED, ladder.SHUFFLED)
