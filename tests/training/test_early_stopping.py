"""Early stopping, in runs that are resumed too."""

import lightning.pytorch as pl
import pytest

from seqclf.training.callbacks import EarlyStopping, early_stopping

from .conftest import QUIET

pytestmark = QUIET


class CountValidations(pl.Callback):
    def __init__(self):
        self.count = 0

    def on_validation_end(self, trainer, task):
        self.count += 1


@pytest.mark.parametrize(
    "settings", [{}, {"check_val_every_n_epoch": 3}, {"val_check_interval": 0.5}, {"limit_train_batches": 2}], ids=str
)
def test_patience_counts_validations(task, fit, settings):
    counted = CountValidations()
    stopping = early_stopping(2)
    fit(
        task(optimizer={"lr": 0.0}),
        callbacks=[stopping, counted],
        max_epochs=20,
        enable_checkpointing=False,
        **settings,
    )
    assert counted.count == 3, "the first validation, and two that are no better"


def test_early_stopping_has_the_state_key_of_lightning():
    assert EarlyStopping("loss").state_key == pl.callbacks.EarlyStopping("loss").state_key
