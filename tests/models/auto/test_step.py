"""A unidirectional network of heads that reads chunk by chunk gives the logits of the whole sequences."""

import numpy as np
import pytest
import torch
from models.auto.conftest import BAG, CATEGORY, MASKED, NUMBER
from models.auto.test_exactness import assert_equal, inputs_of
from models.checks import open_session

from seqclf.bundle.step_model import StepModel, read_chunks
from seqclf.errors import InputError
from seqclf.models.auto.features import running_views
from seqclf.models.onnx.checks import EMBEDDING
from seqclf.models.onnx.exporter import example_inputs, export_step

ONE_WAY = {"bidirectional": False, "window": 1}
SETS = {
    "kernels": ([NUMBER], {"dilations": [2]}),
    "tables": ([MASKED, BAG], {"dilations": [], "layers": 2, "heads": ["recurrent", "linear", "categories"]}),
    "letters": (
        [CATEGORY, {**CATEGORY, "name": "other"}],
        {"dilations": [], "convolution": 3, "heads": ["recurrent", "statistics", "ngrams"]},
    ),
}
SETS["a convolution of one token"] = ([CATEGORY], {"dilations": [], "convolution": 1, "heads": ["recurrent"]})
QUICK = {"kernels", "letters"}  # an export takes seconds
LENGTHS = np.array([9, 1, 30, 17, 30, 4])


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in SETS])
def test_chunk_by_chunk_equals_the_whole_sequence(fitted, tmp_path, name):
    specs, options = SETS[name]
    network = fitted(specs, **options, **ONE_WAY)
    states = export_step(network, specs, tmp_path / "step.onnx").states
    model = StepModel(
        open_session(tmp_path / "step.onnx"), [state._asdict() for state in states], specs, 3, [EMBEDDING]
    )
    inputs = example_inputs(specs, LENGTHS, 33, np.random.default_rng(0))
    if "value" in inputs:
        inputs["value"] = np.cumsum(inputs["value"], axis=1) + 1000  # a level far from zero
    fields = {spec["name"]: inputs[spec["name"]] for spec in specs}
    with torch.no_grad():
        tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
        expected = network(tensors, torch.from_numpy(LENGTHS), LENGTHS)
        statistics = network.front(tensors, torch.from_numpy(LENGTHS)).statistics.numpy()
        alone = expected / network.weights[0, 0]  # of a single head
        recurrent = network.outputs(tensors, torch.from_numpy(LENGTHS), LENGTHS).get("recurrent", alone).numpy()
        output = [values.numpy() for values in network.trained_heads["recurrent"].output.parameters()]
    limit = 2e-4 * max(1.0, float(expected.abs().max()))
    pooled = output[0].shape[1]
    for chunk in (1, 7, 33):
        read = read_chunks(model, fields, LENGTHS, chunk)
        np.testing.assert_allclose(read.logits, expected.numpy(), atol=limit)
        embedding = read.extra[EMBEDDING]
        np.testing.assert_allclose(embedding[:, :pooled] @ output[0].T + output[1], recurrent, atol=limit)
        assert embedding.shape[1] == pooled + (statistics.shape[1] if len(network.heads) > 1 else 0)
        np.testing.assert_allclose(embedding[:, pooled:], statistics[:, : embedding.shape[1] - pooled], atol=2e-4)


def test_running_views_read_no_later_token():
    torch.manual_seed(0)
    values = torch.randn(2, 3, 40, dtype=torch.float32) * torch.tensor([1.0, 1e-3, 1e6])[:, None] + 5
    lengths = torch.tensor([40, 25])
    views, _ = running_views(values, lengths)
    for token in (0, 1, 7, 24):
        part, _ = running_views(values[..., : token + 1], torch.tensor([token + 1, token + 1]))
        torch.testing.assert_close(part[..., token], views[..., token], rtol=1e-5, atol=1e-5)
        before = values[0, :, : token + 1].double()
        deviation = before.std(-1, unbiased=False)
        floor = 1e-4 * before.square().mean(-1).sqrt() + 1e-9
        scored = (before[:, -1] - before.mean(-1)) / torch.maximum(deviation, floor)
        torch.testing.assert_close(views[0, 0, :, token].double(), scored, rtol=1e-4, atol=1e-4)


def test_two_directions_have_no_step_and_windows_need_them(fitted, tmp_path):
    assert export_step(fitted([NUMBER]), [NUMBER], tmp_path / "step.onnx") is None
    with pytest.raises(InputError, match=r"model\.window=4: must be 1"):
        fitted([NUMBER], window=4, bidirectional=False)


def test_ids_that_pad_a_bag_are_not_counted(fitted):
    """The number of ids of a token is that of the batch, and its padding must not count."""
    network = fitted([BAG], dilations=[], heads=["recurrent", "linear", "statistics"])
    (fields, lengths) = inputs_of([BAG])
    wider = {"tags": torch.cat([fields["tags"], torch.zeros_like(fields["tags"])], dim=2)}
    with torch.no_grad():
        assert_equal(network(wider, lengths, lengths.numpy()), network(fields, lengths, lengths.numpy()))


def test_running_views_of_huge_numbers_keep_finite_states():
    values = torch.cumsum(torch.randn(2, 3, 40), 2) * 1e25
    lengths = torch.tensor([40, 40])
    whole, _ = running_views(values, lengths)
    _, states = running_views(values[..., :15], torch.tensor([15, 15]))
    assert all(state.isfinite().all() for state in states)
    rest, _ = running_views(values[..., 15:], torch.tensor([25, 25]), states)
    torch.testing.assert_close(rest, whole[..., 15:], rtol=1e-3, atol=1e-3)
