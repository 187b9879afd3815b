"""Suspected wrong labels against a loop over rows, and what is said of chance against simulated labels."""

import numpy as np
import pyarrow as pa
import pytest

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.scores import ScoredRows
from seqclf.evaluation.suspects import confident_classes, suspects_of

CLASSES = pa.array([3, 5, 8])


def drawn(generator, probabilities):
    return (generator.random((len(probabilities), 1)) > probabilities.cumsum(axis=1)).sum(axis=1).clip(max=2)


def scored(probabilities, labels, **columns):
    lengths = np.ones(len(labels), np.int64)
    return ScoredRows(np.log(probabilities), labels, lengths, lengths > 1, **columns)


def suspects(probabilities, labels):
    ids = pa.array([f"r{row}" for row in range(len(labels))])
    found = suspects_of({"test": scored(probabilities, labels, ids=ids)}, Decision(), CLASSES)
    rows = np.array([int(id[1:]) for id in found["id"].to_pylist()], int)
    return found, rows, {key.decode(): float(value) for key, value in found.schema.metadata.items()}


def test_the_confident_class_is_that_of_a_loop_over_the_rows():
    generator = np.random.default_rng(0)
    probabilities = generator.dirichlet([0.5] * 4, 300)
    labels = generator.integers(0, 3, 300)  # the class 3 has no rows
    expected = []
    for row in probabilities:
        above = [c for c in range(3) if row[c] >= np.mean([p[c] for p in probabilities[labels == c]])]
        expected.append(max(above, key=row.__getitem__, default=-1))
    assert confident_classes(probabilities, labels).tolist() == expected and {-1, 0, 1, 2} == {*expected}


def test_suspects_of_several_splits_are_ranked_with_id_group_and_labels_in_their_type():
    sure, half = [0.98, 0.01, 0.01], [0.1, 0.8, 0.1]
    first = scored(np.array([sure, sure, half]), np.array([0, 1, 1]), ids=pa.array(["a", "b", "c"]))
    other = scored(
        np.array([half, half]), np.array([2, 1]), ids=pa.array(["d", "e"]), group_names=pa.array(["g", None])
    )
    found = suspects_of({"validation": first, "test": other}, Decision(), CLASSES)
    assert found.drop_columns(["probability", "label_probability"]).to_pylist() == [
        {"id": "b", "group": None, "split": "validation", "label": 5, "proposed": 3},
        {"id": "d", "group": "g", "split": "test", "label": 8, "proposed": 5},
    ]
    assert found["probability"].to_numpy() == pytest.approx([0.98, 0.8])
    assert found["label_probability"].to_numpy() == pytest.approx([0.01, 0.1])


@pytest.mark.parametrize("concentration", [0.1, 0.5, 2.0])
def test_without_wrong_labels_there_are_as_many_suspects_as_chance_gives(concentration):
    generator = np.random.default_rng(1)
    probabilities = generator.dirichlet([concentration] * 3, 20_000)
    labels = drawn(generator, probabilities)
    found, rows, about = suspects(probabilities, labels)
    assert about["rows"] == 20_000 and about["by_chance"] > 200
    assert abs(len(found) - about["by_chance"]) < 4 * np.sqrt(about["by_chance"])
    again = drawn(generator, probabilities)[rows] == labels[rows]  # labelled anew
    assert abs(again.sum() - about["same"]) < 4 * np.sqrt(about["same"])


def test_with_flipped_labels_the_right_ones_among_the_suspects_are_as_many_as_their_probabilities_say():
    """The probabilities are those that a model of the flipped labels has."""
    generator, share = np.random.default_rng(2), 0.1
    clean = np.eye(3)[generator.integers(0, 3, 20_000)] * 0.97 + 0.01
    truth = drawn(generator, clean)
    is_flipped = generator.random(len(truth)) < share
    labels = np.where(is_flipped, (truth + generator.integers(1, 3, len(truth))) % 3, truth)
    found, rows, about = suspects((1 - share) * clean + share / 2 * (1 - clean), labels)
    assert (labels != truth)[rows].mean() > 0.75 and np.isin(np.flatnonzero(is_flipped), rows).mean() > 0.95
    assert abs(len(found) - about["by_chance"]) < 4 * np.sqrt(about["by_chance"]), "which flips raise too"
    again = drawn(generator, clean)[rows] == labels[rows]
    assert again.mean() < about["same"] / len(found) < 0.08, "right ones, too many rather than too few"
