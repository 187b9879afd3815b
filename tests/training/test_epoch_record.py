"""Record of the epochs: rows, validation scores, speed, loggers."""

import numpy as np
import pytest
from support.run_records import RecordingLogger, read_rows

from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.training.training_log import COLUMNS, EpochRecord

from .conftest import QUIET

pytestmark = QUIET


def test_every_epoch_has_a_row(task, fit, batches, tmp_path):
    shown, path, module = [], tmp_path / "metrics.csv", task()
    fit(module, callbacks=[EpochRecord(path, lambda row, _: shown.append(row))], max_epochs=3)
    rows = read_rows(path)
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2] == [row["epoch"] for row in shown]
    assert list(rows[0]) == COLUMNS
    assert all(np.isfinite(float(value)) for row in rows for name, value in row.items())
    loader, steps = batches.train_dataloader(), []
    for epoch in range(3):
        loader.sampler.set_epoch(epoch)
        steps.append(len(loader))
    assert [int(row["step"]) for row in rows] == np.cumsum(steps).tolist()


def test_every_logger_gets_the_speed_of_each_epoch(task, fit, splits, tmp_path):
    logger, path = RecordingLogger(), tmp_path / "metrics.csv"
    fit(task(), callbacks=[EpochRecord(path, lambda *_: None)], logger=logger, log_every_n_steps=1, max_epochs=2)
    logged = [(step, metrics) for step, metrics in logger.logged if "system/step_ms" in metrics]
    lengths = splits["train"].sequences.lengths
    for (step, metrics), row in zip(logged, read_rows(path), strict=True):
        assert step == int(row["step"]) and metrics["epoch"] == int(row["epoch"])
        plan = {"max_tokens": 120, "max_sequences": 9, "pool_batches": 3, "overhead": 2, "seed": 0}
        batches = plan_batches(lengths, **plan, epoch=metrics["epoch"])
        assert metrics["system/padding_efficiency"] == pytest.approx(padding_efficiency(lengths, batches), abs=1e-4)
        seconds = lengths.sum() / metrics["system/tokens_per_s"]
        assert metrics["system/step_ms"] == pytest.approx(1e3 * seconds / len(batches), rel=0.01)
        assert 50 < metrics["system/memory_mb"] < 50_000


def test_every_logger_gets_the_scores_of_each_epoch_once(task, fit, tmp_path):
    logger, path = RecordingLogger(), tmp_path / "metrics.csv"
    fit(task(), callbacks=[EpochRecord(path, lambda *_: None)], logger=logger, log_every_n_steps=1, max_epochs=3)
    for split, name in (("train", "recall"), ("validation", "loss"), ("validation", "auroc")):
        logged = [
            (step, each["epoch"], each[f"{split}/{name}"]) for step, each in logger.logged if f"{split}/{name}" in each
        ]
        rows = [(int(row["step"]), int(row["epoch"]), float(row[f"{split}/{name}"])) for row in read_rows(path)]
        assert logged == rows and len(rows) == 3
    by_class = [each for _, each in logger.logged if "validation/recall/odd" in each]
    assert len(by_class) == 3 and not any("train/recall/odd" in each for _, each in logger.logged)


def test_an_epoch_without_validation_is_recorded_and_not_shown(task, fit, tmp_path):
    shown = []
    record = EpochRecord(tmp_path / "metrics.csv", lambda row, _: shown.append(row["epoch"]))
    fit(task(), callbacks=[record], max_epochs=4, check_val_every_n_epoch=2)
    assert shown == [1, 3]
    validated = [any(name.startswith("validation/") for name in row) for row in record.history]
    assert validated == [False, True, False, True]
