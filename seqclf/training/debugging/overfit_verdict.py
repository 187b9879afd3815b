"""Verdict on a training on one batch: its loss fell to zero, or not, and what to look at then."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

STEPS_SHOWN = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)
FALLING = 0.03  # share of the loss that the last fifth of the steps must take away to count as falling
JUMPING = 0.1  # sum of all rises, as a share of the mean loss, from which on it jumps
STILL = 0.02  # share by which a loss changes that does not move


@dataclass(frozen=True, kw_only=True)
class OverfitRecord:
    """A training on one batch, as measured.

    `losses`: mean loss of a row before each step. `floor`: the lowest that contradictory rows allow. `last_loss`:
    after the last step, in evaluation mode. `wrong`: names of the rows that are not classified as labelled,
    contradictory ones left out, out of `rows`. `unchanged`: names of weights that the training did not change.
    `constant`: all rows have the same logits, though not the same tokens. `random`: logits depend on random numbers.
    `labels`: different labels of the batch. `contradictions`: a sentence, None without any.
    """

    losses: Sequence[float]
    goal: float
    floor: float
    last_loss: float
    rows: int
    labels: int
    wrong: Sequence[str]
    unchanged: Sequence[str]
    weights: int
    constant: bool
    random: bool
    learning_rate: float
    contradictions: str | None = None

    @property
    def learned(self) -> bool:
        """True if the loss is as near to its floor as the goal asks, and each row is classified as labelled."""
        return self.losses[-1] <= self.floor + self.goal and not self.wrong

    @property
    def accuracy(self) -> float:
        """Share of the rows that are not wrong."""
        return 1 - len(self.wrong) / self.rows


@dataclass(frozen=True)
class OverfitVerdict:
    """Verdict in words. `advice`: what to look at, in the order of likelihood. `notes`: facts worth knowing."""

    learned: bool
    text: str
    advice: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(record: OverfitRecord) -> OverfitVerdict:
    """Return the verdict on a training on one batch.

    >>> facts = {"floor": 0.0, "last_loss": 0.01, "rows": 8, "labels": 2, "wrong": [], "unchanged": [], "weights": 4}
    >>> facts |= {"constant": False, "random": False, "learning_rate": 0.1}
    >>> record = OverfitRecord(losses=[0.7, 0.3, 0.01], goal=0.02, **facts)
    >>> judge(record).text
    'LEARNED: the loss of 8 rows fell from 0.7 to 0.01 in 3 steps. The model and the path of the data can learn'
    """
    first, last, steps = record.losses[0], record.losses[-1], len(record.losses)
    course = f"from {first:.3g} to {last:.3g} in {steps:,} steps"
    notes = _notes(record)
    if record.learned:
        reached = f", near the {record.floor:.3g} that contradictory labels leave" if record.floor else ""
        text = f"LEARNED: the loss of {record.rows} rows fell {course}{reached}. The model and the path of the data can"
        return OverfitVerdict(True, f"{text} learn", notes=notes)
    moved = "fell only" if last < first else "did not fall:"
    text = f"NOT LEARNED: the loss of {record.rows} rows {moved} {course}, not to {record.floor + record.goal:.3g}"
    return OverfitVerdict(False, text, _advice(record), notes)


def _advice(record: OverfitRecord) -> list[str]:
    losses = np.array(record.losses)
    fifth = max(1, len(losses) // 5)
    end, before = losses[-fifth:].mean(), losses[-2 * fifth : -fifth].mean() if len(losses) > fifth else losses[0]
    rate = record.learning_rate
    advice = []
    if len(record.unchanged) == record.weights:
        advice.append("no weight changed: none requires a gradient, or the loss does not depend on any")
    elif record.constant:
        advice.append("all rows have the same logits: the network does not read its input, look at its forward")
    if abs(losses.max() - losses.min()) <= STILL * losses[0] and len(record.unchanged) < record.weights:
        advice.append(f"the loss does not move: raise optimizer.lr (now {rate:.3g}), to {rate * 10:.3g} for example")
    elif _jumps(losses) or end > losses[0]:
        advice.append(f"the loss goes up and down: lower optimizer.lr (now {rate:.3g}), to {rate / 10:.3g} for example")
    elif end < (1 - FALLING) * before:
        advice.append(f"the loss is still falling: raise debug.steps (now {len(losses)}) or optimizer.lr ({rate:.3g})")
    elif not record.wrong:
        advice.append("every row is classified as labelled: the loss itself may not reach 0, raise debug.goal then")
    elif not advice:
        advice.append("the loss stays where it is: look at the labels of the rows below, at the loss, and for values "
                      "that the network cannot tell apart")  # fmt: skip
    if record.wrong:
        named = ", ".join(record.wrong[:3]) + (f" and {len(record.wrong) - 3} more" if len(record.wrong) > 3 else "")
        advice.append(f"{len(record.wrong)} of {record.rows} rows are still wrong: {named}")
    return advice


def _notes(record: OverfitRecord) -> list[str]:
    notes = [] if record.contradictions is None else [f"{record.contradictions}; correct the labels, or add a field"]
    if record.labels == 1:
        notes.append("all rows of the batch have one label, which needs no input: set batching=balanced")
    if 0 < len(record.unchanged) < record.weights:
        named = ", ".join(record.unchanged[:3])
        more = f" and {len(record.unchanged) - 3} more" if len(record.unchanged) > 3 else ""
        notes.append(
            f"{len(record.unchanged)} of {record.weights} weights never changed (frozen or unused): {named}{more}"
        )
    if record.random:
        notes.append("the network draws random numbers in training beyond dropout and noise of its settings")
    if math.isfinite(record.last_loss) and record.last_loss > 2 * record.losses[-1] + record.goal:
        notes.append(
            f"in evaluation mode the loss of the same rows is {record.last_loss:.3g}: a module, such as a norm of "
            "batches, behaves differently there"
        )
    return notes


def _jumps(losses: np.ndarray) -> bool:
    """Return True if the second half of the losses goes up about as often and as far as down."""
    changes = np.diff(losses[len(losses) // 2 :])
    up = changes[changes > 0].sum()
    return bool(len(changes) > 4 and up > 0.5 * np.abs(changes[changes < 0]).sum() and up > JUMPING * losses.mean())


def curve(losses: Sequence[float]) -> list[tuple[int, float]]:
    """Return some steps, counted from 1, with their losses: a few early ones, and the last.

    >>> curve([3.0, 2.0, 1.0])
    [(1, 3.0), (2, 2.0), (3, 1.0)]
    """
    steps = [step for step in STEPS_SHOWN if step < len(losses)]
    return [(step, losses[step - 1]) for step in [*steps, len(losses)]]
