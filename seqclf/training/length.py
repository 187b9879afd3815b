"""Number of epochs that the size of the training set decides, `trainer.max_epochs=auto`: a network needs steps."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.documents.terminal import console
from seqclf.settings.decision_settings import AUTO
from seqclf.settings.train_settings import TrainConfig

VALIDATIONS, MONITORED = 15, 30  # most validations of a training whose length is `auto`; with a metric to choose by
MIN_STEPS, MIN_EPOCHS = 1000, 12  # a training takes as many batches and as many epochs, or more
MAX_TOKENS = 6_000_000  # tokens of more than 12 epochs in all; one core reads about 100,000 in a second


class Length(NamedTuple):
    """Length of a training: number of epochs, and of epochs from one validation to the next (`between`)."""

    epochs: int
    between: int


def automatic_length(batches: int, tokens: int, shortening: float = 1, validations: int = VALIDATIONS) -> Length:
    """Return the length of a training with `trainer.max_epochs=auto`. Its last epoch is validated.

    `batches`, `tokens`: numbers in an epoch, at least 1. `shortening`: factor by which the network shortens sequences
    before most of its work, so that fewer tokens count. `validations`: largest number of validations.

    >>> [automatic_length(batches, 100 * batches) for batches in (7, 50, 1000)]
    [Length(epochs=150, between=10), Length(epochs=20, between=2), Length(epochs=12, between=1)]
    >>> [automatic_length(7, tokens).epochs for tokens in (50_000, 100_000, 1_000_000)]
    [120, 60, 12]
    """
    affordable = max(MIN_EPOCHS, int(MAX_TOKENS * shortening / tokens))
    wanted = min(max(MIN_EPOCHS, ceil(MIN_STEPS / batches)), affordable)
    between = ceil(wanted / validations)
    return Length(between * ceil(wanted / between), between)


def _between(epochs: int, automatic: Length, validations: int) -> int:
    """Return the number of epochs between validations of a training of `epochs` epochs, which divides their number."""
    if epochs == automatic.epochs:
        return automatic.between
    most = min(automatic.between, epochs // validations)
    return max(between for between in range(1, max(1, most) + 1) if epochs % between == 0)


def resolve_length(config: TrainConfig, batches: SequenceDataModule, shortening: float = 1) -> TrainConfig:
    """Return the config with numbers in place of `auto` in `trainer.max_epochs` and `trainer.check_val_every_n_epoch`.

    The batches are those of one process. Raises InputError for a structure change after the last epoch.
    """
    trainer, epochs = config.trainer.copy(), config.trainer["max_epochs"]
    count, lengths = len(batches.train_dataloader()), batches.splits["train"].sequences.lengths
    validations = VALIDATIONS if config.monitor is None else MONITORED
    automatic = automatic_length(count, int(lengths.sum()), shortening, validations)
    if isinstance(epochs, str):  # auto
        epochs = automatic.epochs
        if epochs > MIN_EPOCHS:
            each = "1 batch" if count == 1 else f"{count} batches"
            every = f", validated every {automatic.between} epochs" if automatic.between > 1 else ""
            console.print(f"trainer.max_epochs=auto: {epochs} epochs of {each}{every}", soft_wrap=True)
    trainer["max_epochs"] = epochs
    if trainer.get("check_val_every_n_epoch") == AUTO:
        is_given = trainer.get("val_check_interval") is not None  # then each epoch is validated, at these intervals
        trainer["check_val_every_n_epoch"] = 1 if is_given else _between(epochs or 0, automatic, validations)
    resolved = config.model_copy(update={"trainer": trainer})
    resolved.check_changes()
    return resolved


def epochs_between_checkpoints(trainer: Mapping[str, Any]) -> int:
    """Return the number of epochs from one `last.ckpt` to the next: those between validations, if the last one has one.

    A small training set has up to a thousand epochs, and writing a checkpoint after each takes a third of the time.
    """
    between, epochs = trainer.get("check_val_every_n_epoch") or 1, trainer["max_epochs"]
    ends_elsewhere = trainer.get("max_time") is not None or (trainer.get("max_steps") or -1) != -1
    return 1 if ends_elsewhere or not epochs or epochs < 0 or epochs % between else between
