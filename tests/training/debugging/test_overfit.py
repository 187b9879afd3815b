"""A model that can learn learns one batch by heart; one that cannot is told what is wrong."""

from dataclasses import replace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import nn

from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.models.heads.masked_norm import MaskedNorm
from seqclf.training.debugging.overfit import (
    LossCurve,
    chosen_rows,
    contradictions,
    normalise_by_batch,
    overfit,
    without_regularisation,
)

PLAIN = {"dropout": 0.0, "token_dropout": 0.0, "number_noise": 0.0}
STEADY = {"lr": 0.03, "weight_decay": 0.0, "schedule": {"warmup": 0.0, "decay": "none", "floor": 0.0}}


@pytest.fixture
def train(task, splits, data_module, tmp_path):
    """`train(change, splits=…, model={…}, optimizer={…}, steps=60)` trains on one batch and returns the record."""

    def run(change=lambda module: None, splits=splits, steps=80, model=(), optimizer=(), batching=()):
        module = task(model={**PLAIN, **dict(model)}, optimizer={**STEADY, **dict(optimizer)})
        change(module)
        losses = LossCurve()
        trainer = pl.Trainer(
            default_root_dir=tmp_path, accelerator="cpu", logger=False, enable_checkpointing=False, callbacks=[losses],
            enable_progress_bar=False, enable_model_summary=False, max_epochs=1, max_steps=steps, limit_val_batches=0,
        )  # fmt: skip
        return overfit(trainer, module, data_module(splits, **dict(batching)), losses, goal=0.05, steps=steps)

    return run


@pytest.mark.parametrize("members", [1, 2])
def test_a_sound_model_learns_its_batch(train, members):
    record = train(model={"members": members})
    assert record.learned and not record.advice() and not record.notes()
    assert record.losses[-1] <= 0.05 < record.losses[0] and len(record.losses) < 80
    assert record.labels > 1 and record.accuracy == 1 and not record.unchanged


def test_normalization_layers_take_the_statistics_of_the_batch_and_dropout_stays_off():
    network = nn.Sequential(nn.BatchNorm1d(2), MaskedNorm(2), nn.Dropout(0.9)).eval()
    values = 5 + 3 * torch.randn(64, 2)
    assert network(values).mean() > 3, "running statistics of no batch"
    normalise_by_batch(network)
    assert network(values).mean().abs() < 1e-4 and 0.9 < network(values).std() < 1.1


def test_the_chosen_batch_has_the_most_labels(splits, data_module):
    labels = splits["train"].labels
    batches = data_module(splits)
    rows = chosen_rows(batches, labels)
    assert len(np.unique(labels[rows])) == max(
        len(np.unique(labels[other])) for other in batches.train_dataloader().sampler.batches
    )


def test_dropout_of_any_network_is_off(train):
    networks = []

    def add(task):
        task.model.norm = nn.Sequential(task.model.norm, nn.Dropout(0.9), nn.LSTM(2, 2, 2, dropout=0.5))
        networks.append(task.model.norm)
        task.model.norm.forward = lambda values: networks[0][1](networks[0][0](values))

    assert train(add, steps=2).losses
    assert networks[0][1].p == networks[0][2].dropout == 0.0


def test_a_network_that_ignores_its_input_is_recognised(train):
    class Zeros(nn.Module):
        def forward(self, values):
            return values * 0

    record = train(lambda task: setattr(task.model, "norm", Zeros()))
    assert not record.learned and record.text().startswith("NOT LEARNED")
    assert record.constant and "all rows have the same logits" in record.advice()[0]
    assert f"{len(record.wrong)} of {record.rows} rows are still wrong" in record.advice()[-1]
    assert "never changed (frozen or unused): embedding.layers.0.weight" in record.notes()[0]


def test_frozen_weights_are_named(train):
    record = train(lambda task: task.model.embedding.requires_grad_(False))
    assert record.learned
    assert record.notes() == [
        "3 of 15 weights never changed (frozen or unused): embedding.layers.0.weight, embedding.layers.1.weight, "
        "embedding.layers.1.bias"
    ]


@pytest.mark.parametrize(
    ("rate", "advice"),
    [
        (1e-7, "the loss does not move: raise optimizer.lr (now 1e-07)"),
        (3e-4, "the loss still falls: raise debug.steps"),
    ],
)
def test_a_learning_rate_that_is_too_low_is_recognised(train, rate, advice):
    record = train(optimizer={"lr": rate}, steps=40)
    assert not record.learned and advice in record.advice()[0]


def test_a_learning_rate_that_is_too_high_is_recognised(train):
    sound = train(steps=1)
    record = replace(sound, losses=[1.1, *np.random.default_rng(0).uniform(0.5, 9.0, 40)], wrong=["row 3 is odd"])
    jumping, wrong = record.advice()
    assert "lower optimizer.lr (now 0.03) to 0.003" in jumping and wrong.endswith("row 3 is odd")


def test_equal_sequences_under_two_labels_are_named_and_leave_a_loss(train, splits):
    split = splits["train"]
    # Rows 1, 3, 5, … are copies of the row before, under the label after.
    starts, lengths = split.sequences.offsets[:-1][::2].repeat(2), split.sequences.lengths[::2].repeat(2)
    tokens = np.concatenate([np.arange(start, start + length) for start, length in zip(starts, lengths, strict=True)])
    fields = {name: values[tokens] for name, values in split.sequences.fields.items()}
    labels = split.labels.copy()
    labels[1::2] = (labels[::2] + (np.arange(30) < 3)) % 3
    sequences = Ragged(np.concatenate([[0], lengths.cumsum()]), fields)
    contradictory = {**splits, "train": split._replace(sequences=sequences, labels=labels)}
    groups = contradictions(sequences, labels, np.arange(60))
    assert [group.tolist() for group in groups] == [[0, 1], [2, 3], [4, 5]]
    record = train(splits=contradictory, batching={"max_tokens": 5000, "max_sequences": None, "overhead": None})
    assert len(record.contradictions) == 3
    assert record.floor == pytest.approx(6 * np.log(2) / 60, rel=1e-4), "log 2 for each such row"
    assert record.learned and f"near the {record.floor:.3g} that contradictory labels leave" in record.text()
    assert (
        record.contradictions[0] == "row 0 is calm and row 1 is odd" and record.contradictions[0] in record.notes()[0]
    )


def test_a_loss_that_is_not_finite_points_to_the_check_for_it(train):
    class Broken(nn.Module):
        def forward(self, logits, labels):
            return logits.sum() * float("nan")

    with pytest.raises(InputError, match="the loss of the batch is nan at step 1; debug=nan names the module"):
        train(lambda task: setattr(task, "loss", Broken()))


def test_settings_without_regularisation_keep_everything_else():
    optimizer = {"_target_": "a", "lr": 0.1, "weight_decay": 0.1, "fused": True, "schedule": {"warmup": 0.1}}
    assert without_regularisation(optimizer) == {
        **optimizer, "weight_decay": 0.0, "schedule": {"warmup": 0.0, "decay": "none", "floor": 0.0}
    }  # fmt: skip
    assert without_regularisation({"label_smoothing": 0.1, "number_noise": 0.3, "variational": True}) == {
        "label_smoothing": 0.0, "number_noise": 0.0, "variational": True
    }  # fmt: skip
