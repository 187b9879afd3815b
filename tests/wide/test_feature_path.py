"""Wide paths of fixed features, as another package writes them: the example of docs/extending.md, and mistakes."""

import numpy as np
import pytest
import torch
from support.plugin_package import documented_example, install_package

from seqclf.errors import InputError
from seqclf.extend import FeaturePath
from seqclf.runs.mix import check_padding
from seqclf.wide.feature_path import padded
from seqclf.wide.kernels import Kernels
from seqclf.wide.kinds import locate_kinds
from seqclf.wide.ngrams import Ngrams

FIELDS = [{"name": "shop", "kind": "category", "size": 6}, {"name": "cost", "kind": "number", "width": 2}]


@pytest.fixture
def repeats(monkeypatch, tmp_path):
    """The class of the example."""
    install_package(monkeypatch, tmp_path, "mypackage", {"paths.py": documented_example("A wide path")}, {})
    return locate_kinds(["mypackage.paths.Repeats"])[0]


@pytest.fixture(scope="module")
def train(rows_of, split_of):
    """Rows in which class 1 repeats each value of `shop` with a probability of .5, the others do not."""
    rng = np.random.default_rng(0)
    sequences = rows_of(rng, 120, FIELDS)
    labels = np.arange(120) % 2
    shop = sequences.fields["shop"]
    for row, (start, stop) in enumerate(zip(sequences.offsets[:-1], sequences.offsets[1:], strict=True)):
        for at in range(start + 1, stop):
            if labels[row] and rng.random() < 0.5:
                shop[at] = shop[at - 1]
    return split_of(sequences, labels)


def test_the_example_finds_repeats(repeats, train):
    path, held_out, _ = repeats.fit(train, FIELDS, 2, 0)
    assert path.settings() == {"size": 2} and path.names == ["shop"]
    assert (held_out.argmax(1) == train.labels).mean() > 0.7
    assert repeats.fit(train, FIELDS[1:], 2, 0) is None
    check_padding(path, train.sequences)


def test_features_are_those_of_each_row(repeats, train):
    path, _, _ = repeats.fit(train, FIELDS, 2, 0)
    fields, lengths = padded(train.sequences, np.arange(20))
    features = path.features(fields, lengths)
    for row, length in enumerate(lengths.tolist()):
        shop = fields["shop"][row, :length].tolist()
        expected = [sum(map(int.__eq__, shop[1:], shop[:-1])) / length, np.log(length)]
        np.testing.assert_allclose(features[row], expected, atol=1e-6)


def test_the_names_of_paths(repeats):
    assert locate_kinds(["kernels", "mypackage.paths.Repeats", "ngrams", "kernels"]) == [Kernels, repeats, Ngrams]


@pytest.mark.parametrize("name", ["ngram", "mypackage.paths.Repeat", "mypackage.paths.torch", "no_such_package.Path"])
def test_a_name_of_no_path_is_an_error_of_the_setting(repeats, name):
    with pytest.raises(InputError, match=r"model\.wide="):
        locate_kinds([name])


def features_of(function):
    """A class of paths with the features `function(cost (B, T, 2), lengths)`."""
    return type("Made", (FeaturePath,), {"features": lambda self, fields, lengths: function(fields["cost"], lengths)})


@pytest.mark.parametrize(
    ("function", "word"),
    [
        (lambda cost, lengths: cost.sum(dim=1)[:, 0], "shape"),
        (lambda cost, lengths: cost[:, :0, 0], "shape"),
        (lambda cost, lengths: cost.sum(dim=1) / 0, "finite"),
    ],
)
def test_features_that_cannot_be_fitted_are_an_error(train, function, word):
    with pytest.raises(InputError, match=word):
        features_of(function).fit(train, FIELDS, 2, 0)


def test_features_that_read_the_batch_are_an_error(train):
    path, _, _ = features_of(lambda cost, lengths: cost.mean(dim=1)).fit(train, FIELDS, 2, 0)
    with torch.no_grad(), pytest.raises(InputError, match="rows beside it"):
        path.weight.fill_(5.0)
        check_padding(path, train.sequences)


def test_constant_features_give_the_frequencies(train):
    path, held_out, _ = features_of(lambda cost, lengths: torch.ones(len(lengths), 3)).fit(train, FIELDS, 2, 0)
    with torch.inference_mode():
        logits = path(*padded(train.sequences, np.arange(4)))
    np.testing.assert_allclose(logits.softmax(1), 0.5, atol=1e-6)
    assert np.isfinite(held_out).all()
