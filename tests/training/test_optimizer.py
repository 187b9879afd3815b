"""Learning rate schedule: warmup, decay, time limit."""

import numpy as np
import pytest

from seqclf.training.optimizer import schedule_factor

from .conftest import QUIET

pytestmark = QUIET


@pytest.mark.parametrize(("decay", "floor"), [("cosine", 0.1), ("linear", 0.0)])
def test_the_rate_climbs_then_falls_to_its_floor(decay, floor):
    factor = schedule_factor(200, warmup=0.1, decay=decay, floor=floor)
    rates = np.array([factor(step) for step in range(201)])
    assert 0 < rates[0] < 0.1
    assert (np.diff(rates[:21]) > 0).all() and (np.diff(rates[20:]) < 0).all()
    assert rates.max() == rates[20] == 1.0
    assert rates[200] == pytest.approx(floor) and factor(500) == pytest.approx(floor)
    assert factor(110) == pytest.approx(floor + (1 - floor) / 2), "half way, half the fall, on either curve"


def test_the_rate_without_decay_stays(task):
    factor = schedule_factor(100, warmup=0.1, decay="none", floor=0.0)
    assert [factor(step) for step in (10, 50, 99, 1000)] == [1.0] * 4
    endless = schedule_factor(float("inf"), warmup=0.1, decay="cosine", floor=0.0)
    assert endless(10**6) == 1.0


@pytest.mark.parametrize("steps", [1000, float("inf")])
def test_the_rate_reaches_its_floor_when_the_time_is_up(steps):
    clock = [0.0]
    factor = schedule_factor(steps, lambda: clock[0], warmup=0.1, decay="cosine", floor=0.1)
    rates = []
    for step, clock[0] in enumerate(np.linspace(0, 1, 101)):  # far fewer steps than planned
        rates.append(factor(step))
    assert 0 < rates[0] < 0.1 and (np.diff(rates[:11]) > 0).all() and (np.diff(rates[11:]) < 0).all()
    assert max(rates) > 0.98 and rates[100] == pytest.approx(0.1)


def test_the_rate_follows_the_steps_where_they_end_before_the_time():
    by_steps = schedule_factor(50, warmup=0.1, decay="cosine", floor=0.0)
    clock = [0.0]
    with_time = schedule_factor(50, lambda: clock[0], warmup=0.1, decay="cosine", floor=0.0)
    for step in range(51):
        clock[0] = step / 100
        assert by_steps(step) == with_time(step)


def test_a_training_that_ends_by_its_time_ends_at_a_low_rate(task, fit):
    trainer = fit(task(), max_epochs=-1, max_time={"seconds": 1}, enable_checkpointing=False)
    assert trainer.current_epoch < 10**4
    assert 0 <= trainer.optimizers[0].param_groups[0]["lr"] < 0.1 * 0.01
