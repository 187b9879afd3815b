"""Features of the order of tokens: as plain loops compute them, chunk by chunk, in ONNX, and found by trees."""

import itertools
from types import SimpleNamespace

import numpy as np
import onnxruntime
import pytest
import torch

from seqclf.data.ragged import Ragged
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.export import example_inputs, export_onnx
from seqclf.wide import boosted_trees
from seqclf.wide.boosted_trees import BoostedTrees
from seqclf.wide.feature_path import padded
from seqclf.wide.order_features import CHANGE_LAGS, HALF_LIFE, LAGS, Lags
from seqclf.wide.row_features import RowFeatures

FIELDS = [
    {"name": "other", "kind": "number", "width": 2, "masked": 1},  # a value and its mask
    {"name": "token", "kind": "category", "size": 3},
    {"name": "word", "kind": "category", "size": 100},  # too many values for repeats of each
    {"name": "bag", "kind": "bag", "size": 4},
]
CHANNELS = ["pulse", "presence of pulse"]
VALUES = {"token": ["<unknown>", "pay", "call"], "bag": ["<none>", "red", "green", "blue"]}
VALUES["word"] = [f"w{number}" for number in range(100)]


@pytest.fixture(scope="module")
def rows(rows_of):
    return rows_of(np.random.default_rng(0), 80, FIELDS, longest=20)


@pytest.fixture(scope="module")
def columns(rows):
    """Dict name → column (N,) of the features."""
    features = RowFeatures(FIELDS)
    with torch.inference_mode():
        found = features(*padded(rows, np.arange(80))).numpy()
    texts = features.texts(CHANNELS, VALUES)
    assert found.shape == (80, features.size) and len(texts) == len(set(texts)) == features.size
    assert features.unordered + sum(features.block_sizes.values()) == features.size
    return dict(zip(texts, found.T, strict=True))


def tokens_of(rows, name):
    return [rows.fields[name][start:stop] for start, stop in itertools.pairwise(rows.offsets)]


def places_of(row):
    return (2 * np.arange(len(row)) - (len(row) - 1)) / len(row)


def weights_of(row):
    return 2.0 ** (-np.arange(len(row))[::-1] / HALF_LIFE)


def test_counts_tell_the_place_of_values(rows, columns):
    for name in ("token", "bag"):
        for at, text in list(enumerate(VALUES[name]))[1:]:
            has = [(ids.reshape(len(ids), -1) == at).sum(1) for ids in tokens_of(rows, name)]
            drift = [row @ places_of(row) for row in has]
            np.testing.assert_allclose(columns[f"drift of {name} {text} to the end"], drift, atol=1e-5)
            recent = [row @ weights_of(row) for row in has]
            np.testing.assert_allclose(columns[f"recent count of {name} {text}"], recent, atol=1e-5)


def test_trends_are_those_of_the_values_that_are_present(rows, columns):
    expected = []
    for values in tokens_of(rows, "other"):
        time = np.flatnonzero(values[:, 1] > 0)
        slope = np.polyfit(time, values[time, 0].astype(np.float64), 1)[0] if len(time) > 1 else 0
        expected.append(slope * time.std() if len(time) else 0)
    np.testing.assert_allclose(columns["trend of pulse"], expected, atol=1e-5)


def test_numbers_are_summed_at_the_end_in_the_tokens_with_a_value(rows, columns):
    parts = zip(tokens_of(rows, "token"), tokens_of(rows, "other"), strict=True)
    expected = [((ids == 2) * (row[:, 1] > 0) * row[:, 0]) @ weights_of(row) for ids, row in parts]
    np.testing.assert_allclose(columns["recent sum of pulse of token call"], expected, atol=1e-5)


@pytest.mark.parametrize("lag", range(1, LAGS + 1))
def test_repeats_are_counted_at_each_distance(rows, columns, lag):
    distance = f"after {lag} token{'s' * (lag > 1)}"
    same = [(ids[lag:], ids[lag:] == ids[:-lag]) for ids in tokens_of(rows, "token")]
    for at, text in enumerate(VALUES["token"]):
        expected = [(repeats & (ids == at)).sum() for ids, repeats in same]
        np.testing.assert_array_equal(columns[f"repeats of token {text} {distance}"], expected)
    expected = [(ids[lag:] == ids[:-lag]).sum() for ids in tokens_of(rows, "word")]
    np.testing.assert_array_equal(columns[f"repeats of word {distance}"], expected)


@pytest.mark.parametrize("lag", CHANGE_LAGS)
def test_changes_are_those_of_pairs_that_are_present(rows, columns, lag):
    expected = []
    for values in tokens_of(rows, "other"):
        both = (values[lag:, 1] > 0) & (values[:-lag, 1] > 0)
        known = values[values[:, 1] > 0, 0].astype(np.float64)
        change = (values[lag:, 0] - values[:-lag, 0])[both].astype(np.float64)
        expected.append(np.sqrt((change**2).mean()) / known.std() if both.any() and len(known) > 1 else 0)
    found = columns[f"relative change of pulse over {lag} token{'s' * (lag > 1)}"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    assert np.ptp(found) > 0


def test_a_constant_channel_does_not_change():
    features = RowFeatures([{"name": "level", "kind": "number", "width": 1}], ["lags"])
    values = torch.full((1, 9, 1), 0.1)
    found = features({"level": values}, torch.tensor([9]))
    assert (found[0, features.unordered :] == 0).all()


def in_chunks(features, fields, lengths, chunk):
    """Return the features after chunks of random lengths up to `chunk`, some of which hold no token of a row."""
    states = [torch.full((len(lengths), *state.shape), state.initial) for state in features.states()]
    done, generator = torch.zeros_like(lengths), np.random.default_rng(chunk)
    longer = {name: torch.cat([values, values], dim=1) for name, values in fields.items()}
    found = None
    with torch.inference_mode():
        while (done < lengths).any():
            new = torch.minimum(lengths - done, torch.from_numpy(generator.integers(0, chunk + 1, len(lengths))))
            index = done[:, None] + torch.arange(chunk)
            part = {name: values[torch.arange(len(lengths))[:, None], index] for name, values in longer.items()}
            found, states = features.step(part, new, states)
            done += new
    return found


@pytest.mark.parametrize("chunk", [1, 3, 11])
@pytest.mark.parametrize("used", [FIELDS, FIELDS[1:], FIELDS[:1]])
def test_chunks_give_the_features_of_the_whole(rows, chunk, used):
    """Some chunks are shorter than a lag."""
    features = RowFeatures(used)
    fields, lengths = padded(rows, np.arange(80))
    fields = {field["name"]: fields[field["name"]] for field in used}
    with torch.inference_mode():
        whole = features(fields, lengths)
    torch.testing.assert_close(in_chunks(features, fields, lengths, chunk), whole, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("chunk", [1, 4])
def test_chunks_of_values_far_from_zero_lose_nothing(rows, chunk):
    """A pressure in pascal: the mean of a chunk in float32 would be wrong by 0.01."""
    features = RowFeatures([{"name": "pressure", "kind": "number", "width": 2}])
    fields, lengths = padded(rows, np.arange(80))
    fields = {"pressure": 20 * fields["other"] + 101_325}
    with torch.inference_mode():
        whole = features(fields, lengths)
    apart = (in_chunks(features, fields, lengths, chunk) - whole).abs() / whole.std(dim=0).clamp(min=1e-9)
    assert float(apart.max()) < 1e-4, features.texts(CHANNELS, {})[int(apart.amax(dim=0).argmax())]


def test_padding_and_batch_mates_reach_no_feature(rows):
    features = RowFeatures(FIELDS)
    fields, lengths = padded(rows, np.arange(80))
    for values in fields.values():
        fill = float("nan") if values.is_floating_point() else 3
        values[torch.arange(values.shape[1]) >= lengths[:, None]] = fill
    fields["token"] = torch.where(torch.arange(fields["token"].shape[1]) < lengths[:, None], fields["token"], 10**6)
    with torch.inference_mode():
        together = features(fields, lengths)
        alone = torch.cat([features(*padded(rows, np.array([row]))) for row in range(80)])
    torch.testing.assert_close(together, alone, rtol=1e-6, atol=1e-6)


class Network(SequenceNetwork):
    def __init__(self):
        super().__init__()
        self.features = RowFeatures(FIELDS)

    def forward(self, fields, lengths, host_lengths):
        return self.features(fields, lengths)


def test_onnx_reads_the_features_of_any_rows(tmp_path):
    export_onnx(Network(), FIELDS, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(6)
    for count, time in ((1, 1), (2, 9), (7, 30)):
        inputs = example_inputs(FIELDS, generator.integers(1, time + 1, count), time, generator)
        (found,) = session.run(None, inputs)
        tensors = {name: torch.from_numpy(values) for name, values in inputs.items()}
        expected = RowFeatures(FIELDS)(tensors, tensors.pop("lengths"))
        np.testing.assert_allclose(found, expected.numpy(), rtol=2e-5, atol=2e-5)


def planted(told_by, generator, count=500):
    """Return tokens of eight values (N, 30) and classes (N,)."""
    labels = generator.integers(0, 2, count)
    tokens = generator.integers(2, 8, (count, 30))  # without the value 1
    for row, label in zip(tokens, labels, strict=True):
        if told_by == "period":
            row[generator.integers(0, 10 - 4 * label) + (5 + label) * np.arange(5)] = 1
        elif told_by == "recency":
            row[generator.integers(0, 30, 6)] = 1
            row[-3:] = np.where(row[-3:] == 1, 2, row[-3:])
            row[-generator.integers(1, 4)] = 1 if label else 2
        else:
            row[:15] = np.where(generator.random(15) < (0.5, 0.2)[label], 1, row[:15])
            row[15:] = np.where(generator.random(15) < (0.2, 0.5)[label], 1, row[15:])
    return tokens, labels


@pytest.mark.parametrize(("told_by", "blocks"), [("period", ["lags"]), ("recency", ["places"]), ("halves", ["places"])])
def test_the_order_is_found_by_its_block_and_not_without(told_by, blocks, split_of, monkeypatch):
    tokens, labels = planted(told_by, np.random.default_rng(0))
    fields = [{"name": "token", "kind": "category", "size": 8}]
    sequences = Ragged(np.arange(0, 30 * 500 + 1, 30), {"token": tokens.ravel().astype(np.int32)})
    split = split_of(sequences, labels)
    fitted = BoostedTrees.fit(split, fields, 2, 0)
    assert set(blocks) <= set(fitted.path.settings()["blocks"])
    assert (fitted.held_out.argmax(1) == labels).mean() > 0.85
    monkeypatch.setattr(boosted_trees, "_choose_blocks", lambda *arguments: SimpleNamespace(blocks=[]))
    before = BoostedTrees.fit(split, fields, 2, 0)
    assert (before.held_out.argmax(1) == labels).mean() < 0.75


def test_blocks_that_tell_nothing_are_not_read(rows_of, split_of):
    generator = np.random.default_rng(0)
    sequences, labels = rows_of(generator, 300, FIELDS[:2]), generator.integers(0, 2, 300)
    sequences.fields["other"][:, 0] += np.repeat(labels, sequences.lengths)
    path = BoostedTrees.fit(split_of(sequences, labels), FIELDS[:2], 2, 0).path
    assert path.features_of.blocks == []


def test_limits_of_lags():
    assert Lags([("token", 32)], 0).categories == [("token", 32)]
    assert Lags([("token", 33)], 0).categories == [("token", 1)]
    assert not Lags([], 65).states() and Lags([], 64).states()
