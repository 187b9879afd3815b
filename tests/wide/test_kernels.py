"""The wide path for numbers: exact under padding, right when held out, finite for any row, and equal in ONNX."""

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
import torch
from scipy.special import log_softmax, softmax
from support.torchlib_registry import share_registry
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from seqclf.batching.collate import pad
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.models.heads.views import make_views
from seqclf.models.onnx.export import export_onnx
from seqclf.wide import convolution, feature_path, kernels
from seqclf.wide.convolution import KERNELS, choose_dilations
from seqclf.wide.kernels import Kernels

FIELDS = [
    {"name": "token", "kind": "category", "size": 12},
    {"name": "value", "kind": "number", "width": 2},
    {"name": "other", "kind": "number", "width": 1},
]
CLASSES = 3
CLOSE = {"rtol": 0, "atol": 1e-5}

share_registry()


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def make_split(rows, labels):
    """A split of `rows`, each (T, D): two channels in the field `value`, and the others in `other`."""
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    value, other = np.split(np.concatenate(rows).astype(np.float32), [2], axis=1)
    fields = {"token": np.zeros(len(value), np.int32), "value": value, "other": other}
    ids = pa.array([str(row) for row in range(len(rows))])
    return Split(Ragged(offsets, fields), np.asarray(labels), ids, np.arange(len(rows)))


def waves(count, seed=0, longest=60):
    """Rows of random lengths and noise, in which the frequency of a wave tells the class."""
    generator = np.random.default_rng(seed)
    rows, labels = [], generator.integers(0, CLASSES, count)
    for label in labels:
        time = np.arange(generator.integers(1, longest + 1))[:, None]
        phase = generator.uniform(0, 6, 3)
        rows.append(np.sin(time * (0.3 + 0.5 * label) + phase) + 0.3 * generator.standard_normal((len(time), 3)))
    return make_split(rows, labels)


@pytest.fixture(scope="module")
def train():
    return waves(60)


@pytest.fixture(scope="module")
def fitted(train):
    return Kernels.fit(train, FIELDS, CLASSES, 0)


def tensors(split, rows):
    fields, lengths = pad(split.sequences, np.asarray(rows))
    return {name: torch.from_numpy(values) for name, values in fields.items()}, torch.from_numpy(lengths)


def probabilities(path, fields, lengths):
    with torch.inference_mode():
        return path(fields, lengths).softmax(-1)


@pytest.mark.parametrize("garbage", [0.0, -1e4, float("nan"), float("inf")])
def test_logits_ignore_padding_and_batch_mates(fitted, garbage):
    split = waves(30, seed=1)
    fields, lengths = tensors(split, range(30))
    for name in ("value", "other"):
        fields[name] = nn.functional.pad(fields[name], (0, 0, 0, 7))
        fields[name][torch.arange(fields[name].shape[1]) >= lengths[:, None]] = garbage
    together = probabilities(fitted.path, fields, lengths)
    assert torch.isfinite(together).all()
    for row in range(30):
        alone = probabilities(fitted.path, *tensors(split, [row]))
        torch.testing.assert_close(alone[0], together[row], **CLOSE)
    order = torch.randperm(30, generator=torch.Generator().manual_seed(0))
    del fields["token"]
    shuffled = probabilities(fitted.path, {name: fields[name][order] for name in fields}, lengths[order])
    torch.testing.assert_close(shuffled, together[order], **CLOSE)


@pytest.mark.parametrize("row", range(6))
def test_features_of_kernels_equal_a_plain_loop(fitted, train, row):
    path = fitted.path
    fields, lengths = tensors(train, [row])
    values = torch.cat([fields["value"], fields["other"]], -1)[0].double().numpy()
    scored = (values - values.mean(0)) / values.std(0)
    steps = np.diff(scored, axis=0, prepend=scored[:1])
    views = [scored, steps / np.sqrt((steps**2).mean(0)), values.clip(-20, 20)]
    with torch.inference_mode():
        features = path.features(fields, lengths)[0].numpy()
    expected = []
    for view, channels in enumerate(views):
        for index, dilation in enumerate(path.dilations):
            taps = path.get_buffer(f"taps_{index}")[view].double().numpy()
            padded = np.pad(channels, ((4 * dilation, 4 * dilation), (0, 0)))
            windows = np.stack([padded[at : at + len(values)] for at in range(0, 8 * dilation + 1, dilation)], 1)
            outputs = (windows.reshape(len(values), -1) @ taps[:, :-3].T + taps[:, -1]).clip(0, 1)
            means, edge = outputs.mean(0), 4 * dilation if len(values) > 16 * dilation else 0
            skips = np.repeat((np.arange(84) + index) % 2 == 1, path.biases[index])
            means[skips] = outputs[edge : len(values) - edge, skips].mean(0)
            expected.append(means)
    expected = np.concatenate(expected)
    np.testing.assert_allclose(features[: len(expected)], expected, rtol=0, atol=2e-5)
    assert 0.01 < expected.mean() < 0.99


def test_taps_are_multiples_of_the_84_kernels_over_some_channels(fitted):
    taps = fitted.path.get_buffer("taps_0")[..., :-3].unflatten(-1, (9, 3)).double()  # views, outputs, taps, channels
    heights = taps.amax((2, 3)) / 2
    shapes = (taps / heights[..., None, None]).round(decimals=4)
    assert set(shapes.unique().tolist()) == {-1.0, 0.0, 2.0}
    read = (shapes != 0).any(2)
    assert read.any(-1).all() and not read.all()
    assert len(KERNELS) == 84 and (KERNELS.sum(1) == 0).all() and len(np.unique(KERNELS, axis=0)) == 84


def test_the_longest_kernel_is_about_as_long_as_the_longest_row():
    for longest in (1, 5, 9, 10, 17, 100, 1250, 100_000):
        for biases in (5, 60):
            dilations, counts = choose_dilations(longest, biases)
            assert sum(counts) == biases and min(counts) > 0 and sorted(set(dilations)) == dilations
            assert dilations[0] == 1 and dilations[-1] == max(1, (longest - 1) // 8)


def test_a_row_times_a_factor_and_shifted_has_the_same_scored_views(train):
    fields, lengths = tensors(train, range(20))
    values = fields["value"].transpose(1, 2)
    first, second = make_views(values, lengths).stacked, make_views(3 * values + 5, lengths).stacked
    torch.testing.assert_close(first[:, :2], second[:, :2], rtol=0, atol=1e-4)


def test_held_out_logits_are_right_and_calibrated(fitted, train):
    """Their log loss on training rows is near that of the path on new rows."""
    fresh = waves(300, seed=2)
    losses = []
    with torch.inference_mode():
        new = fitted.path(*tensors(fresh, range(300))).double().numpy()
    for logits, labels in ((fitted.held_out, train.labels), (new, fresh.labels)):
        losses.append(-log_softmax(logits, axis=1)[np.arange(len(labels)), labels].mean())
    assert (new.argmax(1) == fresh.labels).mean() > 0.8
    assert losses[0] < 0.6 and abs(losses[0] - losses[1]) < 0.2


def signatures(groups, rows, seed=0, *, shared=False):
    """Groups with a frequency and a label of their own, so that a row tells its group and no other label.

    `shared`: high frequencies have the label 1, so that other groups tell the label, too.
    """
    generator = np.random.default_rng(seed)
    labels, paces = generator.permutation(np.arange(groups) % 2), generator.permutation(np.linspace(0.2, 2.5, groups))
    labels = (paces > np.median(paces)).astype(int) if shared else labels
    group = np.repeat(np.arange(groups), rows)
    waves = [np.sin(paces[code] * np.arange(50)[:, None] + generator.uniform(0, 6, 3)) for code in group]
    return make_split(waves, labels[group])._replace(groups=1000 - group)


def test_held_out_logits_of_a_group_come_from_other_groups():
    """Each group has a signature of its own. It helps rows of the same group, and must not help them held out."""
    split = signatures(groups=24, rows=4)
    alone = Kernels.fit(split._replace(groups=None), FIELDS, 2, 0)
    together = Kernels.fit(split, FIELDS, 2, 0)
    assert (alone.held_out.argmax(1) == split.labels).mean() > 0.9
    assert (together.held_out.argmax(1) == split.labels).mean() < 0.7
    loss = -log_softmax(together.held_out, axis=1)[np.arange(96), split.labels].mean()
    assert loss < 0.8, "the temperature is chosen by the groups, too"


def test_rows_beyond_the_budget_are_held_out_only_if_their_group_is(monkeypatch):
    split = signatures(groups=12, rows=5, shared=True)
    monkeypatch.setattr(kernels, "MAX_BIASES", 5)
    monkeypatch.setattr(feature_path, "rows_per_group", lambda sizes, features: 2)
    path, held_out, _ = Kernels.fit(split, FIELDS, 2, 0)
    known = np.isfinite(held_out[:, 0])
    assert (np.bincount(1000 - split.groups[known]) == 2).all() and known.sum() == 24
    monkeypatch.undo()
    monkeypatch.setattr(kernels, "MAX_BIASES", 5)
    monkeypatch.setattr(feature_path, "MAX_SIDE", 16)
    path, held_out, _ = Kernels.fit(split, FIELDS, 2, 0)
    with torch.inference_mode():
        logits = path(*tensors(split, range(60))).double().numpy()
    forward = np.abs(held_out - logits).max(axis=1) < 1e-5
    assert np.isnan(held_out[:, 0]).any() and forward.any()
    assert np.isfinite(held_out).all(1).sum() == 16 + forward.sum()
    assert not np.intersect1d(split.groups[forward], split.groups[~forward]).size


def test_the_same_arguments_give_the_same_path(fitted, train):
    again = Kernels.fit(train, FIELDS, CLASSES, 0)
    other = Kernels.fit(train, FIELDS, CLASSES, 1)
    assert (again.held_out == fitted.held_out).all() and (other.held_out != fitted.held_out).any()
    for name, values in fitted.path.state_dict().items():
        assert (again.path.state_dict()[name] == values).all()


def test_a_path_is_rebuilt_from_its_settings_and_buffers(fitted, train):
    rebuilt = Kernels(FIELDS, CLASSES, **fitted.path.settings())
    assert not list(rebuilt.parameters())
    rebuilt.load_state_dict(fitted.path.state_dict())
    batch = tensors(train, range(10))
    assert (probabilities(rebuilt, *batch) == probabilities(fitted.path, *batch)).all()


def test_a_file_with_an_index_beyond_the_channels_is_no_path():
    path = Kernels([{"name": "value", "kind": "number", "width": 9}], 2, [1], [5], 3)
    state = path.state_dict()
    state["channels_0"] = state["channels_0"] + 9
    with pytest.raises(RuntimeError, match="channels_0 must be indices below 9"):
        path.load_state_dict(state)


def test_without_a_number_field_there_is_no_path(train):
    assert Kernels.fit(train, FIELDS[:1], CLASSES, 0) is None


class Network(nn.Module):
    """A classifier that is a wide path alone."""

    def __init__(self, path):
        super().__init__()
        self.path = path

    def forward(self, fields, lengths, host_lengths):
        return self.path(fields, lengths) + 0 * fields["token"].sum()  # the exporter drops an input without use


@pytest.mark.parametrize("width", [2, 12])
def test_an_exported_path_gives_equal_probabilities(fitted, tmp_path, monkeypatch, width):
    """One of the paths has more channels than its kernels read at a time."""
    fields, path, generator = FIELDS, fitted.path, np.random.default_rng(3)
    if width > 2:
        monkeypatch.setattr(kernels, "MAX_BIASES", 5)
        fields = [FIELDS[0], {"name": "value", "kind": "number", "width": width}]
        lengths, labels = generator.integers(1, 20, 12), np.arange(12) % CLASSES
        rows = [
            generator.standard_normal((time, width)) + 2 * label for time, label in zip(lengths, labels, strict=True)
        ]
        numbers = {"token": np.zeros(sum(map(len, rows)), np.int32), "value": np.concatenate(rows).astype(np.float32)}
        sequences = Ragged(np.concatenate([[0], np.cumsum([len(row) for row in rows])]), numbers)
        split = Split(sequences, labels, pa.array(["row"] * 12), np.arange(12))
        path = Kernels.fit(split, fields, CLASSES, 0).path
    export_onnx(Network(path), fields, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    assert session.get_outputs()[0].shape == ["batch", CLASSES]
    for lengths, time in (([1], 1), ([2], 2), ([70], 70), ([1, 2, 3, 9, 40, 70], 75), ([5, 5], 5)):
        inputs = {"token": np.zeros((len(lengths), time), np.int64)}
        for field in fields[1:]:
            inputs[field["name"]] = generator.standard_normal((len(lengths), time, field["width"])).astype(np.float32)
        beyond = np.arange(time) >= np.array(lengths)[:, None]
        inputs["value"][beyond] = np.nan
        numbers = {name: torch.from_numpy(values) for name, values in inputs.items()}
        expected = probabilities(path, numbers, torch.tensor(lengths))
        logits = session.run(None, {**inputs, "lengths": np.array(lengths)})[0]
        np.testing.assert_allclose(softmax(logits.astype(np.float64), axis=1), expected.numpy(), rtol=0, atol=1e-5)


def noise(lengths, seed=0):
    generator = np.random.default_rng(seed)
    return [generator.standard_normal((length, 3)) for length in lengths]


BAD = {
    "constant rows": ([np.full((length, 3), 2.5) for length in (1, 3, 20, 20)], [0, 1, 2, 1]),
    "zeros": ([np.zeros((length, 3)) for length in (4, 9)], [0, 1]),
    "large values": ([row * scale for row, scale in zip(noise([9, 30, 4]), (1e30, -1e37, 1), strict=True)], [0, 1, 2]),
    "tiny values": ([row * 1e-30 for row in noise([9, 30, 4])], [0, 1, 2]),
    "one token": (noise([1, 1, 1, 1, 1, 1]), [0, 1, 2, 0, 1, 2]),
    "a missing class": (noise([5, 12, 30, 7]), [0, 2, 0, 2]),
    "one class": (noise([5, 12, 30, 7]), [1, 1, 1, 1]),
    "one row per class": (noise([5, 12, 30]), [0, 1, 2]),
    "one row": (noise([12]), [1]),
    "equal rows": ([noise([12])[0]] * 6, [0, 1, 2, 0, 1, 2]),
}


@pytest.mark.parametrize("case", BAD)
@pytest.mark.filterwarnings("error")
def test_any_rows_give_finite_logits(case):
    split = make_split(*BAD[case])
    path, held_out, _ = Kernels.fit(split, FIELDS, CLASSES, 0)
    assert held_out.shape == (len(split.labels), CLASSES) and np.isfinite(held_out).all()
    for other in (split, make_split(*BAD["large values"]), waves(10)):
        fields, lengths = tensors(other, range(len(other.labels)))
        together = probabilities(path, fields, lengths)
        assert torch.isfinite(together).all()
        for row in range(len(lengths)):
            torch.testing.assert_close(probabilities(path, *tensors(other, [row]))[0], together[row], **CLOSE)


def test_all_biases_of_a_kernel_share_its_convolution(train):
    def products(biases):
        path = Kernels(FIELDS, CLASSES, dilations=[1, 2], biases=biases, proportions=2)
        with FlopCounterMode(display=False) as counter:
            path.features(*tensors(train, np.arange(10)))
        return counter.get_total_flops()

    assert products([1, 1]) == products([3, 2]) > 0


def test_the_head_computes_in_one_thread(fitted, train, monkeypatch):
    head, used = Kernels.head, []
    monkeypatch.setattr(Kernels, "head", lambda *args: used.append(torch.get_num_threads()) or head(*args))
    torch.set_num_threads(2)
    fitted.path(*tensors(train, np.arange(3)))
    assert used == [1] and torch.get_num_threads() == 2


def test_a_small_budget_fits_few_features_to_few_rows(train, monkeypatch):
    """The logits of rows beyond the budget come from the fitted path."""
    monkeypatch.setattr(feature_path, "MAX_SIDE", 20)
    monkeypatch.setattr(kernels, "MAX_WORK", 1)
    path, held_out, _ = Kernels.fit(train, FIELDS, CLASSES, 0)
    assert sum(path.biases) == kernels.MIN_BIASES
    with torch.inference_mode():
        logits = path(*tensors(train, range(60))).double().numpy()
    assert (np.abs(held_out - logits).max(axis=1) < 1e-5).sum() == 40
    assert (held_out.argmax(1) == train.labels).mean() > 0.6


def test_batches_and_long_rows_are_convolved_in_parts_of_bounded_size(fitted, train, monkeypatch):
    """The number of tokens in a part does not show in the logits."""
    batch = tensors(train, range(20))
    expected = probabilities(fitted.path, *batch)
    sizes, product = [], torch.bmm
    monkeypatch.setattr(torch, "bmm", lambda taps, windows: sizes.append(windows.shape[2]) or product(taps, windows))
    for tokens in (7, 100, 5000):
        monkeypatch.setattr(convolution, "CHUNK_CPU", tokens)
        torch.testing.assert_close(probabilities(fitted.path, *batch), expected, **CLOSE)
        assert max(sizes) <= tokens
        sizes.clear()


def test_a_short_event_in_long_rows_is_found(split_of):
    """A ramp of 30 tokens, up or down, in 600 to 1,200 tokens of noise changes no proportion of positions by much."""
    rng = np.random.default_rng(0)
    labels = np.arange(160) % 2
    lengths = rng.integers(600, 1200, 160)
    offsets = np.append(0, np.cumsum(lengths))
    values = rng.standard_normal((offsets[-1], 1)).astype(np.float32)
    for start, length, label in zip(offsets[:-1], lengths, labels, strict=True):
        at = start + rng.integers(0, length - 30)
        values[at : at + 30, 0] += 3 * np.linspace(0, 1, 30)[:: 1 if label else -1]
    split = split_of(Ragged(offsets, {"level": values}), labels)
    _, held_out, _ = Kernels.fit(split, [{"name": "level", "kind": "number", "width": 1}], 2, 0)
    assert (held_out.argmax(1) == labels).mean() > 0.8
