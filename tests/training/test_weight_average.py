"""The averaged weights: their numbers, validation, checkpoints, resumed runs and changes of the structure."""

import math

import lightning.pytorch as pl
import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.training.best_epoch import checkpoints
from seqclf.training.change_structure import change_structure
from seqclf.training.task import load_task
from seqclf.training.weight_average import TRAINED, WeightAverage

from .conftest import QUIET, SaveAt

pytestmark = QUIET
AVERAGED = {"optimizer": {"average": 0.9}}


class MaskedNorm(nn.Module):
    averaged_buffers = ("mean", "var")

    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, values):
        if self.training:
            self.count += 1
            self.mean.lerp_(values.detach().mean(0), 0.3)
            self.var.lerp_(values.detach().var(0), 0.3)
        return (values - self.mean.clone()) / (self.var + 1).sqrt()


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), MaskedNorm(4), nn.Linear(4, 4), nn.Linear(4, 2))


def test_the_means_are_those_of_a_plain_loop():
    trained, expected = network(), {}
    trained[3].requires_grad_(False)
    average, decay = WeightAverage(trained, 0.9), 0.9
    optimizer = torch.optim.SGD([weight for weight in trained.parameters() if weight.requires_grad], lr=0.1)
    names = {"0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var", "2.mean", "2.var"}
    names |= {"4.weight", "4.bias"}
    expected = {name: trained.state_dict()[name].clone() for name in names}
    for step in range(1, 61):
        optimizer.zero_grad()
        trained(torch.randn(8, 3)).square().mean().backward()
        optimizer.step()
        average.update(trained, step)
        if step % 4 == 0:
            kept = min(decay**4, (1 + step) / (10 + step))
            for name in names:
                expected[name] = kept * expected[name] + (1 - kept) * trained.state_dict()[name]
    assert average.values.keys() == names, "neither frozen weights nor counts"
    for name in names:
        torch.testing.assert_close(average.values[name], expected[name])
        assert not torch.equal(expected[name], trained.state_dict()[name])
    before = {name: tensor.clone() for name, tensor in trained.state_dict().items()}
    average.swap(trained)
    assert all(torch.allclose(trained.state_dict()[name], expected[name]) for name in names)
    average.swap(trained)
    assert all(torch.equal(tensor, trained.state_dict()[name]) for name, tensor in before.items())


def test_statistics_are_averaged_over_ranks_and_weights_are_not():
    trained = network()
    average = WeightAverage(trained, 0.9)
    average.update(trained, 4, over_ranks=lambda statistic: statistic.add_(1))
    for name, mean in average.values.items():
        moved = name.endswith(("mean", "var")) * (1 - 5 / 14)
        torch.testing.assert_close(mean, trained.state_dict()[name] + moved)


class Observe(pl.Callback):
    """Averages the weights after each optimizer step by hand, and keeps the validation losses and checkpoints."""

    def __init__(self, decay, folder=None):
        self.decay, self.folder, self.step, self.means, self.losses, self.saved = decay, folder, 0, {}, {}, {}

    def on_train_start(self, trainer, task):
        self.means = {name: weight.detach().clone() for name, weight in task.model.named_parameters()}

    def on_train_batch_end(self, trainer, task, *_):
        step = trainer.global_step
        if step == self.step or step % 4:
            return
        self.step, kept = step, min(self.decay**4, (1 + step) / (10 + step))
        for name, weight in task.model.named_parameters():
            self.means[name] = kept * self.means[name] + (1 - kept) * weight.detach()

    def on_validation_end(self, trainer, task):
        self.losses[trainer.global_step] = float(trainer.callback_metrics["validation/loss"])
        if self.folder is not None:
            self.saved[trainer.global_step] = self.folder / f"{trainer.global_step}.ckpt"
            trainer.save_checkpoint(self.saved[trainer.global_step])


@pytest.mark.parametrize("accumulate", [1, 3])
def test_a_fit_validates_saves_and_leaves_the_means(task, fit, batches, tmp_path, accumulate):
    observe, module = Observe(0.9, tmp_path), task(**AVERAGED)
    trainer = fit(module, callbacks=[observe, *checkpoints(tmp_path)], max_epochs=3, accumulate_grad_batches=accumulate)
    assert trainer.global_step >= 8 and len(observe.losses) == 3
    for name, weight in module.model.named_parameters():
        torch.testing.assert_close(weight.detach(), observe.means[name], rtol=1e-4, atol=1e-6)
    for step, path in observe.saved.items():
        [scores] = pl.Trainer(logger=False, accelerator="cpu", enable_progress_bar=False).validate(
            load_task(path), datamodule=batches, verbose=False
        )
        assert scores["validation/loss"] == pytest.approx(observe.losses[step], rel=1e-5)
    last = torch.load(tmp_path / "last.ckpt", weights_only=True)
    for name, weight in module.model.state_dict().items():
        assert torch.equal(weight, last["state_dict"][f"model.{name}"]), "one layout, also between validations"
    assert any(not torch.equal(weight, last["state_dict"][name]) for name, weight in last[TRAINED].items())
    again = trainer.predict(load_task(tmp_path / "last.ckpt"), batches.evaluation_loader("validation"))
    for first, second in zip(trainer.predict(module, batches.evaluation_loader("validation")), again, strict=True):
        assert torch.equal(first.logits, second.logits)


def test_without_an_average_nothing_but_the_weights_is_saved(task, fit, tmp_path):
    for settings in ({}, {"optimizer": {"average": None}}):
        module = task(**settings)
        fit(module, callbacks=checkpoints(tmp_path))
        assert TRAINED not in torch.load(tmp_path / "last.ckpt", weights_only=True) and module.average is None


@pytest.mark.parametrize("settings", [{}, {"accumulate_grad_batches": 2}, {"model": {"members": 2}}], ids=str)
def test_a_resumed_run_ends_in_the_means_of_an_unbroken_one(task, fit, tmp_path, settings):
    parts = {"model": settings.pop("model")} if "model" in settings else {}
    unbroken, save = task(**AVERAGED, **parts), SaveAt(tmp_path, [(0, 2), (0, 3), (0, 4), (1, 0), (1, 2)])
    fit(unbroken, callbacks=[save, *checkpoints(tmp_path)], max_epochs=3, **settings)
    assert len(save.saved) == 5
    for moment, path in save.saved.items():
        resumed = task(**AVERAGED, **parts)
        fit(resumed, path, max_epochs=3, **settings)
        for name, weight in unbroken.state_dict().items():
            assert torch.equal(weight, resumed.state_dict()[name]), (moment, name)
        for name, weight in unbroken.average.values.items():
            assert torch.equal(weight, resumed.average.values[name]), (moment, name)


def test_other_stages_and_checkpoints_of_weights_alone_have_the_means(task, fit, batches, tmp_path):
    module = task(**AVERAGED)
    trainer = fit(module, callbacks=checkpoints(tmp_path), max_epochs=3)
    means = {name: weight.clone() for name, weight in module.model.state_dict().items()}
    trainer.validate(module, datamodule=batches, ckpt_path=tmp_path / "last.ckpt", verbose=False)
    trainer.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    saved = torch.load(tmp_path / "weights.ckpt", weights_only=True)
    for name, weight in means.items():
        assert torch.equal(module.model.state_dict()[name], weight), name
        assert torch.equal(saved["state_dict"][f"model.{name}"], weight), name
    assert saved[TRAINED], "which a resumed run trains"


class FailInValidation(pl.Callback):
    def on_validation_batch_end(self, trainer, *_):
        trainer.save_checkpoint(trainer.default_root_dir + "/inside.ckpt")
        raise ConnectionError


def test_a_checkpoint_inside_a_validation_has_the_layout_of_all_others(task, fit, tmp_path):
    module = task(**AVERAGED)
    with pytest.raises(ConnectionError):
        fit(module, callbacks=[FailInValidation()])
    saved = torch.load(tmp_path / "inside.ckpt", weights_only=True)
    assert module.average.in_network
    for name, weight in module.average.values.items():
        assert torch.equal(saved[TRAINED][f"model.{name}"], weight), "the weights that the optimizer trains"
        assert torch.equal(saved["state_dict"][f"model.{name}"], module.model.state_dict()[name])
    unbroken, resumed = task(**AVERAGED), task(**AVERAGED)
    fit(unbroken)
    fit(resumed, tmp_path / "inside.ckpt")
    for name, weight in unbroken.average.values.items():
        torch.testing.assert_close(weight, resumed.average.values[name])


def test_a_second_fit_starts_from_the_means(task, fit):
    module, start = task(**AVERAGED), {}
    fit(module)
    means = {name: weight.detach().clone() for name, weight in module.model.named_parameters()}

    class AtStart(pl.Callback):
        def on_train_start(self, trainer, task):
            start.update({name: weight.detach().clone() for name, weight in task.model.named_parameters()})

    fit(module, callbacks=[AtStart()], enable_checkpointing=False)
    assert all(torch.equal(start[name], weight) for name, weight in means.items())


def test_a_plain_trainer_refuses_a_checkpoint_without_trained_weights(task, fit, tmp_path):
    fit(task(), callbacks=checkpoints(tmp_path))
    with pytest.raises(InputError, match="has no trained_weights to go on with; train anew"):
        fit(task(**AVERAGED), tmp_path / "last.ckpt", max_epochs=3)


def hold_means(module, held):
    if module.average.in_network != held:
        module.average.swap(module.model)


@pytest.mark.parametrize(
    ("change", "is_held"),
    [
        ({"layers": 3, "hidden_size": 16}, False),
        ({"layers": 3, "hidden_size": 16}, True),
        ({"freeze": "embedding"}, True),
    ],
    ids=str,
)
def test_the_averaged_network_computes_the_same_function_after_a_change(task, fit, batches, change, is_held):
    module = task(**AVERAGED)
    fit(module)
    if not is_held:
        hold_means(module, False)
    batch = next(iter(batches.evaluation_loader("validation")))

    def logits():
        both = []
        for held in (False, True):
            found = module.average.in_network
            hold_means(module, held)
            module.double().eval()
            module.average.values = {name: tensor.double() for name, tensor in module.average.values.items()}
            fields = {n: v.double() if v.is_floating_point() else v for n, v in batch.fields.items()}
            with torch.no_grad():
                both.append(module(batch._replace(fields=fields)))
            hold_means(module, found)
        return both

    module.double()
    before = logits()
    assert not torch.allclose(*before, atol=1e-3)
    assert change_structure(module, **change).preserves
    after = logits()
    for first, second in zip(before, after, strict=True):
        torch.testing.assert_close(first, second, atol=1e-9, rtol=0)
    assert all(math.isfinite(float(values.sum())) for values in module.average.values.values())


def test_a_changed_network_averages_its_new_weights_and_keeps_frozen_ones(task, fit):
    module = task(**AVERAGED)
    fit(module)
    names = set(module.average.values)
    change_structure(module, layers=2, freeze="embedding")
    frozen = {name for name in names if name.startswith("embedding")}
    assert frozen and frozen < set(module.average.values)
    trained = {name for name, weight in module.model.named_parameters() if weight.requires_grad}
    assert set(module.average.values) == trained | frozen
