"""The survey agrees with plain loops over the same rows."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from seqclf.data.prepare_data import prepare
from seqclf.evaluation.baseline_scores import best_model, metrics_of, score_baseline
from seqclf.survey.survey import survey_dataset


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """265 rows of two classes, 12 to 1, with a constant field, a field that is the label, and a rating column."""
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
def dataset_and_survey(table, options):
    fields = {
        "tokens": "category",
        "values": {"kind": "number", "missing": "last"},
        "still": "category",
        "answer": "category",
    }
    data_options = options(train=table[0], label="y", fields=fields, ignore=["rating"], split={"test": 0.2})
    dataset = prepare(data_options)
    return dataset, survey_dataset(dataset, data_options, baseline=True)


@pytest.fixture(scope="module")
def survey(dataset_and_survey):
    return dataset_and_survey[1]


def test_class_counts_add_up_to_the_rows_of_the_file(dataset_and_survey, table):
    dataset, survey = dataset_and_survey
    labels = [row["y"] for row in table[1]]
    for label, rows in survey.classes.items():
        assert list(rows) == list(dataset.splits) and sum(rows.values()) == labels.count(label)


def test_problems_are_warned_of(survey):
    for part in (
        "5 of 265 rows repeat an earlier row (260 are distinct)",
        "classes are imbalanced: 1",
        "field still is the same in every token; leave it out",
        "column 'rating' gives the label away (AUROC 1.000 alone)",
        "field answer alone, without its order, reaches a recall of 1.000",
    ):
        assert any(line.startswith(part) for line in survey.warnings), survey.warnings


def test_harmless_data_gives_no_warning(options, tmp_path):
    generator = np.random.default_rng(0)
    rows = [{"x": generator.integers(1, 9, 8).tolist(), "y": "ab"[row % 2]} for row in range(200)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    data_options = options(train=tmp_path / "t.parquet", label="y")
    assert survey_dataset(prepare(data_options), data_options, baseline=True).warnings == []


def test_baseline_scores_are_kept_with_the_dataset(dataset_and_survey):
    dataset, survey = dataset_and_survey
    scored = score_baseline(dataset)
    assert survey.baseline == {scores.model: metrics_of(scores, dataset.positive) for scores in scored}
    assert len(list(dataset.folder.glob("baseline-*/*.parquet"))) == 2
    assert survey.baseline[best_model(survey.baseline, "average_precision")]["test"].recall == 1.0


def test_many_classes_and_fields_get_a_quick_baseline_that_training_does_not_take(options, tmp_path, capsys):
    generator = np.random.default_rng(0)
    rows = [
        {"x": generator.integers(1, 9, 8).tolist(), "n": (row % 11 + generator.random(8)).tolist(), "y": f"c{row % 11}"}
        for row in range(330)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    data_options = options(train=tmp_path / "t.parquet", label="y")
    dataset = prepare(data_options)
    survey = survey_dataset(dataset, data_options, baseline=True)
    assert list(survey.baseline) == ["logistic regression"] and "C=3 alone" in capsys.readouterr().err
    assert survey.single_field_recall["n"] > 0.9 > survey.single_field_recall["x"]
    assert [scores.model for scores in score_baseline(dataset)] == ["logistic regression", "gradient boosting"]
    kept = survey_dataset(dataset, data_options, baseline=True)
    assert len(kept.baseline) == 2, "the scores of a training are there already"


def test_damaged_scores_of_the_baseline_are_computed_again(dataset_and_survey):
    dataset, _ = dataset_and_survey
    first = score_baseline(dataset)
    path = min(dataset.folder.glob("baseline-*/*.parquet"))
    intact = path.read_bytes()
    for damaged in (b"", intact[:-1], intact.replace(b"PAR1", b"PAR2")):
        path.write_bytes(damaged)
        for scores, again in zip(first, score_baseline(dataset), strict=True):
            np.testing.assert_array_equal(again.splits["test"].probabilities(), scores.splits["test"].probabilities())
        assert path.read_bytes() == intact


def test_a_sampled_split_says_which_of_its_rows_the_baseline_predicted(dataset_and_survey, monkeypatch):
    dataset, _ = dataset_and_survey
    monkeypatch.setattr("seqclf.evaluation.baseline_scores.MAX_FITTED_TOKENS", 350)
    monkeypatch.setattr("seqclf.evaluation.baseline_scores.SCORES_FORMAT", "sampled")
    scored = score_baseline(dataset)
    best = scored[0]
    metrics = metrics_of(best, dataset.positive)["test"]
    outputs = best.splits["test"]
    split = dataset.splits["test"]
    rows = [split.ids.index(one).as_py() for one in outputs.ids]
    predicted = outputs.predicted()
    assert 0 < len(rows) == len(predicted) == metrics.rows < len(split.labels)
    assert (predicted == split.labels[rows]).mean() == metrics.accuracy


def test_groups_are_counted_by_split(options, tmp_path):
    rows = [{"x": [row % 7, row % 5], "y": "ab"[row % 2], "who": f"p{row % 33}"} for row in range(99)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    split = {"by": "group", "validation": 4 / 33}
    data_options = options(train=tmp_path / "t.parquet", label="y", group="who", split=split)
    survey = survey_dataset(prepare(data_options), data_options, baseline=False)
    groups = survey.summary()["groups"]
    assert sum(groups.values()) == 33 and survey.to_dict()["groups"] == groups
    assert {name: 3 * count for name, count in groups.items()} == survey.summary()["rows"]


def test_refused_events_are_counted(options, tmp_path):
    lines = ["card,amount,y", *(f"{row // 3},{row % 7},{row // 3 % 2}" for row in range(120))]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "1,2,3,4"]))
    chosen = options(train=tmp_path / "t.csv", label="y", group_by="card", rows="events")
    summary = survey_dataset(prepare(chosen), chosen, baseline=False).summary()
    assert (summary["refused"], summary["refused_events"]) == (0, 1)


def test_survey_without_baseline_fits_no_model(dataset_and_survey, options, table):
    dataset, survey = dataset_and_survey
    light = survey_dataset(dataset, options(train=table[0], label="y"), baseline=False)
    assert light.baseline is None and light.columns == [] and set(light.warnings) < set(survey.warnings)
    assert "single_field_recall" not in light.to_dict()


def test_words_that_are_nearly_all_unknown_are_codes_without_spaces(options, tmp_path):
    reads = ["".join("ACGT"[(row * 7 + place**2) % 4] for place in range(9 + row)) for row in range(40)]
    pq.write_table(pa.table({"bases": reads, "label": ["a", "b"] * 20}), tmp_path / "t.parquet")
    settings = {"train": tmp_path / "t.parquet", "label": "label", "cache_dir": tmp_path / "cache"}
    data_options = options(**settings)
    (line,) = [
        line
        for line in survey_dataset(prepare(data_options), data_options, baseline=False).warnings
        if line.startswith("field bases")
    ]
    advised = line.partition("set ")[2].strip("'").removeprefix("data.fields=")
    characters = options(**settings, fields=yaml.safe_load(advised))
    lines = survey_dataset(prepare(characters), characters, baseline=False).warnings
    assert not any(line.startswith("field bases") for line in lines)
