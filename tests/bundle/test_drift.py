"""Drift names fields that differ from the reference data, and almost never one of unchanged data (simulated)."""

import json
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy.special import stdtr
from support.untrained_task import data_options, make_task

from seqclf.bundle.drift import MAX_ROWS, RowSample, two_sided
from seqclf.bundle.reference_data import PredictedRows, ReferenceData
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.scoring import predict_labelled
from seqclf.commands.predict import predict_file
from seqclf.data.encoding.encoders import encode, make_encoders
from seqclf.data.prepare_data import prepare
from seqclf.data.reading.sources import Source
from seqclf.data.schema.schema import Field
from seqclf.data.schema.truncation import NO_TRUNCATION
from seqclf.errors import InputError
from seqclf.runs.bundle_export import write_bundle

FIELDS = [Field("merchant", "category", ("merchant",), values="text"), Field("amount", "number", ("amount",), width=1)]
VALUES, GROUP_ROWS, CLASSES = 60, 10, ["no", "yes"]
SHARES = 1 / np.arange(1, VALUES + 1)
SHARES = SHARES / SHARES.sum() * 0.9


def population(random, groups):
    """Rows in groups of 10, alike in merchants, amounts, lengths and probabilities: columns, probabilities and groups.

    The merchant "fuel" has a share of .1, the others have those of Zipf's law; amounts are Pareto
    distributed, with infinite variance.
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
            amounts.append(np.exp(level) * (1 + random.pareto(1.5, length)))
            scores.append(1 / (1 + np.exp(-score - 0.5 * random.normal())))
    return merchants, amounts, np.array(scores), np.repeat(np.arange(groups), GROUP_ROWS)


def rows_of(encoders, merchants, amounts, scores, groups):
    columns = pa.record_batch({"merchant": pa.array(merchants), "amount": pa.array(amounts)})
    sequences, lengths = encode(encoders, columns, NO_TRUNCATION)
    return PredictedRows(sequences, lengths, np.stack([1 - scores, scores], axis=1), groups)


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
    reference = ReferenceData(encoders, CLASSES, "yes")
    training = rows_of(encoders, *population(random, groups)).sequences
    reference.fit(rows_of(encoders, *population(random, groups)), training)
    return reference


def drift(reference, rows):
    sample = RowSample(reference)
    sample.add(rows)
    return sample.drift()


@pytest.mark.slow
@pytest.mark.parametrize("are_known", [True, False])
@pytest.mark.parametrize("groups", [3, 30, 300])
def test_unchanged_data_rarely_drifts(encoders, groups, are_known):
    random, trials, memories = np.random.default_rng(groups), 120, 10
    found = []
    for _ in range(memories):
        reference = remembered(encoders, random)
        for _ in range(trials // memories):
            rows = rows_of(encoders, *population(random, groups))
            found.append(drift(reference, rows if are_known else rows._replace(groups=None)))
    assert sum(map(bool, found)) <= 0.05 * trials


def changed(name, random, merchants, amounts):
    """A population with one change, the name of the field that drifts, and what its line says."""
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
def test_changed_data_of_1000_independent_rows_drifts(encoders, name, field, of):
    random = np.random.default_rng(3)

    def independent(groups):
        parts = [population(random, groups) for _ in range(GROUP_ROWS)]
        columns = [[value for part in parts for value in part[column][::GROUP_ROWS]] for column in range(3)]
        return columns[0], columns[1], np.array(columns[2])

    reference = ReferenceData(encoders, CLASSES, "yes")
    reference.fit(rows_of(encoders, *independent(200), None), rows_of(encoders, *independent(100), None).sequences)
    merchants, amounts, scores = independent(100)
    assert drift(reference, rows_of(encoders, merchants, amounts, scores, None)) == []
    found = drift(reference, rows_of(encoders, *changed(name, random, merchants, amounts), scores, None))
    assert [each.field for each in found] == [field]
    assert found[0].of == of and found[0].distance >= 0.05
    if name == "scale":
        assert 1.2 < found[0].after / found[0].before < 1.8
    elif name != "lengths":
        assert found[0].after - found[0].before == pytest.approx(0.1, abs=0.03)


def table_of(random, rows, factor=1.0):
    lengths = random.integers(3, 12, rows)
    columns = {
        "merchant": [random.choice(["food", "fuel", "fun"], length).tolist() for length in lengths],
        "amount": [(factor * random.lognormal(3, 1, length)).tolist() for length in lengths],
        "codes": [[random.choice(["a", "b", "c"], random.integers(0, 3)).tolist() for _ in range(n)] for n in lengths],
        "place": [random.normal(size=(length, 2)).tolist() for length in lengths],
        "age": random.integers(20, 90, rows).astype(float).tolist(),
        "person": random.integers(0, rows // 2, rows).tolist(),
        "label": random.choice(["no", "yes"], rows).tolist(),
    }
    return pa.table(columns)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reference")
    pq.write_table(table_of(np.random.default_rng(0), 400), folder / "train.parquet")
    fields = {"merchant": "category", "amount": "number", "codes": "set", "place": "number"}
    options = {"fields": fields, "static": {"age": "number"}, "group": "person"}
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), **options))
    rows = dataset.splits["train"]
    probabilities = np.full((len(rows.labels), 2), 0.5)
    reference = ReferenceData(dataset.encoders, dataset.classes, "yes")
    reference.fit(
        PredictedRows(rows.sequences, rows.lengths_before_truncation, probabilities, rows.groups), rows.sequences
    )
    del reference.fields["probability of the positive label"]  # those of random weights are unknown
    write_bundle(make_task(dataset.description()), folder / "bundle", {}, reference=reference)
    return folder / "bundle"


def predicted(bundle, folder, table):
    pq.write_table(table, folder / "new.parquet")
    keys = {"input": str(folder / "new.parquet"), "output": str(folder / "out.parquet"), "engine": "local"}
    return predict_file(Classifier(bundle, device="cpu", threads=1), SimpleNamespace(**keys))


def test_predict_names_what_drifts(bundle, tmp_path, capsys):
    unchanged = predicted(bundle, tmp_path, table_of(np.random.default_rng(1), 300))
    assert unchanged.drift is None and "drift" not in unchanged.to_dict()
    capsys.readouterr()
    table = table_of(np.random.default_rng(2), 300, factor=2.0)
    table = table.set_column(table.column_names.index("age"), "age", pa.array(np.full(300, 200.0)))
    age, amount = predicted(bundle, tmp_path, table).to_dict()["drift"]
    # Ages beyond those of training have no bin with two ends, so their share is shown and not a median.
    assert age["field"] == "age" and age["of"].startswith("around") and age["after"] == 1.0
    assert (amount["field"], amount["of"]) == ("amount", "median")
    assert (amount["before"], amount["after"]) == (pytest.approx(20, rel=0.2), pytest.approx(40, rel=0.2))
    lines = [line for line in capsys.readouterr().err.splitlines() if "drifted since training" in line]
    assert len(lines) == 2 and "amount: median" in lines[1] and "→" in lines[1]


@pytest.mark.parametrize("group", [None, "person"])
def test_labelled_rows_are_compared_with_their_groups(bundle, tmp_path, group):
    table = table_of(np.random.default_rng(3), 30, factor=4.0)
    table = pa.concat_tables([table] * 10)  # copies of 30 rows, in groups or not
    person = np.tile(np.arange(30) % 2, 10) if group else np.arange(300)
    table = table.set_column(table.column_names.index("person"), "person", pa.array(person))
    pq.write_table(table, tmp_path / "new.parquet")
    classifier = Classifier(bundle, device="cpu", threads=1)
    found = predict_labelled(classifier, Source(str(tmp_path / "new.parquet"), "test"), "label", None, group=group)
    assert ("amount" in [each.field for each in found.drift]) is (group is None)


def test_a_damaged_memory_is_named(bundle, tmp_path):
    manifest = json.loads((bundle / "manifest.json").read_text())
    assert all(len(json.dumps(field)) < 2000 for field in manifest["reference"].values())
    assert {"merchant", "amount", "codes", "place[0]", "place[1]", "age"} < set(manifest["reference"])
    state, encoders = manifest["reference"], Classifier(bundle, device="cpu", threads=1).encoders
    for key, value in {"values": [2.0, 1.0], "mean": [2.0], "texts": ["a"], "rows": 0}.items():
        damaged = {**state, "amount": {**state["amount"], key: value}}
        with pytest.raises(InputError, match="amount"):
            ReferenceData(encoders, CLASSES, "yes").restore(damaged)


def test_a_bundle_without_a_memory_says_nothing(exported, tmp_path, capsys):
    rows = [{"events": [1, 2, 3], "label": "k0"}] * 50
    assert predicted(exported("events").folder, tmp_path, pa.Table.from_pylist(rows)).drift is None
    assert "drifted" not in capsys.readouterr().err


def test_a_long_file_is_sampled(encoders):
    random = np.random.default_rng(5)
    reference = remembered(encoders, random, 20)
    sample, rows = RowSample(reference), rows_of(encoders, *population(random, 300))
    for _ in range(20):
        sample.add(rows._replace(groups=None))
    (count,) = {len(part) for part in sample.columns.values()}
    assert MAX_ROWS / 3 < count <= MAX_ROWS and count == pytest.approx(60_000 * sample.rate, rel=0.05)


@pytest.mark.parametrize("freedom", [1, 1.3, 2, 9, 59, 1e6])
def test_tails_of_students_t_are_those_of_scipy(freedom):
    expected = 2 * stdtr(freedom, -np.linspace(1.5, 60, 500))
    found = two_sided(np.linspace(1.5, 60, 500), freedom)
    np.testing.assert_allclose(found[expected > 1e-200], expected[expected > 1e-200], rtol=1e-5)
