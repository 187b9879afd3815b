"""The memory of a bundle names fields that moved, and almost never one of unchanged data (simulated)."""

import json

import numpy as np
import pyarrow as pa
import pytest

from seqclf.bundle.training_memory import Rows, RowSample, TrainingMemory
from seqclf.data.encoding.encoders import encode, make_encoders
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.errors import InputError

FIELDS = [Field("merchant", "category", ("merchant",), values="text"), Field("amount", "number", ("amount",), width=1)]
VALUES, GROUP_ROWS, CLASSES = 60, 10, ["no", "yes"]
SHARES = 1 / np.arange(1, VALUES + 1)
SHARES = SHARES / SHARES.sum() * 0.9


def population(random, groups):
    """Rows in groups of 10, alike in merchants, amounts, lengths and probabilities: columns, probabilities and groups.

    The merchant "fuel" has a share of .1, the others have those of Zipf's law; amounts are lognormal.
    """
    names = np.array([f"m{value}" for value in range(VALUES)] + ["fuel"])
    merchants, amounts, scores = [], [], []
    for _ in range(groups):
        preferred = random.dirichlet(np.append(SHARES, 0.1) * 8)
        level, typical = random.normal(3, 1), random.lognormal(2, 0.7)
        score = random.normal(-2, 1)
        for _ in range(GROUP_ROWS):
            length = 1 + random.poisson(random.exponential(typical))
            merchants.append(random.choice(names, length, p=preferred))
            amounts.append(np.exp(level + random.standard_t(3, length)))
            scores.append(1 / (1 + np.exp(-score - 0.5 * random.normal())))
    return merchants, amounts, np.array(scores), np.repeat(np.arange(groups), GROUP_ROWS)


def rows_of(encoders, merchants, amounts, scores, groups):
    columns = pa.record_batch({"merchant": pa.array(merchants), "amount": pa.array(amounts)})
    sequences, lengths = encode(encoders, columns, NO_TRUNCATION)
    return Rows(sequences, lengths, np.stack([1 - scores, scores], axis=1), groups)


@pytest.fixture(scope="module")
def encoders():
    merchants, amounts, *_ = population(np.random.default_rng(1), 300)
    encoders = make_encoders(FIELDS)
    columns = {"merchant": pa.array(merchants), "amount": pa.array(amounts)}
    staged = pa.record_batch({name: encoder.stage(columns[name]) for name, encoder in encoders.items()})
    for encoder in encoders.values():
        encoder.fit(lambda *names: iter([staged]))
    return encoders


def remembered(encoders, random, groups=60):
    memory = TrainingMemory(encoders, CLASSES, "yes")
    training = rows_of(encoders, *population(random, groups)).sequences
    memory.fit(rows_of(encoders, *population(random, groups)), training)
    return memory


def moved(memory, rows):
    sample = RowSample(memory)
    sample.add(rows)
    return sample.moved()


@pytest.mark.slow
@pytest.mark.parametrize("are_known", [True, False])
@pytest.mark.parametrize("groups", [3, 30, 300])
def test_unchanged_data_has_rarely_moved(encoders, groups, are_known):
    random, trials, memories = np.random.default_rng(groups), 120, 10
    found = []
    for _ in range(memories):
        memory = remembered(encoders, random)
        for _ in range(trials // memories):
            rows = rows_of(encoders, *population(random, groups))
            found.append(moved(memory, rows if are_known else rows._replace(groups=None)))
    print(groups, are_known, sum(map(bool, found)), [str(x) for f in found for x in f][:5])
    assert sum(map(bool, found)) <= 0.05 * trials


def changed(name, random, merchants, amounts):
    """A population with one change, the name of the field that moved, and what its line says."""
    if name == "share":
        merchants = [["fuel" if random.random() < 0.1 / 0.9 else value for value in row] for row in merchants]
    elif name == "unknown":
        merchants = [["new" if random.random() < 0.1 else value for value in row] for row in merchants]
    elif name == "scale":
        amounts = [[1.5 * value for value in row] for row in amounts]
    elif name == "lengths":
        merchants, amounts = ([[*row, *row] for row in rows] for rows in (merchants, amounts))
    return merchants, amounts


@pytest.mark.parametrize(
    ("name", "field", "of"),
    [
        ("share", "merchant", "fuel"),
        ("unknown", "merchant", "unknown values"),
        ("scale", "amount", "median"),
        ("lengths", "sequence length", "median"),
    ],
)
def test_changed_data_of_1000_independent_rows_has_moved(encoders, name, field, of):
    random = np.random.default_rng(3)

    def independent(groups):
        parts = [population(random, groups) for _ in range(GROUP_ROWS)]
        columns = [[value for part in parts for value in part[column][::GROUP_ROWS]] for column in range(3)]
        return columns[0], columns[1], np.array(columns[2])

    memory = TrainingMemory(encoders, CLASSES, "yes")
    memory.fit(rows_of(encoders, *independent(200), None), rows_of(encoders, *independent(100), None).sequences)
    merchants, amounts, scores = independent(100)
    assert moved(memory, rows_of(encoders, merchants, amounts, scores, None)) == []
    found = moved(memory, rows_of(encoders, *changed(name, random, merchants, amounts), scores, None))
    assert [each.field for each in found] == [field]
    assert found[0].of == of and found[0].distance >= 0.05
    if name == "scale":
        assert 1.2 < found[0].after / found[0].before < 1.8
    elif name != "lengths":
        assert found[0].after - found[0].before == pytest.approx(0.1, abs=0.03)
