"""A run that was killed anywhere and resumed equals an unbroken one."""

import copy
import random
import shutil
from functools import partial

import lightning.pytorch as pl
import pytest
import torch

from seqclf.errors import InputError
from seqclf.training.best_epoch import checkpoints
from seqclf.training.resume import check_resumable
from seqclf.training.training_log import EpochRecord

from .conftest import HEADS, QUIET, SaveAt

pytestmark = QUIET


class Watch(pl.Callback):
    """Records the rows of each epoch, and the epoch and step of each validation and each end of an epoch."""

    def __init__(self):
        self.rows, self.validations, self.ends = {}, [], []

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.rows.setdefault(trainer.current_epoch, []).extend(batch.ids.tolist())

    def on_validation_end(self, trainer, task):
        self.validations.append((trainer.current_epoch, trainer.global_step))

    def on_train_epoch_end(self, trainer, task):
        self.ends.append(trainer.current_epoch)

    def and_then(self, later: "Watch") -> "Watch":
        both = Watch()
        for epoch in sorted({*self.rows, *later.rows}):
            both.rows[epoch] = self.rows.get(epoch, []) + later.rows.get(epoch, [])
        both.validations = self.validations + later.validations
        both.ends = self.ends + later.ends
        return both


class SaveWatched(SaveAt):
    def __init__(self, folder, moments):
        super().__init__(folder, moments)
        self.watch = Watch()

    def save(self, trainer, moment):
        super().save(trainer, moment)
        if moment in self.moments:
            self.saved[moment] = self.saved[moment], copy.deepcopy(self.watch)


def watched(fit, module, checkpoint=None, save=None, **settings):
    watch = save.watch if save else Watch()
    hooks = [watch, save] if save else [watch]
    settings = {"max_epochs": 3, "enable_checkpointing": bool(save), **settings}
    fit(module, checkpoint, callbacks=hooks, **settings)
    return watch


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"model": HEADS},
        {"accumulate_grad_batches": 2},
        {"val_check_interval": 0.4},
        {"max_epochs": -1, "max_steps": 34},
        {"limit_train_batches": 5, "check_val_every_n_epoch": 2},
        pytest.param({"reload_dataloaders_every_n_epochs": 1}, marks=pytest.mark.slow),
        pytest.param({"batching": {"num_workers": 2}}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_run_killed_anywhere_and_resumed_equals_an_unbroken_one(task, fit, splits, tmp_path, settings):
    generator = random.Random(str(settings))
    settings = {**settings}
    task = partial(task, **({"model": settings.pop("model")} if "model" in settings else {}))
    moments = [(0, "last batch"), (1, "end"), *((epoch, generator.randrange(4)) for epoch in range(3))]
    save, unbroken = (
        SaveWatched(tmp_path, [moments[0], *generator.sample(moments[1:], 2)] if settings else moments),
        task(),
    )
    expected = watched(fit, unbroken, save=save, **settings)
    if "limit_train_batches" not in settings:
        everything = list(range(len(splits["train"].labels)))
        assert all(sorted(expected.rows[epoch]) == everything for epoch in range(2))
    for moment, (checkpoint, before) in save.saved.items():
        resumed = task()
        resumed_watch = before.and_then(watched(fit, resumed, checkpoint, **settings))
        assert resumed_watch.rows == expected.rows, moment
        assert resumed_watch.validations == expected.validations, moment
        assert moment[1] == "end" or resumed_watch.ends == expected.ends, moment
        for name, weight in unbroken.state_dict().items():
            assert torch.equal(weight, resumed.state_dict()[name]), (moment, name)
    assert len(save.saved) == len(save.moments), "every kill was tried"


class CopyAfterBatches(pl.callbacks.Checkpoint):
    """Copies the folder of a run, with a checkpoint of that moment, after each batch of the epoch 1.

    `validated`: optimizer step → weights that were validated after it. `best`: copies of best.ckpt after a validation.
    """

    def __init__(self, folder):
        self.folder, self.copies, self.best, self.validated = folder, [], [], {}

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        if trainer.current_epoch == 1:
            trainer.save_checkpoint(self.folder / "last.ckpt")
            self.copies.append(self.copy(f"after batch {batch_idx}") / "last.ckpt")

    def on_validation_end(self, trainer, task):
        self.validated[trainer.global_step] = copy.deepcopy(task.model.state_dict())
        if trainer.current_epoch == 1:
            self.best.append(self.copy(f"after step {trainer.global_step}") / "best.ckpt")

    def copy(self, name):
        return shutil.copytree(self.folder, self.folder.with_name(name))


def saved_run(task, fit, folder, *more, checkpoint=None, **settings):
    """Train, and return the rows of metrics.csv without what is measured, and best.ckpt."""
    record = EpochRecord(folder / "metrics.csv", lambda *_: None)
    hooks = [record, *checkpoints(folder, resumed=checkpoint), *more]
    module = task(monitor="loss", optimizer={"lr": 0.05})
    fit(module, checkpoint, callbacks=hooks, max_epochs=3, **settings)
    measured = {"seconds", "tokens_per_s", "step_ms", "memory_mb"}
    rows = [{name: value for name, value in row.items() if name not in measured} for row in record.history]
    return rows, torch.load(folder / "best.ckpt", weights_only=True), module


INSIDE_EPOCHS = [
    {"val_check_interval": 3},
    {"val_check_interval": 0.3, "accumulate_grad_batches": 2},
    {"val_check_interval": 0.4, "check_val_every_n_epoch": 2},
    {"val_check_interval": 5, "check_val_every_n_epoch": None},
    {"check_val_every_n_epoch": 2},
]


@pytest.mark.parametrize("settings", INSIDE_EPOCHS, ids=str)
def test_a_run_killed_between_validations_keeps_their_scores_and_the_best_weights(task, fit, tmp_path, settings):
    kills = CopyAfterBatches(tmp_path / "unbroken")
    rows, best, unbroken = saved_run(task, fit, tmp_path / "unbroken", kills, **settings)
    assert len(kills.copies) > 6 and len(kills.best) >= (1 if set(settings) == {"check_val_every_n_epoch"} else 2)
    for checkpoint in kills.copies[::3] + kills.best:
        moment = f"{checkpoint.parent.name}, {checkpoint.name}"
        again, best_again, resumed = saved_run(task, fit, checkpoint.parent, checkpoint=checkpoint, **settings)
        assert again == rows, moment
        assert best_again["global_step"] == best["global_step"], moment
        for name, weight in best["state_dict"].items():
            assert torch.equal(weight, best_again["state_dict"][name]), (moment, name)
        for name, weight in unbroken.state_dict().items():
            assert torch.equal(weight, resumed.state_dict()[name]), (moment, name)


@pytest.mark.parametrize("settings", [{"val_check_interval": 3}, {"check_val_every_n_epoch": 2}, {}], ids=str)
def test_the_best_checkpoint_holds_the_weights_that_were_validated(task, fit, tmp_path, settings):
    kills = CopyAfterBatches(tmp_path / "run")
    _, best, _ = saved_run(task, fit, tmp_path / "run", kills, **settings)
    for name, weight in kills.validated[best["global_step"]].items():
        assert torch.equal(weight, best["state_dict"][f"model.{name}"]), name


def test_outside_of_fit_the_loader_yields_every_row(task, fit, splits):
    module = task()
    trainer = fit(module, max_epochs=1, enable_checkpointing=False)
    rows = [row for batch in trainer.datamodule.train_dataloader() for row in batch.ids]
    assert sorted(rows) == list(range(len(splits["train"].labels)))


@pytest.fixture
def inside_and_between(task, fit, tmp_path):
    """Checkpoints of a run from inside an epoch and from the end of one."""
    save = SaveWatched(tmp_path, [(0, 3), (0, "end")])
    watched(fit, task(), save=save, max_epochs=1)
    return [path for path, _ in save.saved.values()]


CHANGED = [
    ({"batching": {"max_sequences": 3}}, "batching.max_sequences=9"),
    ({"accumulate_grad_batches": 2}, "trainer.accumulate_grad_batches=1"),
    ({"limit_train_batches": 1}, "trainer.limit_train_batches=1.0"),
]


@pytest.mark.parametrize(("settings", "changed"), CHANGED, ids=[changed for *_, changed in CHANGED])
def test_changed_batches_are_refused_inside_an_epoch_and_warned_of_between_epochs(
    task, fit, inside_and_between, settings, changed
):
    inside, between = inside_and_between
    common = {"max_epochs": 1, "enable_checkpointing": False}
    with pytest.raises(InputError, match=rf"inside an epoch, whose rows were batched with {changed}; set the same"):
        fit(task(), inside, **{**common, **settings})
    with pytest.warns(UserWarning, match=rf"epochs were batched with {changed}, the next ones are not"):
        fit(task(), between, **{**common, "max_epochs": 2, **settings})


def test_settings_that_affect_only_speed_may_change_inside_an_epoch(task, fit, inside_and_between):
    inside, _ = inside_and_between
    fit(task(), inside, max_epochs=1, batching={"evaluation_factor": 1}, enable_checkpointing=False)


def test_a_checkpoint_with_changed_batches_is_refused_before_the_run_starts(task, inside_and_between, splits, fit):
    inside, between = inside_and_between
    module = task()
    trainer = fit(module, max_epochs=1, batching={"max_tokens": 50}, enable_checkpointing=False)
    common = {"trainer": {"max_epochs": 3}}
    with pytest.raises(InputError, match=r"checkpoint=.*: was written inside an epoch.* batching\.max_tokens=120;"):
        check_resumable({"checkpoint": inside, **common}, module, trainer.datamodule)
    check_resumable({"checkpoint": between, **common}, module, trainer.datamodule)


def test_a_run_in_mixed_precision_is_resumable(task, fit, tmp_path):
    """Mixed precision switches the fused optimizer off, which a fresh task would use."""

    def fused():
        return task(optimizer={"_target_": "torch.optim.AdamW", "fused": True})

    save = SaveWatched(tmp_path, [(0, "end")])
    watched(fit, fused(), save=save, max_epochs=1, precision="bf16-mixed")
    ((path, _),) = save.saved.values()
    assert torch.load(path, weights_only=True)["optimizer_states"][0]["param_groups"][0]["fused"] is None
    trainer = fit(fused(), max_epochs=1, enable_checkpointing=False)
    check_resumable({"checkpoint": path, "trainer": {"max_epochs": 3}}, fused(), trainer.datamodule)


def test_a_checkpoint_with_another_holdout_names_the_data_and_the_decision(task, fit, tmp_path):
    """A guarantee holds out validation rows. The rest of the data is the same."""

    def with_validation(rows):
        module = task()
        module.hparams["dataset"]["rows"] = {"train": 40, "validation": rows}
        return module

    save = SaveWatched(tmp_path, [(0, "end")])
    watched(fit, with_validation(60), save=save, max_epochs=1)
    ((path, _),) = save.saved.values()
    trainer = fit(with_validation(60), max_epochs=1, enable_checkpointing=False)
    config = {"checkpoint": path, "trainer": {"max_epochs": 3}}
    check_resumable(config, with_validation(60), trainer.datamodule)
    with pytest.raises(InputError, match=r"another data \(data\.rows\.validation=60\); set the same data and "):
        check_resumable(config, with_validation(48), trainer.datamodule)
