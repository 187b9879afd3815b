"""Generated tables of events, whose classes a stated rule tells, for ladder.py. Does not import PyTorch.

Each generator returns a table and the probability of "yes" of each row by its rule. No model can be expected to score
higher than this probability does: it is the ceiling of the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Generator = np.random.Generator
NOISE = 0.1  # share of wrong labels, where a rule tells the class
CHANNELS, EVENTS, GROUPS, SHOPS = 3, 6, 8, 100


class Row(NamedTuple):
    """Columns of a row, and the probability of "yes"."""

    columns: dict[str, Any]
    probability: float


def _by_rule(rule: Callable[[np.ndarray, np.ndarray], bool]) -> Callable[[Generator], Row]:
    """Return a generator of rows with three numbers and an event a token, whose class a rule tells."""

    def row(random: Generator) -> Row:
        time = int(random.integers(5, 41))
        values = random.normal(size=(time, CHANNELS)) + 0.7 * random.normal(size=CHANNELS)
        events = random.choice(EVENTS, time, p=random.dirichlet(np.full(EVENTS, 2.0)))
        columns = {"values": values.tolist(), "event": [f"event{event}" for event in events]}
        return Row(columns, 1 - NOISE if rule(values, events) else NOISE)

    return row


def sum_by_category(random: Generator) -> Row:
    """The amounts at two of eight groups of merchants add up to more than 6."""
    time = int(random.integers(5, 41))
    groups = random.choice(GROUPS, time, p=random.dirichlet(np.full(GROUPS, 1.0)))
    amounts = random.lognormal(0.0, 1.0, time)
    is_high = amounts[np.isin(groups, (2, 5))].sum() > 6
    return Row(
        {"group": [f"g{group}" for group in groups], "amount": amounts.tolist()}, 1 - NOISE if is_high else NOISE
    )


def rate(random: Generator) -> Row:
    """Events come at more than one per 60 seconds. Their number and the span alone tell little."""
    time, gap = int(random.integers(5, 41)), 60 * float(np.exp(random.normal(0.0, 0.7)))
    at = np.cumsum(random.exponential(gap, time)) + random.integers(10**6)
    kinds = random.integers(4, size=time)
    is_dense = (time - 1) / (at[-1] - at[0]) > 1 / 60
    columns = {"at": at.round(2).tolist(), "event": [f"event{kind}" for kind in kinds]}
    return Row(columns, 1 - NOISE if is_dense else NOISE)


EFFECTS = np.random.default_rng(77).normal(0.0, 1.6, SHOPS)  # log odds of the shops, the same in all splits


def static_vocabulary(random: Generator) -> Row:
    """Each of 100 shops has log odds of its own; a frequent event adds a little."""
    shop, time = int(random.integers(SHOPS)), int(random.integers(3, 21))
    share = random.beta(2, 2)
    events = random.random(time) < share
    odds = EFFECTS[shop] + 1.5 * (events.mean() - 0.5) - 1.0
    columns = {"event": ["refund" if event else "sale" for event in events], "shop": f"shop{shop}"}
    return Row(columns, float(1 / (1 + np.exp(-odds))))


def rare_order(random: Generator) -> Row:
    """A fifth of the rows hold "reset, pay" one after the other, another fifth "pay, reset"; both hold each once."""
    time, kind = int(random.integers(8, 41)), random.random()
    names = [f"event{event}" for event in random.integers(EVENTS, size=time)]
    place = int(random.integers(time - 1))
    if kind < 0.4:
        names[place : place + 2] = ["reset", "pay"] if kind < 0.2 else ["pay", "reset"]
    return Row({"event": names, "value": random.normal(size=time).tolist()}, 1 - NOISE if kind < 0.2 else NOISE)


TABLES: dict[str, Callable[[Generator], Row]] = {
    "table/mean_and_count": _by_rule(lambda values, events: values[:, 0].mean() > 0.2 and (events == 0).sum() >= 3),
    "table/mean_and_highest": _by_rule(lambda values, events: values[:, 0].mean() > 0.3 and values[:, 2].max() > 1.8),
    "table/either_mean": _by_rule(lambda values, events: (values[:, 0].mean() > 0) != (values[:, 1].mean() > 0)),
    "table/event_and_value": _by_rule(lambda values, events: bool(((events == 0) & (values[:, 0] > 1.3)).any())),
    "table/sum_by_category": sum_by_category,
    "table/rate": rate,
    "table/static_vocabulary": static_vocabulary,
    "table/rare_order": rare_order,
}
OVERRIDES = {"table/rate": ["data.fields.at=time"]}


def generate(name: str, rows: int, seed: int) -> tuple[pa.Table, np.ndarray]:
    """Return `rows` labelled sequences, and the probabilities (N,) of "yes" by the rule of the set."""
    random = np.random.default_rng([seed, list(TABLES).index(name)])
    found = [TABLES[name](random) for _ in range(rows)]
    probabilities = np.array([row.probability for row in found])
    labels = np.where(random.random(rows) < probabilities, "yes", "no")
    columns = {key: [row.columns[key] for row in found] for key in found[0].columns}
    return pa.table({**columns, "label": labels.tolist()}), probabilities
