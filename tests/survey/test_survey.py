"""What describe tells of a dataset is what a plain look at the same rows tells."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from seqclf.batching.plan import padding_efficiency, plan_batches
from seqclf.data.prepare import prepare
from seqclf.survey.predictability import score_baseline
from seqclf.survey.survey import survey_dataset

PLAN = {"max_tokens": 64, "max_sequences": 8, "pool_batches": 4}
BATCHING = {**PLAN, "overhead": None, "multiple_of": 1, "edges": None, "balance": 0.0, "largest_first": False}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """260 rows: two classes, 12 to 1; one field that never changes, one that is the label, a rating beside them."""
    generator = np.random.default_rng(0)
    rows = []
    for row in range(260):
        rare = row % 13 == 0
        length = int(generator.integers(4, 14))
        values = generator.normal(0, 1, length).round(3).tolist()
        rows.append(
            {
                "tokens": generator.integers(1, 6, length).tolist(),
                "values": [None if generator.random() < 0.25 else value for value in values],
                "still": [7] * length,
                "answer": ["r" if rare else "c"] * length,
                "rating": 1 if rare else 9,
                "y": "rare" if rare else "common",
            }
        )
    rows += rows[:5]
    path = tmp_path_factory.mktemp("survey") / "t.parquet"
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path, rows


@pytest.fixture(scope="module")
def found(table, options):
    fields = {
        "tokens": "category",
        "values": {"kind": "number", "missing": "last"},
        "still": "category",
        "answer": "category",
    }
    chosen = options(train=table[0], label="y", fields=fields, split={"test": 0.2})
    dataset = prepare(chosen)
    return dataset, survey_dataset(dataset, chosen, BATCHING, baseline=True)


def test_rows_and_classes_are_counted(found, table):
    dataset, told = found
    labels = [row["y"] for row in table[1]]
    for entry in told["classes"]:
        assert sum(entry[name] for name in dataset.splits) == labels.count(entry["label"])
        assert entry["share"] == pytest.approx(labels.count(entry["label"]) / len(labels))


def test_lengths_are_those_of_the_rows(found, table):
    told = found[1]["lengths"]
    lengths = np.array([len(row["tokens"]) for row in table[1]])
    assert told["all"]["max"] == lengths.max() and told["all"]["p95"] == np.percentile(lengths, 95)
    assert told["all"]["mean"] == pytest.approx(lengths.mean())
    for label, summary in told["by_class"].items():
        own = lengths[[row["y"] == label for row in table[1]]]
        assert (summary["rows"], summary["p50"]) == (len(own), np.percentile(own, 50))
        assert sum(told["histogram"]["by_class"][label]) == len(own)


def test_padding_is_what_the_plan_reaches(found):
    dataset, told = found
    lengths = dataset.splits["train"].sequences.lengths
    plan = plan_batches(lengths, **BATCHING, seed=0, epoch=0)
    assert told["batches"]["padding_efficiency"] == padding_efficiency(lengths, plan)
    assert told["batches"]["padding_efficiency_static"] == pytest.approx(lengths.mean() / lengths.max())


def test_cutting_is_told_before_it_is_done(found, table):
    lengths = np.array([len(row["tokens"]) for row in table[1]])
    for row in found[1]["truncation"]["if"]:
        limit = row["max_length"]
        assert row["cut_rows"] == pytest.approx((lengths > limit).mean())
        assert row["lost_steps"] == pytest.approx(1 - np.minimum(lengths, limit).sum() / lengths.sum())


def test_missing_values_are_counted(found, table):
    dataset, told = found
    rows = dataset.splits["train"].rows
    values = [value for row in rows for value in table[1][row - 1]["values"]]
    (share,) = told["fields"]["values"]["missing"].values()
    assert share == pytest.approx(values.count(None) / len(values))


@pytest.mark.parametrize(
    "part",
    [
        "5 of 265 rows repeat an earlier row (260 are distinct)",
        "classes are imbalanced: 1",
        "field still is the same in every step; leave it out",
        "column 'rating' gives the label away (AUROC 1.000 alone)",
        "field answer alone, without its order, reaches a recall of 1.000",
    ],
)
def test_what_should_be_looked_at_is_said(found, part):
    assert any(line.startswith(part) for line in found[1]["warnings"]), found[1]["warnings"]


def test_harmless_data_gives_no_warning(options, tmp_path):
    generator = np.random.default_rng(0)
    rows = [{"x": generator.integers(1, 9, 8).tolist(), "y": "ab"[row % 2]} for row in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    chosen = options(train=tmp_path / "t.parquet", label="y")
    assert survey_dataset(prepare(chosen), chosen, BATCHING, baseline=True)["warnings"] == []


def test_the_baseline_is_kept_beside_the_data_and_the_survey_is_plain_json(found):
    dataset, told = found
    assert told["baseline"] == score_baseline(dataset) == json.loads(json.dumps(told["baseline"]))
    assert list(dataset.folder.glob("baseline-*.json"))
    assert told["baseline"]["models"][told["baseline"]["model"]]["test"]["recall"] == 1.0
    json.dumps(told, allow_nan=False)


def test_the_light_survey_fits_nothing(found, options, table):
    dataset, told = found
    light = survey_dataset(dataset, options(train=table[0], label="y"), BATCHING, baseline=False)
    assert light["baseline"] is None and light["columns"] == [] and set(light["warnings"]) < set(told["warnings"])
