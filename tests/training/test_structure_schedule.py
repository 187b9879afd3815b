"""Training with a schedule of changes: epochs, resuming, what is recorded, what is refused, and what is kept alive."""

import copy
import re

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging

from seqclf.errors import InputError
from seqclf.training.change_structure import StructureSchedule
from seqclf.training.resume import check_resumable, epochs_started
from seqclf.training.task import load_task
from seqclf.training.training_log import EpochRecord

from .conftest import HEADS, QUIET, SaveAt

pytestmark = QUIET

SCHEDULE = [
    {"epoch": 1, "freeze": "embedding"},
    {"epoch": 2, "layers": 2, "hidden_size": 16},
    {"epoch": 2, "unfreeze": ["embedding"]},
    {"epoch": 3, "layers": 1, "dropout": 0.3},
]


@pytest.mark.parametrize(
    ("moments", "settings", "parts"),
    [
        ([(0, "end"), (1, 2), (2, 1)], {}, {"optimizer": {"average": 0.9}}),
        ([(1, 1)], {"accumulate_grad_batches": 3}, {"model": {"members": 2}}),
        ([(1, "end")], {}, {"optimizer": {"_target_": "torch.optim.SGD", "momentum": 0.9, "nesterov": True}}),
    ],
    ids=["adamw and an average", "accumulated gradients of an ensemble", "sgd"],
)
def test_a_run_resumed_anywhere_in_a_schedule_equals_an_unbroken_one(task, fit, tmp_path, moments, settings, parts):
    save, records, unbroken = SaveAt(tmp_path, moments), [], task(**parts)

    def train(module, *callbacks, checkpoint=None):
        records.append(EpochRecord(tmp_path / "metrics.csv", lambda *_: None))
        schedule = StructureSchedule(SCHEDULE)
        fit(module, checkpoint, callbacks=[schedule, records[-1], *callbacks], max_epochs=3, **settings)

    train(unbroken, save)
    assert list(save.saved) == moments, "every kill was tried"
    for moment, checkpoint in save.saved.items():
        resumed = task(**parts)
        train(resumed, checkpoint=checkpoint)
        assert resumed.hparams == unbroken.hparams, moment
        for name, weight in unbroken.state_dict().items():
            assert torch.equal(weight, resumed.state_dict()[name]), (moment, name)


def test_the_checkpoint_of_an_epoch_rebuilds_the_structure_of_that_epoch(task, fit, tmp_path):
    save, module = SaveAt(tmp_path, [(0, "end"), (1, "end")]), task()
    fit(module, callbacks=[StructureSchedule(SCHEDULE), save], max_epochs=3)
    first, second = (load_task(save.saved[moment]) for moment in save.moments)
    assert (first.hparams["model"]["layers"], second.hparams["model"]["layers"]) == (1, 2)
    assert [name.partition(".")[0] for name in first.hparams["frozen"]] == ["embedding"] * 3
    assert not first.model.embedding.layers[0].weight.requires_grad
    assert second.model.encoder.size == 32 and len(second.model.encoder.scales) == 1
    assert len(module.model.encoder.forward_layers) == 1


def test_frozen_weights_stay_as_they_are_and_learn_again_later(task, fit, tmp_path):
    seen = []

    class Weights(pl.Callback):
        def on_train_epoch_start(self, trainer, module):
            seen.append(copy.deepcopy(module.model.embedding.state_dict()))

    momentum = {"_target_": "torch.optim.SGD", "momentum": 0.9, "weight_decay": 0.1}
    schedule = StructureSchedule([{"epoch": 2, "freeze": "embedding"}, {"epoch": 4, "unfreeze": "embedding"}])
    module = task(optimizer=momentum)
    fit(module, callbacks=[schedule, Weights()], max_epochs=4, enable_checkpointing=False)
    first, second, third, fourth = seen
    for name, last in module.model.embedding.state_dict().items():
        assert torch.equal(second[name], third[name]) and torch.equal(third[name], fourth[name]), name
        assert not torch.equal(first[name], second[name]) and not torch.equal(fourth[name], last), name


REFUSED = [
    ([{"epoch": 2, "freeze": "embeding"}], "[0].freeze=embeding: no such module; did you mean 'embedding'?"),
    ([{"epoch": 2, "freeze": "norm"}, {"epoch": 3, "freeze": "norm"}], "[1].freeze=norm: has no weight that learns"),
    ([{"epoch": 2, "freeze": ["embedding", "encoder", "norm", "output"]}], "[0]: leaves no weight that learns; "),
]


def test_modules_of_the_recurrent_head_need_no_number_of_the_head(task):
    module = task(model=HEADS)
    StructureSchedule([{"epoch": 2, "freeze": ["embedding", "recurrent"]}]).check(module)
    StructureSchedule([{"epoch": 1, "freeze": ["embedding", "recurrent"]}]).advance(module, 1)
    parts = {re.sub(r"members\.\d\.", "", name).split(".")[:3][-1] for name in module.hparams["frozen"]}
    assert parts == {"embedding", "recurrent"}
    with pytest.raises(InputError, match="no such module; did you mean 'recurrent'"):
        StructureSchedule([{"epoch": 2, "freeze": "recurent"}]).check(module)


@pytest.mark.parametrize(("schedule", "message"), REFUSED)
def test_impossible_changes_are_refused_before_training(task, schedule, message):
    module = task()
    with pytest.raises(InputError, match=re.escape(message)):
        StructureSchedule(schedule).check(module)
    assert module.hparams["frozen"] == [] and all(weight.requires_grad for weight in module.parameters())


def test_several_devices_are_refused(task):
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_progress_bar=False)
    with pytest.raises(InputError, match="structure: changes a model on one device only; "):
        StructureSchedule(SCHEDULE).check_trainer(trainer)


def test_averages_of_weights_are_refused_where_the_network_changes():
    trainer = pl.Trainer(accelerator="cpu", callbacks=[EMAWeightAveraging()], logger=False, enable_progress_bar=False)
    with pytest.raises(InputError, match=r"structure: .*Averaging of trainer\.callbacks averages"):
        StructureSchedule(SCHEDULE).check_trainer(trainer)
    StructureSchedule(SCHEDULE[:1]).check_trainer(trainer)  # freezes only


def test_a_checkpoint_of_another_schedule_is_refused_by_name(task, fit, splits, data_module, tmp_path):
    save = SaveAt(tmp_path, [(1, "end")])
    fit(task(), callbacks=[StructureSchedule([{"epoch": 2, "layers": 2, "freeze": "norm"}]), save])
    path = save.saved[1, "end"]
    config = {"checkpoint": str(path), "trainer": {"max_epochs": 3}}
    assert epochs_started(path) == 2

    def check(*schedule):
        module = task()
        StructureSchedule(schedule).advance(module, 2)
        check_resumable(config, module, data_module(splits))

    check({"epoch": 2, "layers": 2, "freeze": "norm"}, {"epoch": 3, "hidden_size": 16})  # later changes may be others
    with pytest.raises(
        InputError, match=r"another model \(model.layers=2 model.residual_layers=1\); set the same model"
    ):
        check({"epoch": 3, "layers": 2, "freeze": "norm"})
    with pytest.raises(InputError, match="another structure; set the same structure as its run"):
        check({"epoch": 2, "layers": 2})
