"""Early stopping, in runs that are resumed too."""

import lightning.pytorch as pl
import pytest

from seqclf.training.callbacks import EarlyStopping, early_stopping

# Lightning's advice on loader processes and on the folder a run is resumed in, and torch's on Lightning's trees
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:Checkpoint directory .* not empty",
    "ignore:The dirpath has changed",
)


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


def test_a_run_stopped_early_continues_only_with_more_patience(task, fit, tmp_path):
    still = {"optimizer": {"lr": 0.0}}
    trainer = fit(task(**still), callbacks=[early_stopping(2)], max_epochs=20, enable_checkpointing=False)
    trainer.save_checkpoint(tmp_path / "stopped.ckpt")
    for patience, expected in ((2, 0), (4, 2)):
        counted = CountValidations()
        fit(
            task(**still),
            tmp_path / "stopped.ckpt",
            callbacks=[early_stopping(patience), counted],
            max_epochs=20,
            enable_checkpointing=False,
        )
        assert counted.count == expected


def test_early_stopping_has_the_state_key_of_lightning():
    assert EarlyStopping("loss").state_key == pl.callbacks.EarlyStopping("loss").state_key
