"""Workloads: their length distributions, and batches that stand for the epoch."""

import numpy as np
import pytest

from seqclf.bench.modes import LENGTH_DISTRIBUTIONS
from seqclf.bench.workload import CLASS_TOKENS, generate_workload
from seqclf.errors import InputError


@pytest.mark.parametrize("name", LENGTH_DISTRIBUTIONS)
def test_a_generated_sequence_holds_the_token_of_its_class_once(name):
    workload = generate_workload(name, 300, 8, 6, seed=1)
    sequences, labels = workload.split.sequences, workload.split.labels
    assert sequences.lengths.min() >= 1 and len(labels) == 300
    for row in range(300):
        tokens = sequences.fields["token"][sequences.offsets[row] : sequences.offsets[row + 1]]
        assert [token for token in tokens if token in CLASS_TOKENS] == [CLASS_TOKENS[labels[row]]]


def test_lengths_follow_their_distribution():
    lengths = {
        name: generate_workload(name, 4000, 8, 4, seed=0).split.sequences.lengths for name in LENGTH_DISTRIBUTIONS
    }
    assert set(lengths["equal"]) == {50}
    assert lengths["uniform"].min() == 2 and lengths["uniform"].max() == 100 and 49 < lengths["uniform"].mean() < 53
    logs = np.log(lengths["log_normal"])
    assert 3.4 < np.median(logs) < 3.6 and 0.7 < logs.std() < 0.9 and lengths["log_normal"].max() <= 400
    assert np.median(lengths["heavy_tailed"]) < 20 and lengths["heavy_tailed"].max() == 800


def test_batches_are_full_and_represent_all_lengths():
    workload = generate_workload("log_normal", 2000, 16, 9, seed=3)
    lengths = workload.split.sequences.lengths
    assert [len(rows) for rows in workload.batches] == [16] * 9
    assert lengths[workload.longest_batch].max() == lengths.max() == workload.max_length
    assert abs(workload.size["mean_length"] - lengths.mean()) < 0.15 * lengths.mean()
    mean_length = np.mean([lengths[row] for rows in workload.batches for row in rows])
    assert workload.size["mean_length"] == pytest.approx(mean_length)


def test_too_few_sequences_for_a_batch_are_refused():
    with pytest.raises(InputError, match=r"batch_size=64: there are only 40 sequences; set a smaller one"):
        generate_workload("equal", 40, 64, 2, seed=0)
