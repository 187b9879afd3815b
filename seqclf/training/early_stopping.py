"""Callback that stops training once the validation metric no longer improves."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl

from seqclf.training.module import MONITORED


class EarlyStopping(pl.callbacks.EarlyStopping):
    """Lightning's `EarlyStopping`, which also ends a resumed run that had stopped, unless its patience was raised.

    It has Lightning's name, by which a checkpoint stores its state.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if self.wait_count >= max(1, self.patience):
            trainer.should_stop = True


def early_stopping(patience: int) -> EarlyStopping:
    """Return a callback that stops training after `patience` validations without a better one."""
    # Checked where a validation ends: an epoch may have none (trainer.check_val_every_n_epoch) or several.
    return EarlyStopping(MONITORED, mode="max", patience=patience, check_on_train_epoch_end=False)
