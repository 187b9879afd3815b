"""Steps whose gradients are not finite, and memory that is full."""

import lightning.pytorch as pl
import numpy as np
import pytest
import torch

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.errors import InputError
from seqclf.runs.training_run import explained_memory
from seqclf.training.not_finite import MAX_SKIPPED, NotFiniteSteps


class Spoil(pl.Callback):
    """Makes the loss of some batches NaN, and records the weights and rows around each step."""

    def __init__(self, batches):
        self.batches = batches
        self.changed = {}
        self.rows = 0

    def on_train_start(self, trainer, task):
        loss = task.loss.forward

        def spoiled(logits, labels):
            value = loss(logits, labels)
            return value * float("nan") if trainer.fit_loop.total_batch_idx in self.batches else value

        task.loss.forward = spoiled

    def on_train_batch_start(self, trainer, task, batch, batch_idx):
        self.before = torch.cat([weight.detach().clone().flatten() for weight in task.parameters()])
        self.rows += len(batch.ids) * (trainer.fit_loop.total_batch_idx not in self.batches)

    def on_train_batch_end(self, trainer, task, outputs, batch, batch_idx):
        after = torch.cat([weight.detach().flatten() for weight in task.parameters()])
        self.changed[trainer.fit_loop.total_batch_idx] = not torch.equal(self.before, after)


def test_a_step_without_a_finite_loss_ends_the_training_and_names_its_rows(task, fit, splits):
    hooks = [Spoil({2}), NotFiniteSteps(splits, skip=False)]
    with pytest.raises(InputError) as raised:
        fit(task(), callbacks=hooks, max_epochs=1)
    assert raised.value.where == "step 3 (epoch 1)"
    assert "row" in raised.value.problem and "runtime.on_nan=skip" in raised.value.remedy
    assert "in the gradient of " in raised.value.problem


@pytest.mark.parametrize("place", ["field", "weight"])
def test_the_first_value_that_is_not_finite_is_named(task, fit, splits, place):
    class Broken(pl.Callback):
        def on_train_batch_start(self, trainer, module, batch, batch_idx):
            weight = module.model.output.bias.data
            values = next(values for values in batch.fields.values() if values.is_floating_point())
            (values if place == "field" else weight)[0] = float("inf")

    expected = {"field": "in the field value", "weight": "in the weight model.output.bias"}[place]
    with pytest.raises(InputError, match=expected):
        fit(task(), callbacks=[Broken(), NotFiniteSteps(splits, skip=False)], max_epochs=1)


def test_a_step_that_is_left_out_changes_neither_weights_nor_metrics(task, fit, splits):
    spoil, module = Spoil({2, 3}), task()
    fit(module, callbacks=[spoil, NotFiniteSteps(splits, skip=True)], max_epochs=1)
    assert {batch for batch, changed in spoil.changed.items() if not changed} == {2, 3}
    scores = module.epoch_scores["train"]
    assert scores.support.sum() == spoil.rows < len(splits["train"].labels)
    assert np.isfinite(scores.scores["loss"])


def test_the_moments_of_the_optimizer_are_those_of_the_other_steps(task, fit, splits):
    module = task()
    trainer = fit(module, callbacks=[Spoil({1}), NotFiniteSteps(splits, skip=True)], max_epochs=1)
    counts = {int(state["step"]) for state in trainer.optimizers[0].state.values()}
    assert counts == {trainer.global_step - 1}


def test_many_steps_in_a_row_end_the_training(task, fit, splits):
    hooks = [Spoil(set(range(1000))), NotFiniteSteps(splits, skip=True)]
    with pytest.raises(InputError) as raised:
        fit(task(), callbacks=hooks, max_epochs=1, batching={"max_sequences": 1})
    assert raised.value.where.startswith(f"step {MAX_SKIPPED + 1} ")


class Full(pl.Callback):
    """Asks for more memory than any machine has, inside a step."""

    def on_before_backward(self, trainer, task, loss):
        torch.empty(2**58)


def test_a_full_memory_is_one_line_with_the_batch(task, fit, splits):
    module = task()
    batches = SequenceDataModule(splits, max_tokens=100_000)
    with pytest.raises(InputError) as raised, explained_memory(module, batches):
        fit(module, callbacks=[Full()], max_epochs=1)
    rows, longest = module.batch_shape
    assert f"{rows:,} sequences of up to {longest:,} tokens" in raised.value.problem
    assert "batching.max_tokens (now 100000)" in raised.value.remedy
