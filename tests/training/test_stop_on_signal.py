"""A signal ends training with a checkpoint, and the resumed run equals an unbroken one."""

import os
import signal

import lightning.pytorch as pl
import pytest
import torch

from seqclf.system import signals
from seqclf.training.best_epoch import checkpoints, early_stopping
from seqclf.training.resume import _check_saver
from seqclf.training.stop_on_signal import StopOnSignal
from seqclf.training.training_log import EpochRecord

from .conftest import QUIET

pytestmark = QUIET


@pytest.fixture(autouse=True)
def handlers():
    """Install the handlers of a command, and restore those of pytest."""
    before = {number: signal.getsignal(number) for number in signals.SIGNALS}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts background jobs with SIGINT ignored
    signals.install()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class SignalAt(pl.Callback):
    def __init__(self, epoch, step, validating=False, signals=(signal.SIGTERM,)):
        self.when, self.validating, self.signals = (epoch, step), validating, signals

    def _send(self, trainer, batch_idx, validating):
        steps = trainer.num_training_batches
        if (trainer.current_epoch, batch_idx, validating) == (self.when[0], self.when[1] % steps, self.validating):
            for number in self.signals:
                os.kill(os.getpid(), number)

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self._send(trainer, batch_idx, False)

    def on_validation_batch_start(self, trainer, task, batch, batch_idx, dataloader_idx=0):
        self._send(trainer, batch_idx, True)


def hooks(folder, *more, shown=None):
    record = EpochRecord(folder / "metrics.csv", lambda row, *_: None if shown is None else shown.append(row))
    return [*more, record, *checkpoints(folder), StopOnSignal(folder / "last.ckpt", 60)]


LAST = -1


@pytest.mark.parametrize(
    ("moment", "accumulate", "every"),
    [
        ((0, 2), 1, 1.0),
        ((1, 3), 1, 1.0),
        ((1, LAST), 1, 1.0),
        ((1, 2), 2, 1.0),
        ((1, 1, True), 1, 1.0),
        ((1, 0, True), 1, 0.5),
    ],
)
def test_a_run_stopped_by_a_signal_ends_like_an_unbroken_one(task, fit, tmp_path, moment, accumulate, every):
    settings = {"max_epochs": 3, "accumulate_grad_batches": accumulate, "val_check_interval": every}
    rows = {"unbroken": [], "stopped": []}
    unbroken, first, second = task(), task(), task()
    fit(unbroken, callbacks=hooks(tmp_path / "unbroken", shown=rows["unbroken"]), **settings)
    folder = tmp_path / "stopped"
    with pytest.raises(signals.Terminated) as end, signals.deferred_signals():
        fit(first, callbacks=hooks(folder, SignalAt(*moment), shown=rows["stopped"]), **settings)
    assert end.value.code == 143 and not list(folder.glob(".*"))
    left = torch.load(folder / "last.ckpt", weights_only=True)
    assert left["epoch"] == moment[0], "at once, not at the end of the epoch"
    signals.install()
    fit(second, checkpoint=folder / "last.ckpt", callbacks=hooks(folder, shown=rows["stopped"]), **settings)
    for name, weight in unbroken.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name
    names = ("epoch", "step", "lr", "train/loss", "validation/loss", "validation/auroc")
    expected, recorded = ([{name: row[name] for name in names} for row in shown] for shown in rows.values())
    assert recorded == expected, "every epoch is validated once, on all its rows"


class CountSteps(pl.Callback):
    steps = 0

    def on_train_batch_start(self, *arguments):
        self.steps += 1


def test_a_second_signal_keeps_the_checkpoint_and_a_second_ctrl_c_does_not_wait(task, fit, tmp_path):
    count, twice = CountSteps(), SignalAt(0, 1, signals=[signal.SIGTERM, signal.SIGTERM])
    with pytest.raises(signals.Terminated) as end, signals.deferred_signals():
        fit(task(), callbacks=hooks(tmp_path / "first", twice, count))
    assert end.value.code == 143 and count.steps == 2
    assert torch.load(tmp_path / "first/last.ckpt", weights_only=True)["global_step"] == 2
    signals.install()
    twice = SignalAt(0, 1, signals=[signal.SIGINT, signal.SIGINT])
    with pytest.raises(signals.Terminated) as end, signals.deferred_signals():
        fit(task(), callbacks=hooks(tmp_path / "second", twice))
    assert end.value.code == 130 and not list((tmp_path / "second").glob("*.ckpt"))


def test_a_run_whose_epochs_are_all_trained_is_resumed_without_training(task, fit, tmp_path):
    first, second, count = checkpoints(tmp_path / "first"), checkpoints(tmp_path / "second"), CountSteps()
    records = [EpochRecord(tmp_path / name / "metrics.csv", lambda *_: None) for name in ("first", "second")]
    unbroken, resumed = task(), task()
    fit(unbroken, callbacks=[records[0], *first], max_epochs=2)
    settings = {"max_epochs": 2, "callbacks": [records[1], *second, count]}
    fit(resumed, checkpoint=tmp_path / "first/last.ckpt", **settings)
    assert count.steps == 0
    assert records[1].history == records[0].history
    assert (tmp_path / "second/metrics.csv").read_text() == (tmp_path / "first/metrics.csv").read_text()
    assert second[0].best_model_path == str(tmp_path / "second/best.ckpt")
    assert (tmp_path / "second/best.ckpt").read_bytes() == (tmp_path / "first/best.ckpt").read_bytes()


@pytest.mark.parametrize(("patience", "epochs"), [(2, 3), (4, 5)])
def test_a_run_that_stopped_early_resumes_only_with_more_patience(task, fit, tmp_path, patience, epochs):
    def run(patience, **options):
        record = EpochRecord(tmp_path / "metrics.csv", lambda *_: None)
        callbacks = [early_stopping(patience), record, *checkpoints(tmp_path)]
        fit(task(optimizer={"lr": 0.0}), callbacks=callbacks, max_epochs=10, **options)
        return len(record.history)

    assert run(2) == 3
    assert run(patience, checkpoint=tmp_path / "last.ckpt") == epochs


def test_the_best_checkpoint_is_copied_from_a_folder_that_was_moved(task, fit, tmp_path):
    fit(task(), callbacks=checkpoints(tmp_path / "first"), max_epochs=1)
    (tmp_path / "first").rename(tmp_path / "moved")
    last = tmp_path / "moved/last.ckpt"
    best, *others = checkpoints(tmp_path / "second", resumed=last)
    fit(task(), checkpoint=last, callbacks=[best, *others], max_epochs=1)
    assert best.best_model_path == str(tmp_path / "second/best.ckpt")
    assert (tmp_path / "second/best.ckpt").is_file()


@pytest.mark.parametrize("every", [None, 1])
def test_a_run_resumed_in_another_folder_and_stopped_there_can_be_resumed_again(task, fit, tmp_path, every):
    checkpoint = None
    for number, (epoch, batch) in enumerate([(0, 1), (1, 1), (2, 1)]):
        folder = tmp_path / str(number)
        stop = SignalAt(epoch, batch)
        callbacks = [*checkpoints(folder, every, checkpoint), stop, StopOnSignal(folder / "last.ckpt", 60)]
        with pytest.raises(signals.Terminated), signals.deferred_signals():
            fit(task(), checkpoint=checkpoint, callbacks=callbacks, max_epochs=4)
        signals.install()
        checkpoint = folder / "last.ckpt"
        savers = torch.load(checkpoint, weights_only=True)["callbacks"]
        savers = {name: state for name, state in savers.items() if "dirpath" in state}
        assert savers
        for name, state in savers.items():
            assert state["dirpath"] == str(folder)
            _check_saver(name, state)


class SignalAtEpochEnd(pl.Callback):
    def on_train_epoch_end(self, trainer, task):
        if trainer.current_epoch == 1:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_signal_at_the_end_of_an_epoch_without_a_checkpoint_writes_one(task, fit, tmp_path):
    """`last.ckpt` follows the validations, which are here at the end of every fourth epoch."""
    callbacks = [SignalAtEpochEnd(), *checkpoints(tmp_path, epochs=4), StopOnSignal(tmp_path / "last.ckpt", 60)]
    with pytest.raises(signals.Terminated), signals.deferred_signals():
        fit(task(), callbacks=callbacks, max_epochs=8, check_val_every_n_epoch=4)
    assert torch.load(tmp_path / "last.ckpt", weights_only=True)["epoch"] == 1
