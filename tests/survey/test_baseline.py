"""The order-blind baseline finds what does not need order, and nothing else; its features are those of plain loops."""

import itertools

import numpy as np
import pyarrow as pa
import pytest

from seqclf.data.storage.ragged import Ragged, Split, sample_split, take
from seqclf.survey.baseline import _bag, _pooled, fit_baseline

SPECS = [{"name": "x", "kind": "category", "size": 4}, {"name": "v", "kind": "number", "width": 2}]


def split_of(count, labels_of, seed):
    """`labels_of(ids, values)` says the class of a row from its steps."""
    generator = np.random.default_rng(seed)
    lengths = generator.integers(2, 9, count)
    offsets = np.append(0, np.cumsum(lengths))
    fields = {
        "x": generator.integers(1, 4, offsets[-1]).astype(np.int32),
        "v": generator.normal(0, 1, (offsets[-1], 2)).astype(np.float32),
    }
    for values in fields.values():
        values.flags.writeable = False  # as memory maps are
    rows = [slice(start, stop) for start, stop in itertools.pairwise(offsets)]
    labels = np.array([labels_of(fields["x"][row], fields["v"][row]) for row in rows])
    return Split(Ragged(offsets, fields), labels, pa.array([str(row) for row in range(count)]), np.arange(count))


def accuracies(labels_of):
    splits = {
        name: split_of(count, labels_of, seed) for seed, (name, count) in enumerate({"train": 800, "test": 400}.items())
    }
    fitted = fit_baseline(splits, SPECS, 3)
    labels = splits["test"].labels
    return {model: float((own["test"].argmax(axis=1) == labels).mean()) for model, own in fitted.probabilities.items()}


def test_counts_and_means_are_found():
    assert max(accuracies(lambda ids, _: int((ids == 1).sum() > 1)).values()) > 0.95
    assert min(accuracies(lambda _, values: int(values[:, 0].mean() > 0)).values()) > 0.9


def test_order_is_not():
    """The class is whether the first step equals the last: no bag knows."""
    assert max(accuracies(lambda ids, _: int(ids[0] < ids[-1])).values()) < 0.72


def test_features_are_those_of_a_loop():
    split = split_of(20, lambda ids, values: 0, 3)
    pooled, bag = _pooled(split.sequences, ["v"]), _bag(split.sequences, "x", 4).toarray()
    for row in range(20):
        steps = slice(split.sequences.offsets[row], split.sequences.offsets[row + 1])
        own = split.sequences.fields["v"][steps].astype(np.float64)
        expected = [[np.log(len(own))], own.mean(0), own.std(0), own.min(0), own.max(0)]
        np.testing.assert_allclose(pooled[row], np.concatenate(expected), atol=1e-6)
        np.testing.assert_array_equal(bag[row], np.bincount(split.sequences.fields["x"][steps], minlength=4))


def test_a_class_that_is_only_in_the_test_is_no_error():
    train = split_of(60, lambda ids, _: int(ids[0] == 1), 0)
    test = split_of(30, lambda ids, _: 2, 1)
    fitted = fit_baseline({"train": train, "test": test}, SPECS, 3)
    for own in fitted.probabilities.values():
        assert own["test"].shape == (30, 3) and (own["test"][:, 2] == 0).all()
        np.testing.assert_allclose(own["test"].sum(axis=1), 1)


@pytest.mark.parametrize("most", [1, 57, 10**6])
def test_a_sample_has_whole_rows_in_their_order(most):
    split = split_of(40, lambda ids, _: 0, 2)
    found = sample_split(split, most, 0)
    assert (np.diff(found.rows) > 0).all() and len(found.sequences) >= 1
    assert found.sequences.offsets[-1] <= max(most, 8)
    again = take(split.sequences, found.rows)
    for name, values in found.sequences.fields.items():
        np.testing.assert_array_equal(values, again.fields[name])
        for place, row in enumerate(found.rows):
            whole = split.sequences.fields[name][split.sequences.offsets[row] : split.sequences.offsets[row + 1]]
            own = values[found.sequences.offsets[place] : found.sequences.offsets[place + 1]]
            np.testing.assert_array_equal(own, whole)
