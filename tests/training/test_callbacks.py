"""The record of each epoch, and the end of training."""

import csv

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.evaluation.metrics import classification_metrics, softmax
from seqclf.training.callbacks import EarlyStopping, checkpoints, early_stopping
from seqclf.training.epoch_record import COLUMNS, EpochRecord
from seqclf.training.inference import predict_logits
from seqclf.training.schedule import schedule_factor

# Lightning's advice on loader processes and on the folder a run is resumed in, and torch's on Lightning's trees
pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:Checkpoint directory .* not empty",
    "ignore:The dirpath has changed",
)


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_every_epoch_leaves_a_row(task, fit, batches, tmp_path):
    shown, path, module = [], tmp_path / "metrics.csv", task()
    fit(module, callbacks=[EpochRecord(path, lambda row, monitor: shown.append(row))], max_epochs=3)
    rows = rows_of(path)
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2] == [row["epoch"] for row in shown]
    assert list(rows[0]) == COLUMNS
    assert all(np.isfinite(float(value)) for row in rows for name, value in row.items() if name != "observation")
    assert all(row["observation"] for row in rows)
    loader, steps = batches.train_dataloader(), []
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        steps.append(len(loader))
    assert [int(row["step"]) for row in rows] == np.cumsum(steps).tolist()


def test_the_recorded_validation_is_that_of_the_whole_split(task, fit, batches, tmp_path):
    module = task()
    fit(module, callbacks=[EpochRecord(tmp_path / "metrics.csv", lambda *_: None)], max_epochs=2)
    labels, logits = predict_logits(module, batches.evaluation_loader("validation"))
    expected = classification_metrics(labels, softmax(logits), module.classes, None)
    last = rows_of(tmp_path / "metrics.csv")[-1]
    for name in ("loss", "accuracy", "recall", "precision", "f1", "average_precision", "auroc"):
        assert float(last[f"validation/{name}"]) == pytest.approx(expected[name], rel=1e-5)


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


def test_a_run_that_lost_patience_is_not_trained_on_but_with_more_patience(task, fit, tmp_path):
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


def test_the_state_of_early_stopping_goes_by_the_name_of_lightnings():
    assert EarlyStopping("loss").state_key == pl.callbacks.EarlyStopping("loss").state_key


def test_the_best_checkpoint_is_of_the_best_epoch(task, fit, tmp_path):
    record = EpochRecord(tmp_path / "metrics.csv", lambda *_: None)
    fit(task(monitor="loss", optimizer={"lr": 0.05}), callbacks=[record, *checkpoints(tmp_path)], max_epochs=5)
    losses = [row["validation/loss"] for row in record.history]
    best = torch.load(tmp_path / "best.ckpt", weights_only=True)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert (best["epoch"], last["epoch"]) == (int(np.argmin(losses)), 4)


class StopAfter(pl.Callback):
    def __init__(self, epoch: int):
        self.epoch = epoch

    def on_train_epoch_end(self, trainer, task):
        trainer.should_stop = trainer.current_epoch == self.epoch


@pytest.mark.parametrize(("layout", "num_workers"), [("padded", 0), ("packed", 0), ("padded", 1)])
def test_a_resumed_run_ends_in_the_weights_of_an_unbroken_one(task, fit, tmp_path, layout, num_workers):
    options = {"model": {"layout": layout}}
    folders = [tmp_path / name for name in ("whole", "part")]

    def hooks(folder):
        return [EpochRecord(folder / "metrics.csv", lambda *_: None), *checkpoints(folder)]

    whole, part, resumed = task(**options), task(**options), task(**options, seed=0)
    settings = {"max_epochs": 4, "batching": {"num_workers": num_workers}}
    fit(whole, callbacks=hooks(folders[0]), **settings)
    fit(part, callbacks=[*hooks(folders[1]), StopAfter(1)], **settings)
    assert len(rows_of(folders[1] / "metrics.csv")) == 2
    fit(resumed, checkpoint=folders[1] / "last.ckpt", callbacks=hooks(folders[1]), **settings)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
    measured = {"seconds", "tokens_per_s", "step_ms", "memory_mb"}
    first, second = (
        [{k: v for k, v in row.items() if k not in measured} for row in rows_of(f / "metrics.csv")] for f in folders
    )
    assert first == second, "the resumed run keeps the rows of the epochs before it"


class KeptLogger(pl.loggers.logger.Logger):
    name, version = "kept", 0

    def __init__(self):
        super().__init__()
        self.kept = []

    def log_hyperparams(self, *arguments):
        pass

    def log_metrics(self, metrics, step=None):
        self.kept.append((step, metrics))


def test_every_logger_is_told_the_speed_of_each_epoch(task, fit, splits, tmp_path):
    logger, path = KeptLogger(), tmp_path / "metrics.csv"
    fit(task(), callbacks=[EpochRecord(path, lambda *_: None)], logger=logger, log_every_n_steps=1, max_epochs=2)
    told = [(step, metrics) for step, metrics in logger.kept if "system/step_ms" in metrics]
    lengths = splits["train"].sequences.lengths
    for (step, metrics), row in zip(told, rows_of(path), strict=True):
        assert step == int(row["step"]) and metrics["epoch"] == int(row["epoch"])
        plan = {"max_tokens": 120, "max_sequences": 9, "pool_batches": 3, "overhead": 2, "seed": 0}
        batches = plan_batches(lengths, **plan, epoch=metrics["epoch"])
        assert metrics["system/padding_efficiency"] == pytest.approx(padding_efficiency(lengths, batches), abs=1e-4)
        seconds = lengths.sum() / metrics["system/tokens_per_s"]
        assert metrics["system/step_ms"] == pytest.approx(1e3 * seconds / len(batches), rel=0.01)
        assert 50 < metrics["system/memory_mb"] < 50_000


def test_every_logger_is_told_the_scores_of_each_epoch_once(task, fit, tmp_path):
    logger, path = KeptLogger(), tmp_path / "metrics.csv"
    fit(task(), callbacks=[EpochRecord(path, lambda *_: None)], logger=logger, log_every_n_steps=1, max_epochs=3)
    for split, name in (("train", "recall"), ("validation", "loss"), ("validation", "auroc")):
        told = [
            (step, each["epoch"], each[f"{split}/{name}"]) for step, each in logger.kept if f"{split}/{name}" in each
        ]
        rows = [(int(row["step"]), int(row["epoch"]), float(row[f"{split}/{name}"])) for row in rows_of(path)]
        assert told == rows and len(rows) == 3
    by_class = [each for _, each in logger.kept if "validation/recall/odd" in each]
    assert len(by_class) == 3 and not any("train/recall/odd" in each for _, each in logger.kept)


class KeepLosses(pl.Callback):
    """The mean loss of each batch; `after`: of the last batch before so many updates were done."""

    def __init__(self):
        self.losses, self.after = [], {}

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        self.after.setdefault(trainer.global_step, self.losses[-1])

    def on_train_start(self, trainer, task):
        step = task.training_step

        def kept(batch, batch_idx):
            loss = step(batch, batch_idx)
            self.losses.append(loss.item() / batch.weight)
            return loss

        task.training_step = kept


@pytest.mark.parametrize("accumulate", [1, 2])
def test_every_nth_step_is_logged_once(task, fit, accumulate):
    logger, keep = KeptLogger(), KeepLosses()
    options = {"log_every_n_steps": 4, "accumulate_grad_batches": accumulate, "max_epochs": 2}
    module = task()
    fit(module, callbacks=[keep], logger=logger, enable_checkpointing=False, **options)
    told = [(step, metrics) for step, metrics in logger.kept if "train/step_loss" in metrics]
    last = module.trainer.global_step
    rate = schedule_factor(module.trainer.estimated_stepping_batches, **module.optimizer["schedule"])
    assert accumulate > 1 or last == len(keep.losses)
    assert [step for step, _ in told] == list(range(4, last + 1, 4)) and len(told) > 1
    for step, metrics in told:
        assert metrics["train/step_loss"] == pytest.approx(keep.after[step], rel=1e-6)
        assert metrics["lr"] == pytest.approx(0.01 * rate(step - 1), rel=1e-6)


class BreakOff(pl.Callback):
    """Ends a run after a step of an epoch, as a lost machine would: with what was written by then."""

    def __init__(self, epoch: int, step: int):
        self.place = (epoch, step)

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        if (trainer.current_epoch, batch_idx) == self.place:
            raise ConnectionError


@pytest.mark.parametrize(("num_workers", "threaded"), [(0, False), (0, True), (1, False)])
def test_a_run_broken_off_twice_inside_an_epoch_ends_in_the_weights_of_an_unbroken_one(
    task, fit, tmp_path, num_workers, threaded, monkeypatch
):
    def hooks(folder):
        return [EpochRecord(folder / "metrics.csv", lambda *_: None), *checkpoints(folder, 2)]

    monkeypatch.setattr(SequenceDataModule, "_threaded", lambda self: threaded)
    settings = {"max_epochs": 3, "batching": {"num_workers": num_workers}}
    whole, parts = task(), [task() for _ in range(3)]
    folders = [tmp_path / "whole", tmp_path / "part"]
    trainer = fit(whole, callbacks=hooks(folders[0]), **settings)
    assert trainer.global_step > 3 * 6, "or else there is no inside"
    for module, end in zip(parts, [BreakOff(1, 3), BreakOff(1, 5), None], strict=True):
        left = folders[1] / "last.ckpt"
        chosen = {
            "checkpoint": left if left.exists() else None,
            "callbacks": [*hooks(folders[1]), *([end] if end else [])],
        }
        if end is None:
            fit(module, **chosen, **settings)
        else:
            with pytest.raises(ConnectionError):
                fit(module, **chosen, **settings)
    for name, weight in whole.state_dict().items():
        assert torch.equal(weight, parts[-1].state_dict()[name]), name
    first, second = (
        [{k: row[k] for k in ("epoch", "step", "train/loss", "validation/loss")} for row in rows_of(f / "metrics.csv")]
        for f in folders
    )
    assert first == second, "the metrics of a resumed epoch are of all its steps"


class CountRows(pl.Callback):
    def __init__(self):
        self.rows = []

    def on_train_epoch_start(self, trainer, task):
        self.rows.append([])

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.rows[-1] += batch.ids.tolist()


def test_every_epoch_trains_on_every_row_once_however_many_batches_it_has(task, fit, splits):
    seen, plan = CountRows(), {"max_tokens": 40, "max_sequences": None, "pool_batches": 2, "overhead": 2}
    fit(task(), callbacks=[seen], batching=plan, max_epochs=12, enable_checkpointing=False)
    assert [sorted(rows) for rows in seen.rows] == [list(range(len(splits["train"].labels)))] * 12
    lengths = splits["train"].sequences.lengths
    counts = [len(plan_batches(lengths, **plan, seed=0, epoch=epoch)) for epoch in range(12)]
    assert max(counts) > counts[0], "or else there is nothing to see"


def test_a_run_resumed_in_another_folder_remembers_its_best_epoch(task, fit, tmp_path):
    settings = {"monitor": "loss", "optimizer": {"lr": 0.05}}
    whole, first, second = (checkpoints(tmp_path / name) for name in ("whole", "first", "second"))
    fit(task(**settings), callbacks=whole, max_epochs=5)
    best = torch.load(whole[0].best_model_path, weights_only=True)["epoch"]
    assert best <= 3, "or else there is nothing to remember"
    fit(task(**settings), callbacks=[*first, StopAfter(3)], max_epochs=5)
    fit(task(**settings), checkpoint=tmp_path / "first/last.ckpt", callbacks=second, max_epochs=5)
    assert torch.load(second[0].best_model_path, weights_only=True)["epoch"] == best
