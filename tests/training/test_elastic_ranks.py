"""Training on the same global batches with any number of ranks, and resuming inside an epoch on another number."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch
from torch import distributed

from .conftest import SILENT

STEPS = 20
SAVED = 10  # step after which a checkpoint is written, inside the second epoch


class Watch(pl.Callback):
    """Records the rows of each step and the loss of the global batch. Saves a checkpoint after the step `SAVED`."""

    def __init__(self, path=None):
        self.path, self.rows, self.losses = path, [], []

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        weighted = task.step_loss * batch.weight / trainer.world_size
        rows = [batch.ids.tolist() if batch.weight else []]
        if trainer.world_size > 1:
            distributed.all_reduce(weighted)
            parts = [None] * trainer.world_size
            distributed.all_gather_object(parts, rows[0])
            rows = parts
        self.rows.append(sorted(row for part in rows for row in part))
        self.losses.append(float(weighted))
        if self.path is not None and trainer.global_step == SAVED:
            trainer.save_checkpoint(self.path, weights_only=False)


def train(fit, task, checkpoint=None, path=None, batching=None, **trainer):
    watch, module = Watch(path), task(model=SILENT)
    settings = {"max_epochs": 9, "max_steps": STEPS, "limit_val_batches": 0, "enable_checkpointing": False}
    fit(module, checkpoint, batching=batching, callbacks=[watch], **settings, **trainer)
    return {"rows": watch.rows, "losses": watch.losses, "weights": module.state_dict()}


def train_on_rank(rank, folder, fit, task, world_size, jobs):
    for name, options in jobs.items():
        found = train(fit, task, strategy="ddp", devices=world_size, **options)
        if rank == 0:
            torch.save(found, folder / f"{name}.pt")


def check_equal(found, expected, first=0):
    assert found["rows"] == expected["rows"][first:]
    np.testing.assert_allclose(found["losses"], expected["losses"][first:], atol=1e-4)
    for name, weight in expected["weights"].items():
        torch.testing.assert_close(found["weights"][name], weight, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_steps_are_the_same_on_one_two_and_three_ranks_and_after_a_change_inside_an_epoch(
    tmp_path, fit, task, on_ranks
):
    def trained_on(world_size, **jobs):
        on_ranks(world_size, train_on_rank, tmp_path, fit, task, world_size, jobs)
        return [torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in jobs]

    of_two, of_one = tmp_path / "two.ckpt", tmp_path / "one.ckpt"
    [two] = trained_on(2, unbroken={"path": of_two})
    one = train(fit, task, batching={"ranks": 2}, path=of_one)
    assert len(two["losses"]) == STEPS and two["losses"][0] > two["losses"][-1]
    epoch = next(step for step in range(1, STEPS) if sum(map(len, two["rows"][:step])) == 60)
    assert sorted(row for rows in two["rows"][:epoch] for row in rows) == list(range(60))
    assert SAVED % epoch > 0, "inside an epoch"
    check_equal(one, two)
    check_equal(train(fit, task, of_two), two, first=SAVED)
    [resumed] = trained_on(2, resumed={"checkpoint": of_one})
    check_equal(resumed, two, first=SAVED)
    [on_three] = trained_on(3, on_three={"checkpoint": of_two})
    check_equal(on_three, two, first=SAVED)
