"""`trainer.max_epochs=auto`: a small training set is read more often, and validated as often as a large one."""

import numpy as np
import pyarrow as pa
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

import seqclf
from seqclf import InputError
from seqclf.api.fit import training_setup
from seqclf.training import length
from seqclf.training.length import automatic_length, resolve_length

SMALL = ["logger=none", "trainer.accelerator=cpu", "model.hidden_size=8", "model.embedding_size=8"]
SMALL += ["baseline=false", "export=false", "batching.max_sequences=8"]


def rows(count):
    generator = np.random.default_rng(0)
    tokens = [generator.choice(list("abc"), generator.integers(2, 6)).tolist() for _ in range(count)]
    return pa.table({"code": tokens, "label": ["yes" if row[0] == "a" else "no" for row in tokens]})


def resolved(batches, *overrides):
    config = training_setup({}, "label", ["data=toy", *overrides]).config
    return resolve_length(config, batches).trainer


def limits(trainer):
    return trainer["max_epochs"], trainer["check_val_every_n_epoch"]


@given(st.integers(1, 10_000), st.integers(1, 100_000), st.sampled_from([1, 2, 4.5]))
def test_an_automatic_length_reaches_its_steps_or_a_limit(batches, tokens_of_batch, shortening):
    tokens = batches * tokens_of_batch
    epochs, between = automatic_length(batches, tokens, shortening)
    read = tokens / shortening
    assert epochs >= 12 and epochs % between == 0 and epochs // between <= 15, "the last epoch is validated"
    assert epochs // between >= 8 or between == 1
    before = epochs - between  # as many epochs would be too few for the limits, or the validations uneven
    assert epochs == 12 or (before * batches < 1000 and before * read <= 6_000_000), "no epoch more than needed"
    assert epochs * batches >= 1000 or (epochs + 1) * read > 6_000_000
    assert automatic_length(batches, tokens, 2 * shortening).epochs >= epochs


def test_a_small_training_set_is_read_more_often(batches):
    count = len(batches.train_dataloader())
    epochs, between = limits(resolved(batches))
    assert epochs % between == 0 and between > 1
    assert 1000 <= epochs * count < 1000 + between * count


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["trainer.max_epochs=59"], (59, 1)),
        (["trainer.max_epochs=60"], (60, 4)),
        (["trainer.max_epochs=60", "monitor=recall"], (60, 2)),
        (["trainer.max_epochs=61"], (61, 1)),
        (["trainer.max_epochs=-1"], (-1, 1)),
        (["trainer.max_epochs=5", "trainer.check_val_every_n_epoch=2"], (5, 2)),
    ],
    ids=str,
)
def test_an_own_number_of_epochs_stays_and_has_at_least_15_validations(batches, overrides, expected):
    assert limits(resolved(batches, *overrides)) == expected


def test_neither_ranks_nor_accumulated_gradients_change_the_epochs(batches):
    settings = ["trainer.devices=4", "trainer.accumulate_grad_batches=4", "trainer.limit_train_batches=1"]
    assert limits(resolved(batches, *settings)) == limits(resolved(batches))


def test_a_structure_change_beyond_the_automatic_length_is_refused(batches):
    last = limits(resolved(batches))[0]
    resolved(batches, f"structure=[{{epoch: {last}, layers: 2}}]")
    with pytest.raises(InputError, match=f"is beyond trainer.max_epochs={last}"):
        resolved(batches, f"structure=[{{epoch: {last + 1}, layers: 2}}]")


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(length, "VALIDATIONS", 3)
    monkeypatch.setattr(length, "MIN_STEPS", 0)
    monkeypatch.setattr(length, "MIN_EPOCHS", 6)


def epochs_of(folder):
    lines = (folder / "metrics.csv").read_text().splitlines()
    names = lines[0].split(",")
    found = [dict(zip(names, line.split(","), strict=False)) for line in lines[1:]]
    return {int(row["epoch"]): bool(row["validation/loss"]) for row in found}


def test_a_run_records_and_resumes_its_automatic_length(short, tmp_path, capsys):
    folder = tmp_path / "run"

    def fit(*overrides):
        data = f"data.cache_dir={tmp_path / 'cache'}"
        seqclf.fit(rows(40), label="label", overrides=[*SMALL, data, *overrides], folder=folder)

    fit("trainer.max_epochs=2")
    assert epochs_of(folder) == {0: True, 1: True}
    fit("checkpoint=auto")
    shown = capsys.readouterr().err
    assert epochs_of(folder) == {0: True, 1: True, 2: False, 3: True, 4: False, 5: True}
    assert limits(yaml.safe_load((folder / "config.yaml").read_text())["trainer"]) == (6, 2)
    assert [f"epoch   {number}" in shown for number in (4, 5, 6)] == [True, False, True], "validated epochs are shown"


@pytest.mark.parametrize(
    ("trainer", "expected"),
    [
        ({"max_epochs": 60, "check_val_every_n_epoch": 4}, 4),
        ({"max_epochs": 61, "check_val_every_n_epoch": 4}, 1),  # else no checkpoint would hold the last epoch
        ({"max_epochs": 60, "check_val_every_n_epoch": 4, "max_steps": 100}, 1),
        ({"max_epochs": 5, "check_val_every_n_epoch": None}, 1),
    ],
    ids=str,
)
def test_last_checkpoints_follow_validations_where_the_last_epoch_has_one(trainer, expected):
    assert length.epochs_between_checkpoints(trainer) == expected
