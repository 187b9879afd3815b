"""The progress line of training: epochs from 1, and the optimizer steps of all epochs."""

import pytest

from seqclf.training.training_log import TrainingProgress

from .conftest import QUIET

pytestmark = QUIET


@pytest.fixture
def trained(task, fit):
    def train(**settings):
        bar, batching = TrainingProgress(), {"max_tokens": 40, "max_sequences": 4, "pool_batches": 2}
        with bar.shown():
            fit(task(), callbacks=[bar], batching=batching, enable_checkpointing=False, **settings)
        return bar.stage

    return train


def test_the_steps_of_all_epochs_are_counted(trained):
    stage = trained(max_epochs=3, limit_train_batches=4, accumulate_grad_batches=2)
    assert (stage.completed, stage.total, stage.unit) == (6, 6, "steps")
    assert stage.title == "epoch 3 of 3, validation" and stage.note.startswith("loss ")


def test_a_limit_of_steps_is_the_total_and_a_limit_of_time_is_none(trained):
    stage = trained(max_epochs=-1, max_steps=4)
    assert (stage.completed, stage.total, stage.title) == (4, 4, "epoch 1")
    timed = trained(max_epochs=-1, max_time={"seconds": 1})
    assert timed.total is None and timed.row()[1] is None
