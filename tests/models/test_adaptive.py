"""An adaptive network halts where its score says, learns from all halting tokens, and its step does the same."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from models.checks import exported, max_error, open_session
from models.conftest import PLAIN

from seqclf.batching.batches import SplitRows
from seqclf.bundle.step_model import StepModel, read_chunks
from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.models import adaptive
from seqclf.models.adaptive import (
    READ_ALL,
    THRESHOLDS,
    AdaptiveClassifier,
    certainty_of,
    halting_distribution,
    tokens_read,
)
from seqclf.models.network import row_costs
from seqclf.models.onnx.exporter import export_step

FIELDS = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
LENGTHS = [9, 1, 30, 17, 30, 4]


def network(**options):
    torch.manual_seed(3)
    built = AdaptiveClassifier(FIELDS, 4, earliness=0.1, **{**PLAIN, "pooling": "max+mean", **options}).eval()
    with torch.no_grad():
        for weight in built.parameters():
            weight.add_(0.3 * torch.randn_like(weight))
    return built


def test_a_sequence_is_classified_by_the_tokens_up_to_where_it_halts(inputs):
    model = network()
    fields, lengths, host = inputs(LENGTHS)
    model.threshold.fill_(0.8)
    with torch.no_grad():
        logits = model(fields, lengths, host)
        scores = model.read(fields, lengths, host).scores
        read = []
        for row, length in enumerate(LENGTHS):
            halts = [token for token in range(length) if scores[row, token] >= 0.8]
            read.append(halts[0] + 1 if halts else length)
        model.threshold.fill_(READ_ALL)
        for row, count in enumerate(read):
            alone = {name: values[row : row + 1, :count] for name, values in fields.items()}
            expected = model(alone, torch.tensor([count]), np.array([count]))
            torch.testing.assert_close(logits[row], expected[0], rtol=0, atol=1e-6)
    assert tokens_read(scores, lengths, 0.8).tolist() == read
    assert min(read) < max(read) and read != LENGTHS


def test_one_pass_gives_the_logits_at_every_threshold(inputs):
    model = network(pooling="last+mean+max+attention")
    fields, lengths, host = inputs(LENGTHS)
    thresholds = torch.tensor([0.0, 0.3, 0.8, 2.0, READ_ALL])
    with torch.no_grad():
        logits, read = model.at_thresholds(fields, lengths, host, thresholds)
        for column, threshold in enumerate(thresholds.tolist()):
            model.threshold.fill_(threshold)
            torch.testing.assert_close(logits[:, column], model(fields, lengths, host), rtol=1e-5, atol=1e-5)
    assert read[:, 0].tolist() == [1] * len(LENGTHS) and read[:, -1].tolist() == LENGTHS


def test_certainty_is_the_log_of_how_likely_the_other_classes_are():
    logits = 3 * torch.randn(50, 5, dtype=torch.float64)
    expected = -(1 - logits.softmax(dim=-1).amax(dim=-1)).log()
    torch.testing.assert_close(certainty_of(logits), expected)
    extreme = certainty_of(torch.tensor([[200.0, 0.0, -50.0], [0.0, 0.0, 0.0], [-90.0, -90.0, 90.0]]))
    torch.testing.assert_close(extreme, torch.tensor([200.0, math.log(1.5), 180.0 - math.log(2)]))


def test_the_halting_scores_do_not_teach_the_classifier_to_look_sure(inputs):
    model = network()
    model.read(*inputs(LENGTHS)).scores.sum().backward()
    assert model.output.weight.grad is None and model.norm.weight.grad is None
    assert model.halting.certainty.grad != 0 and model.encoder.forward_layers[0].weight_ih_l0.grad.any()


def test_few_updates_teach_to_stop_once_the_answer_is_known():
    """One mark among 40 tokens of noise decides. A head that does not see the certainty reads 21 of them."""
    torch.manual_seed(0)
    fields = [{"name": "token", "kind": "category", "size": 12}]
    model = AdaptiveClassifier(fields, 3, earliness=0.1, **{**PLAIN, "hidden_size": 16, "pooling": "max"})
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def batch():
        labels, tokens = torch.randint(0, 3, (64,)), torch.randint(3, 12, (64, 40))
        tokens[torch.arange(64), torch.randint(0, 20, (64,))] = labels
        return {"token": tokens}, torch.full((64,), 40), np.full(64, 40), labels

    for _ in range(60):
        optimizer.zero_grad()
        model.training_loss(*batch(), torch.nn.CrossEntropyLoss()).total.backward()
        optimizer.step()
    model.eval()
    *examples, labels = batch()
    with torch.no_grad():
        logits, read = model.at_thresholds(*examples, torch.linspace(0.02, 4, 60))
    right = (logits.argmax(dim=-1) == labels[:, None]).float().mean(dim=0)
    assert read.float().mean(dim=0)[right > 0.97].min() < 16


def test_the_halting_distribution_is_that_of_two_readers():
    """Against a plain enumeration of all starts and ends."""
    stop = torch.tensor([[0.1, 0.6, 0.3, 0.5], [0.9, 0.2, 0.0, 0.0]])
    lengths = [4, 2]
    expected = torch.zeros_like(stop)
    for row, length in enumerate(lengths):
        starts = [(0, 0.5), *((start, 0.5 / length) for start in range(length))]
        for start, weight in starts:
            for token in range(start, length):
                ends = 1.0 if token == length - 1 else stop[row, token]
                expected[row, token] += weight * ends
                weight = weight * (1 - stop[row, token])
    scores = -(1 - stop).log().cumsum(dim=1)
    torch.testing.assert_close(halting_distribution(scores, torch.tensor(lengths)), expected)
    far = torch.arange(1, 2001)[None] * 5.0  # scores whose exponential underflows
    halts = halting_distribution(far, torch.tensor([2000]))
    assert halts.isfinite().all() and halts.sum().item() == pytest.approx(1, abs=1e-3)


def training_loss(model, batch, labels, loss):
    torch.manual_seed(0)
    return model.training_loss(*batch, labels, loss)


def test_the_training_loss_is_the_expectation_over_halting_tokens(inputs):
    model, loss = network(), torch.nn.CrossEntropyLoss()
    fields, lengths, host = inputs(LENGTHS)
    labels = torch.tensor([0, 1, 2, 3, 0, 1])
    result = training_loss(model, (fields, lengths, host), labels, loss)

    def cost(row, count):
        prefix = {name: values[row : row + 1, :count] for name, values in fields.items()}
        return loss(model(prefix, torch.tensor([count]), np.array([count])), labels[row : row + 1])

    with torch.no_grad():
        halts = halting_distribution(model.read(fields, lengths, host).scores, lengths)
        costs = [[cost(row, count) for count in range(1, length + 1)] for row, length in enumerate(LENGTHS)]
        first, last = (sum(row[end] for row in costs) / len(costs) for end in (0, -1))
        price = 0.1 * max(0.0, 0.02 * float(first - last))  # of which this is the first batch
        expected = sum(
            halts[row, token] * (part + price * (token + 1) / len(parts))
            for row, parts in enumerate(costs)
            for token, part in enumerate(parts)
        )
    torch.testing.assert_close(result.total.detach(), expected / len(costs) + last, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(result.loss, last, rtol=1e-5, atol=1e-5)


def test_many_logits_are_computed_anew_in_the_backward_pass(inputs, monkeypatch):
    batch, labels = inputs(LENGTHS), torch.tensor([0, 1, 2, 3, 0, 1])
    gradients = []
    for limit in (adaptive.MAX_LOGITS, 40):
        monkeypatch.setattr(adaptive, "MAX_LOGITS", limit)
        model = network()
        training_loss(model, batch, labels, torch.nn.CrossEntropyLoss()).total.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


def test_padding_that_is_nan_changes_no_gradient(inputs):
    labels, results = torch.tensor([0, 1, 2, 3, 0, 1]), []
    for padding in (0.0, torch.nan):
        fields, lengths, host = inputs(LENGTHS, 33)
        for row, length in enumerate(LENGTHS):
            fields["value"][row, length:] = padding
        model = network(pooling="max+mean+attention")
        result = training_loss(model, (fields, lengths, host), labels, torch.nn.CrossEntropyLoss())
        results.append(result.total.detach())
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("cell", ["gru", *(pytest.param(cell, marks=pytest.mark.soak) for cell in ("lstm", "rnn"))])
def test_the_step_halts_where_the_network_does(inputs, tmp_path, cell):
    model = network(cell=cell)
    fields, lengths, host = inputs(LENGTHS)
    arrays = {name: values.numpy() for name, values in fields.items()}
    for threshold in (0.0, 0.8, 2.0, READ_ALL):
        model.threshold.fill_(threshold)
        with torch.no_grad():
            expected = model.outputs(fields, lengths, host)
        step = export_step(model, FIELDS, tmp_path / "step.onnx")
        states, session = [state._asdict() for state in step.states], open_session(tmp_path / "step.onnx")
        for chunk in (1, 4, 30):
            read = read_chunks(StepModel(session, states, FIELDS, 4, step.more_outputs), arrays, host, chunk)
            np.testing.assert_allclose(read.logits, expected["logits"].numpy(), atol=1e-5)
            assert read.extra["tokens_read"].tolist() == expected["tokens_read"].tolist()
    model.threshold.fill_(0.8)
    whole = exported(model, tmp_path / "model.onnx", FIELDS)
    cases = [([longest, 1, (longest + 1) // 2], longest) for longest in (1, 2, 8, 9, 33)]
    assert max_error(model, whole, FIELDS, cases) < 1e-5


def rows_where_reading_helps(count=200):
    """Rows of 12 tokens, whose first token is their class with a probability of 0.9, and whose seventh is it always."""
    generator = np.random.default_rng(0)
    labels, tokens = generator.integers(0, 2, count), generator.integers(2, 12, (count, 12))
    tokens[:, 0], tokens[:, 6] = labels ^ (generator.random(count) < 0.1), labels
    split = SimpleNamespace(
        mean_weights=None, sequences=Ragged(np.arange(count + 1) * 12, {"token": tokens.reshape(-1)}, {}), labels=labels
    )
    return SplitRows(split, "", np.ones(2))


def trained_on(rows):
    torch.manual_seed(0)
    fields = [{"name": "token", "kind": "category", "size": 12}]
    model = AdaptiveClassifier(fields, 2, earliness=0.1, **{**PLAIN, "hidden_size": 16, "pooling": "max"})
    optimizer, (batch,) = torch.optim.AdamW(model.parameters(), lr=1e-2), rows.batches()
    for _ in range(100):
        optimizer.zero_grad()
        inputs = batch.fields, batch.lengths, batch.lengths.numpy(), torch.from_numpy(rows.labels[batch.rows])
        model.training_loss(*inputs, torch.nn.CrossEntropyLoss()).total.backward()
        optimizer.step()
    return model.eval()


def test_validation_sets_the_threshold_that_reads_least_and_loses_little():
    rows = rows_where_reading_helps()
    model = trained_on(rows)
    (batch,) = rows.batches()
    inputs, labels = (batch.fields, batch.lengths, batch.lengths.numpy()), torch.from_numpy(rows.labels[batch.rows])
    assert model.outputs(*inputs)["tokens_read"].tolist() == [12] * 200
    text = model.fit_to_validation(rows)
    with torch.no_grad():
        logits, read = model.at_thresholds(*inputs, THRESHOLDS)
        chosen = model.outputs(*inputs)
    right = (logits.argmax(dim=2) == labels[:, None]).float()
    recall = (right[labels == 0].mean(dim=0) + right[labels == 1].mean(dim=0)) / 2
    loss = -logits.log_softmax(dim=2)[torch.arange(200), :, labels].mean(dim=0)
    good = (recall >= recall[-1] - 0.005) & (loss <= loss[-1] + 0.05 * (loss[0] - loss[-1]))
    share = read.sum(dim=0) / batch.lengths.sum()
    assert (
        chosen["tokens_read"].sum() / 2400 == pytest.approx(share[good].min().item()) and 1 / 12 < share[good].min() < 1
    )
    assert f"reads {share[good].min():.0%} of the tokens" in text
    model.threshold.fill_(-1)
    assert model.outputs(*inputs)["tokens_read"].tolist() == [12] * 200


def test_all_tokens_are_read_in_training_and_the_threshold_stays_in_every_mean():
    model = network()
    model.threshold.fill_(0.0)
    inputs = {"token": torch.ones(2, 5).long(), "value": torch.zeros(2, 5, 3)}, torch.tensor([5, 3]), np.array([5, 3])
    assert model.outputs(*inputs)["tokens_read"].tolist() == [1, 1]
    assert model.train().outputs(*inputs)["tokens_read"].tolist() == [5, 3]
    for kind in (torch.float16, torch.bfloat16, torch.float32):
        unset = torch.tensor(READ_ALL, dtype=kind)
        assert tokens_read(torch.full((1, 4), 9e4), torch.tensor([4]), unset.lerp(unset, 0.3)).item() == 4


@pytest.mark.parametrize(
    ("options", "remedy"),
    [
        ({"bidirectional": True}, "model.bidirectional=false"),
        ({"encoder": {"_target_": "seqclf.models.transformer.Transformer", "heads": 2}}, "an encoder"),
    ],
)
def test_an_encoder_that_needs_the_whole_sequence_is_refused(options, remedy):
    arguments = {**PLAIN, **options}
    if "encoder" in options:
        arguments = {key: value for key, value in arguments.items() if key not in ("cell", "bidirectional", "layout")}
        arguments |= {"expansion": 2}
    with pytest.raises(InputError, match=f"reads each sequence once, from its start; set {remedy}"):
        AdaptiveClassifier(FIELDS, 4, earliness=0.1, **arguments)


def test_losses_without_a_loss_of_each_row_are_named():
    logits, labels = torch.randn(5, 3), torch.tensor([0, 1, 2, 1, 0])
    loss = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
    expected = torch.stack([loss(logits[row : row + 1], labels[row : row + 1]) for row in range(5)])
    torch.testing.assert_close(row_costs(loss, logits, labels), expected)
    weights = torch.tensor([1.0, 5.0, 2.0])
    weighted = torch.nn.CrossEntropyLoss(weight=weights)
    expected = torch.nn.functional.cross_entropy(logits, labels, weight=weights, reduction="none")
    torch.testing.assert_close(row_costs(weighted, logits, labels), expected)
    assert weighted.reduction == "mean"

    def hard_rows(logits, labels):
        costs = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
        return costs[costs > 0.1].mean()

    with pytest.raises(
        InputError, match=r"loss: the loss of each row is needed .*model=adaptive.* add a method row_costs"
    ):
        row_costs(hard_rows, logits, labels)
