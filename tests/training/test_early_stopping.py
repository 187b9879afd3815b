"""Early stopping, in runs that are resumed too."""

import copy

import lightning.pytorch as pl
import pytest
import torch

from seqclf.training.best_epoch import EarlyStopping, HeadStopping, early_stopping

from .conftest import HEADS, QUIET, SaveAt

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


@pytest.mark.parametrize(("patience", "least"), [(2, 1), (1, 11)])
def test_a_stopped_head_keeps_its_best_average_and_a_resumed_run_too(task, fit, tmp_path, patience, least):
    """Its own validation loss decides, nothing moves it afterwards, and the training ends with the last head."""
    seen = []

    class Record(SaveAt):
        def on_validation_epoch_end(self, trainer, task):
            seen.append({name: copy.deepcopy(head.state_dict()) for name, head in task.model.trained_heads.items()})

    moments = [(epoch, moment) for epoch in (2, 5, 8) for moment in (1, "end")]
    save, unbroken = Record(tmp_path, moments), task(model=HEADS, optimizer={"lr": 0.1})
    stopping = HeadStopping(patience)
    settings = {"max_epochs": 12, "min_epochs": least, "enable_checkpointing": True}
    trainer = fit(unbroken, callbacks=[stopping, save], **settings)
    found = stopping.found
    ends = {name: state["epoch"] + state["waited"] for name, state in found.items() if state["stopped"]}
    assert len(ends) == 4 and min(ends.values()) < max(ends.values()) == trainer.current_epoch < 12, ends
    assert trainer.current_epoch >= least
    for name in ends:
        best = seen[found[name]["epoch"] - 1][name]
        for key, value in unbroken.model.trained_heads[name].state_dict().items():
            assert torch.equal(value, best[key]), (name, key)
    for moment, checkpoint in save.saved.items():
        resumed = task(model=HEADS, optimizer={"lr": 0.1})
        fit(resumed, checkpoint, callbacks=[HeadStopping(patience)], **settings)
        for key, value in unbroken.state_dict().items():
            assert torch.equal(value, resumed.state_dict()[key]), (moment, key)
    other, stopping = task(model=HEADS, optimizer={"lr": 0.1}), HeadStopping(1)  # another patience, best weights too
    fit(other, save.saved[5, "end"], callbacks=[stopping], **settings)
    for name, head in other.model.trained_heads.items():
        assert all(torch.equal(value, stopping.found[name]["weights"][key]) for key, value in head.state_dict().items())
