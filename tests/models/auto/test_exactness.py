"""The logits of a network of heads depend on nothing but the tokens of the sequence, and ONNX Runtime computes them."""

from pathlib import Path

import numpy as np
import pytest
import torch
from models.auto.conftest import BAG, CATEGORY, MASKED, NUMBER
from models.checks import exported

from seqclf.models.auto.kernel_bank import choose_dilations
from seqclf.models.onnx.exporter import example_inputs

SETS = {
    "kernels": ([NUMBER], {}),
    "windows": ([NUMBER], {"window": 4}),
    "windows_longer_than_the_example": ([NUMBER], {"window": 40}),
    "short_windows_and_ids": ([NUMBER, CATEGORY], {"window": 2, "heads": ["recurrent", "statistics"]}),
    "kernels_and_ids": (
        [NUMBER, CATEGORY],
        {"window": 3, "dilations": [1], "heads": ["recurrent", "kernels", "categories"]},
    ),
    "tables": ([NUMBER, CATEGORY], {"dilations": [], "heads": ["recurrent", "kernels", "statistics", "categories"]}),
    "masks": ([MASKED, BAG], {"dilations": [], "heads": ["recurrent", "kernels", "statistics", "categories"]}),
    "letters": (
        [CATEGORY],
        {"dilations": [], "convolution": 3, "heads": ["recurrent", "kernels", "statistics", "ngrams"]},
    ),
    "unidirectional": ([NUMBER], {"bidirectional": False, "layers": 2, "cell": "gru"}),
    "trained_kernels": ([NUMBER], {"closed_form": False}),
}
LENGTHS = np.array([30, 1, 2, 3, 17, 7])
each_set = pytest.mark.parametrize("name", SETS)
# An export takes seconds. These sets have windows, kernels, ids, a convolution and all heads; the others are slow.
QUICK = {"kernels_and_ids", "letters"}
each_export = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SETS]
)


def inputs_of(fields, lengths=LENGTHS, padding=5, seed=0):
    inputs = example_inputs(fields, lengths, int(lengths.max()) + padding, np.random.default_rng(seed))
    tensors = {name: torch.from_numpy(values) for name, values in inputs.items() if name != "lengths"}
    outside = torch.arange(int(lengths.max()) + padding) >= torch.from_numpy(lengths)[:, None]
    for values in tensors.values():
        if values.is_floating_point():
            values[outside] = float("nan")
    return tensors, torch.from_numpy(lengths)


def alone(fields, lengths):
    return [
        ({name: values[row : row + 1, :length] for name, values in fields.items()}, lengths[row : row + 1])
        for row, length in enumerate(lengths.tolist())
    ]


def assert_equal(found, expected):
    limit = 1e-5 * max(1.0, float(expected.abs().max()))
    torch.testing.assert_close(found, expected, rtol=0, atol=limit)


@each_set
@torch.inference_mode()
def test_logits_ignore_padding_batch_mates_and_order(fitted, name):
    specs, options = SETS[name]
    network = fitted(specs, **options)
    fields, lengths = inputs_of(specs)
    together = network(fields, lengths, lengths.numpy())
    assert together.isfinite().all()
    assert_equal(torch.cat([network(*row, row[1].numpy()) for row in alone(fields, lengths)]), together)
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    shuffled = network({key: values[order] for key, values in fields.items()}, lengths[order], lengths[order].numpy())
    assert_equal(shuffled, together[order])


@each_export
def test_onnx_runtime_computes_the_logits_for_any_batch_and_time(fitted, tmp_path: Path, name):
    specs, options = SETS[name]
    network = fitted(specs, **options)
    session = exported(network, tmp_path / "model.onnx", specs)
    fields, lengths = inputs_of(specs)
    for some, counts in [(fields, lengths), *alone(fields, lengths)[:3]]:
        with torch.inference_mode():
            expected = network(some, counts, counts.numpy())
        found = session.run(None, {**{key: values.numpy() for key, values in some.items()}, "lengths": counts.numpy()})
        assert_equal(torch.from_numpy(found[0]), expected)


@torch.inference_mode()
def test_windows_that_are_not_kept_give_the_same_logits(fitted):
    """In evaluation, the recurrent head reads the windows of one group of kernels at a time."""
    network = fitted([NUMBER, CATEGORY], window=3)
    fields, lengths = inputs_of([NUMBER, CATEGORY])
    expected = network(fields, lengths, lengths.numpy())
    reading = network.front(fields, lengths)
    logits = [head(fields, lengths, lengths.numpy(), reading) for head in network.heads]
    assert_equal(network.added([logits]), expected)


@pytest.mark.parametrize("value", [0.0, 1e30, -1e30, 1e-30])
@torch.inference_mode()
def test_constant_huge_and_tiny_numbers_give_finite_logits(fitted, value):
    network = fitted([NUMBER], window=2)
    lengths = torch.tensor([9, 1])
    values = torch.full((2, 9, 3), value)
    values[:, :, 1] *= torch.linspace(-1, 1, 9)
    assert network({"value": values}, lengths, lengths.numpy()).isfinite().all()


@torch.inference_mode()
def test_hundreds_of_channels_and_a_thousand_classes(fitted):
    from models.auto.conftest import build, random_split, training_rows

    wide = {"name": "value", "kind": "number", "width": 300}
    network = build([wide], 1000, dilations=[1, 2, 4, 8, 16, 32, 64, 100, 120, 150])
    rows = training_rows(random_split([wide], rows=30))
    rows.class_weights = np.ones(1000)
    network.fit_to(rows)
    read = {int(channel) for channel in network.front.bank.channels.flatten()}
    assert len(read) == 300  # each channel is read by some kernels
    fields, lengths = inputs_of([wide])
    assert network.eval()(fields, lengths, lengths.numpy()).shape == (6, 1000)


@pytest.mark.slow
@torch.inference_mode()
def test_a_hundred_thousand_tokens_take_bounded_memory(fitted):
    import resource

    network = fitted([NUMBER], window=1, dilations=choose_dilations(1000, 12))
    values, lengths = torch.randn(1, 100_000, 3), torch.tensor([100_000])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert network({"value": values}, lengths, lengths.numpy()).isfinite().all()
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    # 12 groups of 252 outputs, 4 bytes each, would take 1.2 GB for the windows alone.
    assert grown < 1.2e9
