"""The estimator under scikit-learn's tools."""

import pickle

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.ensemble import AdaBoostClassifier, BaggingClassifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import seqclf
from seqclf import InputError
from seqclf.api import estimator
from seqclf.api.estimator import SequenceClassifier
from seqclf.system import progress

from .conftest import FAST, make_frame


@pytest.fixture(scope="module")
def sequences():
    """Lists of integers, and their labels."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 40)
    return [(generator.integers(1, 5, generator.integers(2, 7)) + 4 * label).tolist() for label in labels], labels


@pytest.fixture(scope="module")
def fitted(sequences):
    return SequenceClassifier(FAST).fit(*sequences)


@pytest.fixture
def quick(monkeypatch, run):
    """Replaces each training by the run of the session, and records the arguments."""
    calls = []

    def fit(data, **arguments):
        calls.append((data, arguments))
        return run

    monkeypatch.setattr(estimator, "fit", fit)
    return calls


def test_labels_and_probabilities_agree(fitted, sequences):
    rows, labels = sequences
    probabilities = fitted.predict_proba(rows)
    assert fitted.classes_.tolist() == [0, 1] and fitted.predict(rows).dtype == labels.dtype
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.predict(rows), fitted.classes_[probabilities.argmax(axis=1)])
    assert fitted.score(rows, labels) == (fitted.predict(rows) == labels).mean()
    assert fitted.metrics_["validation"]["rows"] == 8 and fitted.run_ is None


def test_a_pickled_estimator_predicts_the_same(fitted, sequences):
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict_proba(sequences[0]), fitted.predict_proba(sequences[0]))


def test_nothing_is_left_of_a_fit_without_a_folder(sequences, cache, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(cache.rglob("*"))
    monkeypatch.setattr(estimator, "fit", lambda *arguments, **settings: fail(settings["folder"]))

    def fail(folder):
        assert tmp_path in folder.parents
        raise InputError("no")

    with pytest.raises(InputError, match=r"^no$"):
        SequenceClassifier().fit(*sequences)
    assert not list(tmp_path.iterdir()) and set(cache.rglob("*")) == before


def test_a_folder_keeps_each_run_apart(quick, frame, tmp_path):
    classifier = SequenceClassifier(folder=tmp_path)
    for _ in range(2):
        classifier.fit(frame[["shops", "amounts"]], frame["label"])
    folders = [arguments["folder"] for _, arguments in quick]
    assert len(set(folders)) == 2 and {folder.parent for folder in folders} == {tmp_path}
    assert isinstance(classifier.run_, seqclf.Run)


def test_the_label_gets_a_name_that_no_column_has(quick, frame):
    SequenceClassifier().fit(frame.rename(columns={"card": "Label_"}), frame["label"])
    data, arguments = quick[0]
    assert arguments["label"] == "label__" and data.column("label__").to_pylist() == frame["label"].tolist()


@pytest.mark.parametrize(
    "labels",
    [[True, False], [7, -1], ["b", "a"], [0.5, 1.5], pd.Series(["x", "y"]), np.array([["n"], ["m"]])],
    ids=repr,
)
def test_labels_keep_their_type(quick, frame, labels):
    values = np.ravel(labels).tolist()
    classifier = SequenceClassifier().fit(frame[["shops", "amounts"]][:2], labels)
    assert classifier.classes_.tolist() == sorted(values)
    assert all(type(label) is type(values[0]) for label in classifier.classes_.tolist())
    assert quick[0][0].column("label").to_pylist() == [str(value) for value in values]


def test_a_class_that_no_row_trained_has_the_probability_zero(quick, frame):
    rows = frame[["shops", "amounts"]]
    classifier = SequenceClassifier().fit(rows, [*frame["label"][:-1], "gone"])
    assert classifier.classes_.tolist() == ["fair", "fraud", "gone"]
    assert (classifier.predict_proba(rows)[:, 2] == 0).all() and set(classifier.predict(rows)) <= {"fair", "fraud"}


KINDS = {
    "lists": [[1, 2], [3]],
    "texts": ["red green", "blue"],
    "arrays of objects": np.array([[1, 2], [3]], dtype=object),
    "matrices": [np.ones((2, 3)), np.zeros((1, 3))],
    "a tensor": np.ones((2, 4, 3)),
    "a series": pd.Series([["a"], ["b", "c"]], index=[5, 5]),
    "mappings": [{"shop": ["a"], "amount": [1.0]}, {"shop": ["b"], "amount": [2.0]}],
}


@pytest.mark.parametrize("kind", KINDS)
def test_sequences_of_many_kinds_become_rows(kind):
    table = estimator._table(KINDS[kind], None)
    assert table.num_rows == 2
    assert table.column_names == (["shop", "amount"] if kind == "mappings" else ["sequence"])


REFUSED = {
    "one text": ("red", [1], "X: is of type str; give a data frame or a list"),
    "too few labels": ([[1], [2]], [1], "y: has 1 labels for the 2 rows of X"),
    "two columns of labels": ([[1], [2]], [[1, 2], [3, 4]], r"y: has the shape \(2, 2\)"),
    "one token or one channel": (np.ones((2, 1, 40)), [0, 1], r"X: .*\(1, 40\).*axis=\"time-first\""),
    "channels of other lengths": ([np.ones((3, n)) for n in (5, 9)], [0, 1], r"X: .*\(3, 9\).*axis="),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(case):
    rows, labels, expected = REFUSED[case]
    with pytest.raises(InputError, match=expected):
        SequenceClassifier().fit(rows, labels)


@pytest.mark.parametrize("weights", [[1.0], np.full(12, -1.0), np.full(12, np.nan), np.zeros(12), ["a"] * 12])
def test_weights_that_are_none_are_one_line(sequences, weights):
    with pytest.raises(InputError, match=r"^sample_weight: does not weigh the \d+ rows"):
        SequenceClassifier(FAST).fit(*sequences, sample_weight=weights)


def test_weights_change_what_is_learned_and_boosting_gives_them(sequences):
    rows, labels = sequences
    frame = pd.DataFrame({"sequence": rows})
    first = np.asarray(labels) == np.unique(labels)[0]
    weighed = SequenceClassifier(FAST).fit(frame, labels, sample_weight=np.where(first, 50.0, 0.1))
    plain = SequenceClassifier(FAST).fit(frame, labels)
    assert weighed.predict_proba(frame)[:, 0].mean() > plain.predict_proba(frame)[:, 0].mean() + 0.02
    assert weighed.metrics_["validation"]["weighted"]["weight"] > 0 and "weighted" not in plain.metrics_["validation"]
    boosted = AdaBoostClassifier(SequenceClassifier(FAST), n_estimators=2, random_state=0).fit(frame, labels)
    assert boosted.predict_proba(frame).shape == (len(rows), len(np.unique(labels)))


def test_bagging_weighs_the_rows_of_a_frame(sequences):
    rows, labels = sequences
    bagging = BaggingClassifier(SequenceClassifier(FAST), n_estimators=2, random_state=0)
    frame = pd.DataFrame({"sequence": rows})
    bagging.fit(frame, labels)
    members = np.mean([member.predict_proba(rows) for member in bagging.estimators_], axis=0)
    np.testing.assert_allclose(bagging.predict_proba(frame), members)
    first, second = bagging.estimators_
    assert first.bundle_ != second.bundle_ and (first.predict_proba(rows) != second.predict_proba(rows)).any()


def test_a_refused_row_raises_an_error_that_names_it(fitted):
    with pytest.raises(InputError, match=r"X: row 1: sequence has no tokens.* \(1 of 3 rows are refused\)"):
        fitted.predict([[1, 2], [], [3]])


def test_scikit_learn_clones_searches_and_pipes(quick):
    table = make_frame(12, seed=4)
    rows, labels = table[["shops", "amounts"]], table["label"]
    classifier = SequenceClassifier(["model=gru"], verbose=True)
    assert clone(classifier).get_params() == {"axis": None, "overrides": ["model=gru"], "folder": None, "verbose": True}
    assert cross_val_score(classifier, rows, labels, cv=2).shape == (2,)
    search = GridSearchCV(classifier, {"overrides": [["model=lstm"], ["model=gru"]]}, cv=2).fit(rows, labels)
    assert search.best_params_["overrides"] in (["model=lstm"], ["model=gru"])
    assert [arguments["overrides"][-1] for _, arguments in quick].count("model=lstm") >= 2
    cut = FunctionTransformer(lambda frame: frame.map(lambda tokens: tokens[:2]))
    assert make_pipeline(cut, classifier).fit(rows, labels).score(rows, labels) >= 0
    assert quick[-1][0].column("shops").to_pylist() == [shops[:2] for shops in rows["shops"]]


@pytest.mark.parametrize(
    "labels",
    [
        pd.array(["a", pd.NA], dtype="string"),
        pd.array([True, pd.NA], dtype="boolean"),
        pa.array(["a", None]),
        [1.0, float("nan")],
        np.ma.array(["a", "b"], mask=[0, 1]),
    ],
    ids=["string", "boolean", "arrow", "nan", "masked"],
)
def test_a_missing_label_is_named(labels):
    with pytest.raises(InputError, match=r"^y: the label of row 1 is missing"):
        SequenceClassifier().fit([[1], [2]], labels)


def test_frames_are_sequences_of_vectors(quick):
    frames = [pd.DataFrame({"x": [1.0, 2.0], "y": [3.0, 4.0]}), pd.DataFrame({"x": [5.0], "y": [6.0]})]
    SequenceClassifier().fit(frames, [0, 1])
    assert quick[0][0].column("sequence").to_pylist() == [[[1.0, 3.0], [2.0, 4.0]], [[5.0, 6.0]]]


def test_the_axis_of_time_is_the_first_or_what_is_said(quick):
    series = [np.arange(10.0).reshape(2, 5), np.arange(6.0).reshape(2, 3)]
    SequenceClassifier(axis="time-last").fit(series, [0, 1])
    assert quick[0][0].column("sequence").to_pylist() == [row.T.tolist() for row in series]
    with pytest.warns(UserWarning, match="4 tokens and 9 channels"):
        SequenceClassifier().fit(np.ones((2, 4, 9)), [0, 1])
    SequenceClassifier(axis="time-first").fit(np.ones((2, 1, 9)), [0, 1])
    assert len(quick[2][0].column("sequence")[0]) == 1
    with pytest.raises(InputError, match="axis=last"):
        SequenceClassifier(axis="last").fit(series, [0, 1])


def test_progress_is_shown_where_the_output_is(monkeypatch, run):
    hidden = []

    def fit(data, **arguments):
        hidden.append(bool(progress.DISPLAY.hidden))
        return run

    monkeypatch.setattr(estimator, "fit", fit)
    for verbose in (False, True):
        SequenceClassifier(verbose=verbose).fit([[1], [2]], [0, 1])
    assert hidden == [True, False]
