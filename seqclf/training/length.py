"""Number of epochs that the size of the training set decides: `trainer.max_epochs=auto`.

A network needs optimizer steps, not epochs. Thirty epochs of 200 rows are 210 steps, which leave most networks
unfinished. A small training set is therefore read more often, and is still validated 30 times.
"""

from __future__ import annotations

from math import ceil

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.documents.terminal import console
from seqclf.training.options import AUTO, TrainConfig

VALIDATIONS = 30  # number of validations of a training whose length is `auto`, each after the same number of epochs
MIN_BATCHES = 1500  # number of batches in all epochs, unless they exceed one of the next two limits
MAX_TOKENS = 6_000_000  # tokens of more than 30 epochs in all; one core reads about 100,000 in a second
MAX_EPOCHS_BETWEEN = 10  # from one validation to the next; each epoch has a cost of its own, such as a checkpoint


def epochs_between(batches: int, tokens: int) -> int:
    """Return the number of epochs from one validation to the next.

    `batches`, `tokens`: numbers of batches and of tokens of an epoch, at least 1.

    >>> [epochs_between(batches, 100 * batches) for batches in (1, 7, 19, 50, 1000)]
    [10, 8, 3, 1, 1]
    >>> [epochs_between(7, tokens) for tokens in (20_000, 50_000, 500_000)]
    [8, 4, 1]
    """
    wanted = ceil(MIN_BATCHES / (VALIDATIONS * batches))
    return max(1, min(wanted, MAX_TOKENS // (VALIDATIONS * tokens), MAX_EPOCHS_BETWEEN))


def resolve_length(config: TrainConfig, batches: SequenceDataModule) -> TrainConfig:
    """Return the config with numbers in place of `auto` in `trainer.max_epochs` and `trainer.check_val_every_n_epoch`.

    The batches are counted in one process. The number of epochs therefore depends on neither the number of ranks, nor
    `trainer.accumulate_grad_batches`, nor `trainer.limit_train_batches`. Raises InputError for a structure change after
    the last epoch.
    """
    trainer, epochs = config.trainer.copy(), config.trainer["max_epochs"]
    count, lengths = len(batches.train_dataloader()), batches.splits["train"].sequences.lengths
    between = epochs_between(count, int(lengths.sum()))
    if isinstance(epochs, str):  # auto
        epochs = VALIDATIONS * between
        if between > 1:
            each = "1 batch" if count == 1 else f"{count} batches"
            console.print(
                f"trainer.max_epochs=auto: up to {epochs} epochs of {each}, validated every {between} epochs",
                soft_wrap=True,
            )
    trainer["max_epochs"] = epochs
    if trainer.get("check_val_every_n_epoch") == AUTO:
        is_given = trainer.get("val_check_interval") is not None  # then each epoch is validated, at these intervals
        trainer["check_val_every_n_epoch"] = 1 if is_given else max(1, min(between, (epochs or 0) // VALIDATIONS))
    resolved = config.model_copy(update={"trainer": trainer})
    resolved.check_changes()
    return resolved
