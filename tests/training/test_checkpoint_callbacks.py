"""Checkpoints and logging, in runs that are resumed too."""

from contextlib import nullcontext

import lightning.pytorch as pl
import pytest
import torch
from support.run_records import RecordingLogger, read_rows

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.training.best_epoch import checkpoints
from seqclf.training.optimizer import schedule_factor
from seqclf.training.training_log import EpochRecord

from .conftest import QUIET, StopAfter

pytestmark = QUIET


class RecordSteps(pl.Callback):
    """Records the mean loss of each batch, and by optimizer step that of its last batch and the norm of all gradients.

    The norm is computed in a plain way, before the gradients are clipped.
    """

    def __init__(self):
        self.losses, self.after, self.norms = [], {}, {}

    def on_before_optimizer_step(self, trainer, task, optimizer):
        squares = [float((weight.grad.double() ** 2).sum()) for weight in task.parameters()]
        self.norms[trainer.global_step + 1] = sum(squares) ** 0.5

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.after.setdefault(trainer.global_step, self.losses[-1])

    def on_train_start(self, trainer, task):
        step = task.training_step

        def recorded(batch, batch_idx):
            loss = step(batch, batch_idx)
            self.losses.append(loss.item() / batch.weight)
            return loss

        task.training_step = recorded


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_first_and_every_nth_step_is_logged_once(task, fit, accumulate):
    logger, keep = RecordingLogger(), RecordSteps()
    options = {
        "log_every_n_steps": 4,
        "accumulate_grad_batches": accumulate,
        "max_epochs": 2,
        "gradient_clip_val": 1e-3,
    }
    module = task()
    fit(module, callbacks=[keep], logger=logger, enable_checkpointing=False, **options)
    logged = [(step, metrics) for step, metrics in logger.logged if "train/step_loss" in metrics]
    last = module.trainer.global_step
    rate = schedule_factor(module.trainer.estimated_stepping_batches, **module.optimizer["schedule"])
    assert accumulate > 1 or last == len(keep.losses)
    assert [step for step, _ in logged] == [1, *range(4, last + 1, 4)] and len(logged) > 2
    for step, metrics in logged:
        assert metrics["train/step_loss"] == pytest.approx(keep.after[step], rel=1e-6)
        assert metrics["train/gradient_norm"] == pytest.approx(keep.norms[step], rel=1e-5)
        assert metrics["lr"] == pytest.approx(0.01 * rate(step - 1), rel=1e-6)


class CrashAt(pl.Callback):
    """Ends a run at a batch of an epoch by an exception, as a lost machine would."""

    def __init__(self, epoch: int, step: int):
        self.position = (epoch, step)

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == self.position:
            raise ConnectionError


@pytest.mark.parametrize(("num_workers", "threaded"), [(0, False), (0, True), (1, False)])
def test_a_run_that_crashed_twice_inside_an_epoch_ends_in_the_weights_of_an_unbroken_one(
    task, fit, tmp_path, num_workers, threaded, monkeypatch
):
    def hooks(folder):
        return [EpochRecord(folder / "metrics.csv", lambda *_: None), *checkpoints(folder, 2)]

    monkeypatch.setattr(SequenceDataModule, "_threaded", lambda self: threaded)
    settings = {"max_epochs": 3, "batching": {"num_workers": num_workers}}
    unbroken, parts = task(), [task() for _ in range(3)]
    folders = [tmp_path / "unbroken", tmp_path / "parts"]
    trainer = fit(unbroken, callbacks=hooks(folders[0]), **settings)
    assert trainer.global_step > 3 * 6, "else no checkpoint is inside an epoch"
    for module, end in zip(parts, [CrashAt(1, 3), CrashAt(1, 5), None], strict=True):
        left = folders[1] / "last.ckpt"
        callbacks = [*hooks(folders[1]), *([end] if end else [])]
        with pytest.raises(ConnectionError) if end else nullcontext():
            fit(module, left if left.exists() else None, callbacks=callbacks, **settings)
    for name, weight in unbroken.state_dict().items():
        assert torch.equal(weight, parts[-1].state_dict()[name]), name
    first, second = (
        [
            {k: row[k] for k in ("epoch", "step", "train/loss", "validation/loss")}
            for row in read_rows(f / "metrics.csv")
        ]
        for f in folders
    )
    assert first == second, "the metrics of a resumed epoch are of all its steps"


def test_a_run_resumed_in_another_folder_keeps_its_best_epoch(task, fit, tmp_path):
    settings = {"monitor": "loss", "optimizer": {"lr": 0.05}}
    unbroken, first, second = (checkpoints(tmp_path / name) for name in ("unbroken", "first", "second"))
    fit(task(**settings), callbacks=unbroken, max_epochs=5)
    best = torch.load(unbroken[0].best_model_path, weights_only=True)["epoch"]
    assert best <= 3, "else the best epoch comes after the resume"
    fit(task(**settings), callbacks=[*first, StopAfter(3)], max_epochs=5)
    fit(task(**settings), checkpoint=tmp_path / "first/last.ckpt", callbacks=second, max_epochs=5)
    assert torch.load(second[0].best_model_path, weights_only=True)["epoch"] == best
