"""The weight of a row in the loss does not depend on the number of rows in its batch."""

from types import SimpleNamespace

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from seqclf.batching.batches import BatchDataset
from seqclf.errors import InputError
from seqclf.models.network import WeighedLoss, loss_of_rows
from seqclf.training.losses import build_loss

from .conftest import CLASSES, HEADS, LOSS, QUIET, SILENT, SaveAt


def gradient(module):
    return torch.cat([weight.grad.flatten() for weight in module.model.parameters()])


@pytest.mark.parametrize(
    ("model", "world_size", "epoch"), [(SILENT, 1, 0), ({**SILENT, "members": 2}, 1, 3), (SILENT, 2, 3)]
)
def test_every_row_has_the_same_weight_in_an_epochs_gradient(task, long_tailed, model, world_size, epoch):
    module, sizes = task(model=model), []
    module.zero_grad()
    for rank in range(world_size):
        device = SimpleNamespace(root_device=torch.device("cpu"))
        batches = long_tailed()
        batches.trainer = SimpleNamespace(
            current_epoch=epoch,
            world_size=world_size,
            global_rank=rank,
            strategy=device,
            overfit_batches=0,
            training=False,
        )
        for step, batch in enumerate(batches.train_dataloader()):
            (module.training_step(batch, step) / world_size).backward()  # ranks average their gradients
            sizes.append(len(batch.labels))
    assert max(sizes) > 3 * min(sizes), "batches of one size would hide a wrong weight"
    epoch_gradient = gradient(module)
    module.zero_grad()
    (everything,) = long_tailed(max_tokens=10**6, max_sequences=None).evaluation_loader("train")
    module.training_step(everything, 0).backward()
    # All of an epoch's rows together weigh as much as its steps would; up to that factor the directions must agree.
    full_gradient = gradient(module)
    scale = epoch_gradient.norm() / full_gradient.norm()
    assert scale == pytest.approx(len(sizes) / world_size, rel=0.1), "later epochs have about as many steps"
    torch.testing.assert_close(epoch_gradient / scale, full_gradient, rtol=1e-3, atol=1e-6)


def test_batches_have_equal_weights_if_configured(long_tailed):
    assert {batch.weight for batch in long_tailed(equal_row_weights=False).train_dataloader()} == {1.0}


def test_the_mean_weight_of_the_first_epochs_batches_is_one(long_tailed):
    weights = [batch.weight for batch in long_tailed().train_dataloader()]
    assert sum(weights) / len(weights) == pytest.approx(1.0)


class StepGradients(pl.Callback):
    def __init__(self):
        self.steps = []

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        if not trainer.fit_loop._should_accumulate():
            self.steps.append(gradient(task).clone())


@QUIET
@pytest.mark.parametrize("accumulated", [2, 3, 4, 8])
def test_an_accumulated_step_is_the_mean_over_its_batches(task, fit, tmp_path, accumulated):
    settings = {"max_epochs": 1, "limit_train_batches": 3, "accumulate_grad_batches": accumulated}
    still = {"_target_": "torch.optim.SGD", "lr": 0.0, "weight_decay": 0.0}  # so that all steps have the same weights

    def steps(checkpoint=None, save=(), **changed):
        watch = StepGradients()
        fit(task(model=SILENT, optimizer=still), checkpoint, callbacks=[watch, *save], **{**settings, **changed})
        return watch.steps

    single = steps(accumulate_grad_batches=1)
    windows = [single[first : first + accumulated] for first in range(0, 3, accumulated)]
    saved = SaveAt(tmp_path, [(0, 0)])  # in the middle of the first window
    found = steps(save=[saved])
    torch.testing.assert_close(found, [sum(window) / len(window) for window in windows])
    torch.testing.assert_close(steps(saved.saved[0, 0]), found)


ADAPTIVE = {"_target_": "seqclf.models.adaptive.AdaptiveClassifier", "bidirectional": False, "pooling": "max"}
CALM_HEADS = {**HEADS, "dropout": 0.0, "feature_dropout": 0.0, "label_smoothing": 0.1}


@pytest.mark.parametrize("model", [SILENT, {**SILENT, "members": 2}, {**SILENT, **ADAPTIVE}, CALM_HEADS])
@pytest.mark.parametrize("loss", [{}, {"_target_": "seqclf.training.losses.Focal"}])
def test_a_row_of_weight_two_counts_as_two_rows(task, splits, model, loss):
    split, weights = splits["train"], np.arange(60) % 4
    if "_target_" in loss:
        loss = {**LOSS, **loss}
        del loss["label_smoothing"]
    gradients = []
    for rows, given in (
        (np.arange(60), weights.astype(float)),
        (np.repeat(np.arange(60), weights), None),
    ):
        module = task(model=model)
        module.loss = build_loss(loss or LOSS, CLASSES, [30, 20, 10])
        module.fit_to(split)
        module.eval().zero_grad()
        batch = BatchDataset(split._replace(weights=given))[rows]
        module.training_step(batch, 0).backward()
        module.validation_step(batch, 0)
        scores = module.evaluation_metrics.compute().scores["loss"], module.train_metrics.compute().scores["loss"]
        gradients.append(torch.cat([part.grad.flatten() for part in module.parameters() if part.grad is not None]))
        gradients.append(torch.tensor(scores))
    torch.testing.assert_close(gradients[0], gradients[2], rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(gradients[1], gradients[3], rtol=1e-4, atol=1e-6)
    assert gradients[0].abs().max() > 1e-3


def test_a_loss_of_other_rows_than_those_of_the_batch_is_one_line():
    loss = WeighedLoss(torch.nn.functional.cross_entropy, torch.ones(3))
    with pytest.raises(InputError, match=r"^data\.weight: .* of 5 rows in a batch of 3; use loss_of_rows"):
        loss(torch.zeros(5, 2), torch.zeros(5).long())
    of_rows = loss_of_rows(
        WeighedLoss(torch.nn.CrossEntropyLoss(), torch.tensor([1.0, 0.0, 2.0])), torch.tensor([2, 1, 2])
    )
    assert of_rows(torch.zeros(3, 2), torch.zeros(3).long()).item() == pytest.approx(4 / 3 * np.log(2))
