"""The wide path of pooled statistics: exact under padding, equal chunk by chunk, finite for any row, and not linear."""

import itertools

import numpy as np
import pytest
import torch

from seqclf.data.ragged import Ragged
from seqclf.wide import statistics
from seqclf.wide.feature_path import padded
from seqclf.wide.statistics import Statistics

FIELDS = [
    {"name": "token", "kind": "category", "size": 5},
    {"name": "value", "kind": "number", "width": 2},
    {"name": "other", "kind": "number", "width": 2, "masked": 1},  # a value and its mask
]


@pytest.fixture(scope="module")
def train(rows_of, split_of):
    """Rows whose mean is near 0 or far from it, on either side, which no line tells apart."""
    generator = np.random.default_rng(0)
    sequences = rows_of(generator, 300, FIELDS)
    labels = generator.integers(0, 2, 300)
    shift = labels * generator.choice([-3, 3], 300)
    sequences.fields["value"][:, 0] += np.repeat(shift, sequences.lengths)
    return split_of(sequences, labels)


@pytest.fixture(scope="module")
def fitted(train):
    return Statistics.fit(train, FIELDS, 2, 0)


def test_a_class_on_both_sides_of_another_is_found(fitted, train):
    assert (fitted.held_out.argmax(1) == train.labels).mean() > 0.95


def test_statistics_equal_those_of_numpy(fitted, train):
    """Some rows have no value of the channel that has a mask."""
    sequences = train.sequences
    values = np.concatenate([sequences.fields["value"], sequences.fields["other"]], axis=1).astype(np.float64)
    present = np.ones(values.shape, bool)
    present[:, 2] = values[:, 3] > 0
    with torch.inference_mode():
        found = fitted.path.statistics(*padded(sequences, np.arange(len(sequences)))).numpy()
    functions = (np.mean, np.std, np.min, np.max, lambda known: known[0], lambda known: known[-1])
    for row, (start, stop) in enumerate(itertools.pairwise(sequences.offsets)):
        known = [values[start:stop, channel][present[start:stop, channel]] for channel in range(4)]
        expected = [function(channel) if len(channel) else 0 for function in functions for channel in known]
        np.testing.assert_allclose(found[row], [*expected, np.log(stop - start)], rtol=0, atol=1e-12)


@pytest.mark.parametrize("garbage", [-1e4, float("nan"), float("inf")])
def test_logits_ignore_padding_and_batch_mates(fitted, rows_of, logits_of, garbage):
    sequences = rows_of(np.random.default_rng(1), 30, FIELDS)
    fields, lengths = padded(sequences, np.arange(30))
    fields = {name: torch.cat([values, values[:, :3]], dim=1) for name, values in fields.items()}
    for name in ("value", "other"):
        fields[name][torch.arange(fields[name].shape[1]) >= lengths[:, None]] = garbage
    with torch.inference_mode():
        together = fitted.path(fields, lengths)
    alone = torch.cat([logits_of(fitted.path, sequences, [row]) for row in range(30)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6)


def test_chunks_give_the_logits_of_the_whole(fitted, rows_of, logits_of):
    """Rows end in the first chunk or later, so that some chunks have no tokens of a row."""
    sequences = rows_of(np.random.default_rng(2), 40, FIELDS)
    fields, lengths = padded(sequences, np.arange(40))
    states = [torch.full((40, *state.shape), state.initial) for state in fitted.path.chunk_states()]
    with torch.inference_mode():
        for start in range(0, fields["token"].shape[1], 5):
            part = {name: values[:, start : start + 5] for name, values in fields.items()}
            logits, states = fitted.path.step(part, (lengths - start).clamp(0, 5), states)
    torch.testing.assert_close(logits, logits_of(fitted.path, sequences), rtol=0, atol=1e-5)


def test_a_path_is_rebuilt_from_its_settings_and_buffers(fitted, train, logits_of):
    rebuilt = Statistics(FIELDS, 2, **fitted.path.settings())
    rebuilt.load_state_dict(fitted.path.state_dict())
    assert torch.equal(logits_of(rebuilt, train.sequences), logits_of(fitted.path, train.sequences))


@pytest.mark.parametrize("case", ["huge", "tiny", "constant", "one token"])
@pytest.mark.filterwarnings("error")
def test_any_rows_give_finite_logits(rows_of, split_of, logits_of, case):
    sequences = rows_of(np.random.default_rng(3), 12, FIELDS, longest=1 if case == "one token" else 9)
    factors = {"huge": np.resize([1e30, -1e37, 1.0], (sequences.offsets[-1], 1)), "tiny": 1e-30}
    for name in ("value", "other"):
        values = np.full_like(sequences.fields[name], 0.1) if case == "constant" else sequences.fields[name]
        sequences.fields[name] = (values * factors.get(case, 1.0)).astype(np.float32)
    path, held_out, _ = Statistics.fit(split_of(sequences, np.arange(12) % 2), FIELDS, 2, 0)
    assert np.isfinite(held_out).all()
    others = rows_of(np.random.default_rng(4), 12, FIELDS)
    for rows in (sequences, others):
        assert logits_of(path, rows).isfinite().all()
    if case == "constant":
        assert np.ptp(logits_of(path, sequences).numpy()[:, 0]) < 1, "rows differ by their length alone"


def test_many_channels_are_compared_with_fewer_quantiles_and_too_many_have_no_path(rows_of):
    rng = np.random.default_rng(5)
    steps = {}
    for width in (1, 700, 3000, 5000):
        fields = [{"name": "value", "kind": "number", "width": width}]
        steps[width] = None
        if Statistics.has_use(fields):
            steps[width] = Statistics.unfitted(rows_of(rng, 3, fields), fields, 2).steps
    assert steps == {1: statistics.MAX_STEPS, 700: 3, 3000: 0, 5000: None}
    assert not Statistics.has_use(FIELDS[:1])


def test_many_rows_have_features_that_all_of_them_can_fit(monkeypatch, rows_of):
    monkeypatch.setattr(statistics, "MAX_SIDE", 50)
    sequences = rows_of(np.random.default_rng(6), 60, FIELDS)
    few = Ragged(sequences.offsets[:41], sequences.fields)
    assert Statistics.unfitted(few, FIELDS, 2).steps == statistics.MAX_STEPS
    assert Statistics.unfitted(sequences, FIELDS, 2).size <= 50
    monkeypatch.setattr(statistics, "MAX_CELLS", 40 * 101)
    assert Statistics.unfitted(few, FIELDS, 2).size <= 101
