"""Training on two ranks: a run that is stopped inside an epoch and resumed equals an unbroken one."""

import os
import signal

import lightning.pytorch as pl
import pytest
import torch

from seqclf.system import signals
from seqclf.training.best_epoch import checkpoints
from seqclf.training.stop_on_signal import StopOnSignal
from seqclf.training.training_log import EpochRecord

from .conftest import HEADS

SCORES = ("epoch", "step", "train/loss", "train/recall", "train/accuracy", "validation/loss", "validation/f2")
F2 = {"_target_": "torchmetrics.classification.MulticlassFBetaScore", "num_classes": 3, "beta": 2.0, "name": "f2"}


class SignalAt(pl.Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, trainer, *arguments):
        if trainer.global_step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


def train_on_rank(rank, folder, fit, task, model):
    """Train unbroken, then stopped by a signal to rank 1 and resumed. Writes what was recorded and the weights."""
    found = {}

    def train(name, *more, checkpoint=None):
        module = task(monitor="f2", optimizer={"average": 0.9}, model=model, metrics=[F2])
        record = EpochRecord(folder / name / "metrics.csv", lambda *_: None)
        hooks = [record, *checkpoints(folder / name), *more, StopOnSignal(folder / name / "last.ckpt", 60)]
        signals.install()
        try:
            with signals.deferred_signals():
                fit(module, checkpoint, callbacks=hooks, max_epochs=3, strategy="ddp", devices=2)
        except signals.Terminated:
            found["stopped"] = module.trainer.global_step
        return [{score: row[score] for score in SCORES} for row in record.history], module.state_dict()

    found["unbroken"] = train("unbroken")
    train("stopped", *([SignalAt(9)] if rank == 1 else []))
    found["resumed"] = train("stopped", checkpoint=folder / "stopped/last.ckpt")
    torch.save(found, folder / f"{rank}.pt")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", [{}, HEADS], ids=["recurrent", "heads"])
def test_a_run_stopped_on_one_rank_inside_an_epoch_ends_like_an_unbroken_one(tmp_path, fit, task, on_ranks, model):
    on_ranks(2, train_on_rank, tmp_path, fit, task, model)
    for found in (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in range(2)):
        (rows, weights), (resumed_rows, resumed_weights) = found["unbroken"], found["resumed"]
        assert rows[-1]["step"] > found["stopped"] > rows[0]["step"], "inside an epoch"
        assert found["stopped"] == 10, "all ranks learn of the signal one batch later"
        assert resumed_rows == rows
        for name, weight in weights.items():
            assert torch.equal(weight, resumed_weights[name]), name
