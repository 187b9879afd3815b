"""What is benchmarked: the distributions, and batches that stand for all of them."""

import numpy as np
import pytest

from seqclf.benchmark.workload import LENGTHS, MARKS, generated
from seqclf.errors import InputError


@pytest.mark.parametrize("name", LENGTHS)
def test_a_generated_sequence_holds_the_mark_of_its_class_once(name):
    found = generated(name, 300, 8, 6, seed=1)
    sequences, labels = found.split.sequences, found.split.labels
    assert sequences.lengths.min() >= 1 and len(labels) == 300
    for row in range(300):
        tokens = sequences.fields["token"][sequences.offsets[row] : sequences.offsets[row + 1]]
        assert [token for token in tokens if token in MARKS] == [MARKS[labels[row]]]


def test_the_distributions_are_those_they_are_called():
    lengths = {name: generated(name, 4000, 8, 4, seed=0).split.sequences.lengths for name in LENGTHS}
    assert set(lengths["equal"]) == {50}
    assert lengths["uniform"].min() == 2 and lengths["uniform"].max() == 100 and 49 < lengths["uniform"].mean() < 53
    logs = np.log(lengths["log_normal"])
    assert 3.4 < np.median(logs) < 3.6 and 0.7 < logs.std() < 0.9 and lengths["log_normal"].max() <= 400
    assert np.median(lengths["heavy_tailed"]) < 20 and lengths["heavy_tailed"].max() == 800


def test_updates_are_full_batches_of_all_lengths():
    found = generated("log_normal", 2000, 16, 9, seed=3)
    lengths = found.split.sequences.lengths
    assert [len(rows) for rows in found.updates] == [16] * 9
    assert lengths[found.costliest].max() == lengths.max() == found.longest
    assert abs(found.mean - lengths.mean()) < 0.15 * lengths.mean()
    assert found.mean == pytest.approx(np.mean([lengths[row] for rows in found.updates for row in rows]))


def test_too_few_sequences_for_a_batch_are_told():
    with pytest.raises(InputError, match=r"batch_size=64: there are only 40 sequences; take a smaller one"):
        generated("equal", 40, 64, 2, seed=0)
