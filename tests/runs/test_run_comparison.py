"""Comparison of finished runs: settings and their seeds, paired differences, and runs that cannot be compared."""

import json

import numpy as np
import pyarrow as pa
import pytest
import yaml
from sklearn.metrics import average_precision_score

from seqclf.config.command_keys import default_settings
from seqclf.errors import InputError
from seqclf.evaluation.comparison import RowPredictions, compare_models
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.judge import judge
from seqclf.evaluation.result import Facts
from seqclf.evaluation.score_files import write_run_scores
from seqclf.evaluation.scores import NETWORK, ScoredRows, Scores
from seqclf.runs.run_comparison import compare_runs, show_comparison

ROWS = 400
LABELS = np.random.default_rng(7).integers(0, 2, ROWS)


def outputs(quality, seed=0, *, groups=None, first=0):
    """Outputs of a model whose logits differ by `quality` between the labels. `first`: number of the first id."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(size=(ROWS, 2))
    numbers = np.arange(first, first + ROWS)
    labels = LABELS[numbers % ROWS]
    logits[np.arange(ROWS), labels] += quality
    ids = pa.array([f"row {number}" for number in numbers])
    return ScoredRows(logits, labels, np.ones(ROWS, np.int64), np.zeros(ROWS, bool), groups, None, ids)


LEAKS = dict.fromkeys(("rows", "distinct", "conflicting_sequences", "conflicting_rows"), 0)
LEAKS |= {"seen_before": {}, "ids_seen_before": None}


def write_run(folder, rows, *, positive="yes", monitor=None, **changed):
    """Write the files of a finished run with the scores `rows`. `changed`: keys of its config."""
    network = Scores(
        role=NETWORK,
        name="network",
        model="LSTM",
        classes=["no", "yes"],
        label_type="text",
        positive=positive,
        splits={"test": rows},
    )
    names = ("model", "decision", "optimizer", "trainer")
    config = {
        "seed": 0,
        "monitor": monitor,
        "baseline": False,
        "export": False,
        **{name: default_settings(name) for name in names},
        **changed,
    }
    result = judge([network], Facts(monitor=monitor), Decision(positive=positive))
    write_run_scores(folder / "scores", [network])
    about = {"step": 1, "seconds": 1.0 + config["seed"], "weights": 1234, "by_validation": None}
    (folder / "fit.json").write_text(json.dumps(about))
    (folder / "data.json").write_text(json.dumps({"report": {}, "leaks": LEAKS, "warnings": []}))
    (folder / "metrics.csv").write_text("epoch,step\n0,1\n")
    (folder / "metrics.json").write_text(json.dumps(result.to_dict()))
    (folder / "config.yaml").write_text(yaml.safe_dump(config))
    return str(folder)


def model(**changed):
    return default_settings("model") | changed


def precision(rows):
    return average_precision_score(rows.labels == 1, rows.logits[:, 1] - rows.logits[:, 0])


def paired(rows, other, group=None):
    """The deciding comparison of two models, whose rows are in the same order."""
    first, second = (RowPredictions(one.predicted(), one.probabilities()) for one in (rows, other))
    return compare_models(LABELS, first, second, 1, group=group)[0]


def test_settings_have_the_scores_of_their_seeds_and_the_difference_of_their_medians(tmp_path):
    good = [outputs(quality, seed) for seed, quality in enumerate((2.0, 2.2, 2.4))]
    poor = [outputs(quality, seed + 10) for seed, quality in enumerate((0.6, 0.3, 0.9))]
    for seed in range(3):
        write_run(tmp_path / f"good-{seed}", good[seed], seed=seed, runtime={"threads": seed + 1})
        write_run(tmp_path / f"poor-{seed}", poor[seed], seed=seed, model=model(layers=2))
    found = compare_runs([f"{tmp_path}/*"])
    best, other = found.settings
    assert (found.against, found.split, found.rows) == ("model.layers=1", "test", ROWS)
    assert other.setting == "model.layers=2" and best.difference is None
    for setting, models in ((best, good), (other, poor)):
        expected = sorted((precision(rows), seed) for seed, rows in enumerate(models))
        assert setting.scores["average precision"] == pytest.approx([score for score, _ in expected], abs=1e-6)
        assert setting.seeds == [seed for _, seed in expected]
        assert (setting.train_s, setting.weights) == (1.0 + expected[1][1], 1234)
    by_score = [sorted(models, key=precision)[1] for models in (poor, good)]
    assert other.difference.difference == pytest.approx(precision(by_score[0]) - precision(by_score[1]))
    assert other.difference == paired(*by_score)
    assert other.difference.is_worse


def test_runs_that_choose_by_accuracy_are_compared_by_accuracy(tmp_path):
    rows = [outputs(2.0), outputs(1.0, 1)]
    for layers, one in enumerate(rows, start=1):
        write_run(tmp_path / str(layers), one, monitor="accuracy", model=model(layers=layers))
    best, other = compare_runs([f"{tmp_path}/*"]).settings
    share = [float((one.logits.argmax(axis=1) == LABELS).mean()) for one in rows]
    assert [next(iter(setting.scores.items())) for setting in (best, other)] == [
        ("accuracy", [pytest.approx(value)]) for value in share
    ]
    assert other.difference.difference == pytest.approx(share[1] - share[0])


def test_rows_of_groups_count_by_their_groups(tmp_path):
    group = np.repeat(np.arange(40), 10)
    rows = [outputs(1.6, groups=group), outputs(1.0, 1)]
    runs = [write_run(tmp_path / str(place), one, model=model(layers=place + 1)) for place, one in enumerate(rows)]
    for against in runs:  # one of the two runs knows the groups
        found = compare_runs(runs, against)
        difference = next(setting.difference for setting in found.settings if setting.difference)
        pair = (rows[1], rows[0]) if against == runs[0] else (rows[0], rows[1])
        assert difference == paired(*pair, group)
        assert difference != paired(*pair)


def test_rows_in_another_order_are_matched_by_their_ids(tmp_path):
    good, poor = outputs(2.0), outputs(1.0, 1)
    order = np.random.default_rng(0).permutation(ROWS)
    runs = [write_run(tmp_path / "a", good), write_run(tmp_path / "b", poor.take(order), model=model(layers=2))]
    assert compare_runs(runs).settings[1].difference == paired(poor, good)


def test_runs_on_other_rows_stand_in_the_table_without_a_difference(tmp_path, capsys):
    changed = outputs(0.9, 3)._replace(labels=np.where(np.arange(ROWS) < 5, 1 - LABELS, LABELS))
    write_run(tmp_path / "a", outputs(3.0))
    write_run(tmp_path / "b", outputs(1.4, 1, first=280), model=model(layers=2))
    write_run(tmp_path / "c", changed, model=model(layers=3))
    write_run(tmp_path / "e", outputs(0.8, 4, first=1000))  # the setting of the first run, on other rows
    found = compare_runs([f"{tmp_path}/*"])
    assert found.alerts == {f"{tmp_path}/{name}": "other rows, labels or classes" for name in "bce"}
    assert len(found.settings) == 4 and all(setting.difference is None for setting in found.settings)
    show_comparison(found)
    assert f"{tmp_path}/b: other rows, labels or classes" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.parametrize("against", [None, "no"])
def test_runs_of_two_positive_labels_are_judged_for_one(tmp_path, against):
    rows = {"yes": outputs(1.6), "no": outputs(0.8, 4)}
    rows["no"].logits[:, 1] = rows["no"].logits.min() - 1  # never says yes
    rows["no"].logits[:, 0] *= -1
    runs = [
        write_run(tmp_path / label, one, positive=label, model=model(layers=len(label))) for label, one in rows.items()
    ]
    found = compare_runs(runs, against and str(tmp_path / against))
    label = against or "yes"
    recalls = {setting.runs[0]: setting.scores[f"recall of {label}"] for setting in found.settings}
    assert found.alerts == {} and recalls[runs[1]] == [float(label == "no")] and 0.5 < recalls[runs[0]][0] < 1
    precisions = {setting.runs[0]: setting.scores["average precision"][0] for setting in found.settings}
    for run, one in zip(runs, rows.values(), strict=True):
        sign = 1 if label == "yes" else -1
        margin = sign * (one.logits[:, 1] - one.logits[:, 0])
        assert precisions[run] == pytest.approx(average_precision_score((label == "yes") == LABELS, margin), abs=1e-6)
    difference = next(setting.difference for setting in found.settings if setting.difference)
    assert sorted([difference.model, difference.baseline]) == pytest.approx(sorted(precisions.values()), abs=1e-6)


def test_a_run_counts_once_and_an_unfinished_one_is_named(tmp_path):
    run = write_run(tmp_path / "done", outputs(2.0))
    (tmp_path / "begun/checkpoints").mkdir(parents=True)
    (tmp_path / "notes.txt").write_text("")
    found = compare_runs([f"{tmp_path}/*", run, f"{tmp_path}/done/../done", f"{tmp_path}/none"])
    assert [setting.runs for setting in found.settings] == [[run]]
    problem = "holds no scores of a finished run"
    assert found.alerts == {f"{tmp_path}/begun": problem, f"{tmp_path}/none": problem}
    assert found.settings[0].setting == "all runs"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ({"entries": ["{0}/none*"]}, "runs=.*holds no scores of a finished run"),
        ({"against": "{0}/other"}, "against=.*is none of the runs"),
        ({"split": "validation"}, "has no rows of validation that judge its model"),
    ],
)
def test_a_user_error_names_the_key(tmp_path, keys, problem):
    run = write_run(tmp_path / "run", outputs(2.0))
    filled = {
        key: [entry.format(tmp_path) for entry in value] if key == "entries" else value.format(tmp_path)
        for key, value in keys.items()
    }
    with pytest.raises(InputError, match=problem):
        compare_runs(**{"entries": [run], **filled})
