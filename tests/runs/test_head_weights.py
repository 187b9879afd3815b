"""Weights of heads, which validation rows set after a training: who gets them, and when they are equal again."""

import numpy as np
import pyarrow as pa
import pytest
import torch

import seqclf
from seqclf import InputError
from seqclf.models.auto.head import Head
from seqclf.training.task import SequenceTask, lacks_validation, load_task

SETTINGS = ["logger=none", "trainer.accelerator=cpu", "export=false", "baseline=false", "trainer.max_epochs=2"]
SETTINGS += ["model.hidden_size=8", "model.embedding_size=8", "model.projection_size=8"]


class Counts(Head):
    def __init__(self, front, fields, num_classes):
        super().__init__(front, fields, num_classes)
        self.linear = torch.nn.Linear(front.statistic_size, num_classes)

    def forward(self, fields, lengths, host_lengths, reading):
        return self.linear(reading.statistics)


def rows(count, seed=0):
    generator = np.random.default_rng(seed)
    tokens = [generator.choice(list("abcd"), generator.integers(2, 9)).tolist() for _ in range(count)]
    return pa.table({"code": tokens, "label": ["yes" if row.count("a") > row.count("b") else "no" for row in tokens]})


def train(folder, *overrides, test=None):
    settings = [*SETTINGS, f"data.cache_dir={folder.parent / 'cache'}", *overrides]
    return seqclf.fit(rows(150), label="label", test=test, overrides=settings, folder=folder)


def weights_of(path):
    return load_task(path, trust=[Counts.__module__.partition(".")[0]]).model.weights[0]


def test_rows_that_set_weights_of_heads_are_not_independent(tmp_path):
    run = train(tmp_path / "alone")
    assert run.metrics["validation"]["used_for"] == ["weights of the heads"]
    assert "used_for" not in train(tmp_path / "tested", test=rows(100, 1)).metrics["test"]


def test_a_finished_run_with_a_head_of_ones_own_is_evaluated_again(tmp_path):
    heads = f"model.heads=[recurrent,ngrams,{{_target_: {Counts.__module__}.Counts}}]"
    before = train(tmp_path / "run", heads)
    again = train(tmp_path / "run", heads, "checkpoint=auto")
    assert again.metrics["validation"]["loss"] == pytest.approx(before.metrics["validation"]["loss"], abs=1e-7)


def test_a_training_that_goes_on_has_equal_weights(tmp_path):
    """Validations in the training compare epochs, all of them with the same weights."""
    more = ["optimizer.schedule.decay=none", "optimizer.schedule.warmup=0", "trainer.max_epochs=3"]
    train(tmp_path / "first", *more[:2])
    model, best = (tmp_path / "first" / name for name in ("model.ckpt", "checkpoints/best.ckpt"))
    assert len(set(weights_of(model).tolist())) > 1 == len(set(weights_of(best).tolist()))
    assert [lacks_validation(path, load_task(path)) for path in (model, best)] == [False, True]
    losses = []
    for folder, start in [("second", f"checkpoint={best}"), ("unbroken", "checkpoint=null")]:
        train(tmp_path / folder, *more, start)
        lines = [line.split(",") for line in (tmp_path / folder / "metrics.csv").read_text().splitlines()]
        losses.append(float(lines[-1][lines[0].index("validation/loss")]))
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


def test_a_training_that_starts_from_a_finished_model_has_equal_weights(tmp_path):
    first = train(tmp_path / "first")
    again = train(tmp_path / "again", f"start={first.folder / 'model.ckpt'}", "trainer.max_epochs=1")
    assert len(set(weights_of(again.folder / "checkpoints/last.ckpt").tolist())) == 1


def test_a_trainer_of_ones_own_must_give_the_training_rows(tmp_path):
    import lightning.pytorch as pl

    settings = ["data=toy", f"data.cache_dir={tmp_path}"]
    dataset = seqclf.load_data(None, label=None, overrides=settings)
    batches = seqclf.SequenceDataModule(dataset.splits)
    trainer = pl.Trainer(max_steps=1, logger=False, accelerator="cpu", barebones=True)
    batches.trainer = trainer
    with pytest.raises(InputError, match="give it a SequenceDataModule"):
        trainer.fit(SequenceTask(dataset.description()), batches.train_dataloader(), batches.val_dataloader())
