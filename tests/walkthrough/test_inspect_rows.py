"""Stages of rows against independent computations: the network's modules, packed sequences and plain loops."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from seqclf.evaluation.decisions.decision import Decision
from seqclf.extend import SequenceNetwork
from seqclf.models.transformer import rotary_angles, rotate
from seqclf.walkthrough.data_stages import active_rows
from seqclf.walkthrough.inspect_rows import inspect_rows

GRU = ("words", "model=gru", "model.layers=2", "model.layout=packed", "model.bidirectional=false", "model.pooling=last")
CONV = ("mixed", "model=conv_lstm", "model.strides=[2,2]", "model.kernel=3", "model.channels=4")
STAGES = {
    ("words", "model=lstm"): ["Hidden states 1", "Hidden states 1, backward", "Outputs of Recurrent", "Pooling by max"],
    GRU: ["Hidden states 1", "Outputs of Recurrent"],
    CONV: ["Outputs of StridedConvolution 1", "Outputs of StridedConvolution 2", "Outputs of ConvRecurrent"],
    ("words", "model=transformer", "model.heads=2"): ["Attention", "Outputs of Block 1", "Outputs of Transformer"],
    ("words", "model=lstm", "model.members=2"): ["Hidden states 1"],
    ("trees", "model=tree_lstm"): ["Encoder outputs"],
    ("words", "model=adaptive"): ["Outputs of Recurrent"],
}


@pytest.fixture(scope="module", params=STAGES, ids=lambda model: " ".join(model[1:]))
def every(request, inspected):
    case = inspected(*request.param)
    assert {"Embedded tokens", "Pooled rows", *STAGES[request.param]} <= set(case.titles)
    return case


def network_of(case):
    model = case.task.model
    return model.members[0] if hasattr(model, "members") else model


def batch_of(case):
    """Fields and lengths of the rows, padded by a plain loop."""
    lengths = case.rows.sequences.lengths
    fields = {}
    for name, values in case.rows.sequences.fields.items():
        padded = np.zeros((len(lengths), lengths.max(), *values.shape[1:]), values.dtype)
        for row, length in enumerate(lengths):
            start = case.rows.sequences.offsets[row]
            padded[row, :length] = values[start : start + length]
        fields[name] = torch.from_numpy(padded if values.dtype.kind == "f" else padded.astype(np.int64))
    return fields, lengths


def test_the_logits_are_those_of_the_network_alone_with_each_row(every):
    fields, lengths = batch_of(every)
    with torch.no_grad():
        for row, length in enumerate(lengths.tolist()):
            one = {name: values[row : row + 1, :length] for name, values in fields.items()}
            logits = every.task.model(one, torch.tensor([length]), np.array([length]))
            np.testing.assert_allclose(every.result.logits[row], logits[0], atol=1e-5)
    assert every.stage("Logits").values is every.result.logits
    np.testing.assert_allclose(every.stage("Probabilities").values.sum(axis=1), 1)


def test_every_stage_has_axes_and_cells_of_real_tokens(every):
    for stage in every.result.stages:
        assert stage.text.endswith((".", ":")) and (stage.values is None or stage.values.ndim == len(stage.axes))
        for block in stage.blocks:
            for heat_map in getattr(block, "maps", ()):
                assert not any("nan" in cell.text for _, cells in heat_map.rows for cell in cells if cell)


def test_the_active_batch_sizes_are_those_of_a_packed_sequence(every):
    lengths = torch.from_numpy(every.result.lengths)
    packed = pack_padded_sequence(torch.zeros(4, int(lengths.max()), 1), lengths, True, enforce_sorted=False)
    assert active_rows(every.result.lengths).tolist() == packed.batch_sizes.tolist()
    *rows, active = (cells for _, cells in every.stage("Padded").blocks[0].maps[0].rows)
    assert [int(cell.text) for cell in active] == packed.batch_sizes.tolist()
    assert [sum(cell is not None for cell in row) for row in rows] == lengths.tolist()


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_hidden_states_are_those_of_the_row_alone_in_both_directions(inspected, layout):
    case = inspected("words", "model=lstm", f"model.layout={layout}")
    encoder = network_of(case).encoder
    embedded, forward, backward, outputs = (
        case.stage(title).values
        for title in ("Embedded", "Hidden states 1", "Hidden states 1, backward", "Outputs of Recurrent")
    )
    with torch.no_grad():
        for row, length in enumerate(case.result.lengths.tolist()):
            tokens = torch.from_numpy(embedded[row : row + 1, :length])
            first = encoder.forward_layers[0](tokens)[0][0]
            last = encoder.backward_layers[0](tokens.flip(1))[0].flip(1)[0]
            np.testing.assert_allclose(forward[row, :length], first, atol=1e-6)
            np.testing.assert_allclose(backward[row, :length], last, atol=1e-6)
            np.testing.assert_allclose(outputs[row, :length], torch.cat([first, last], dim=-1), atol=1e-6)


def test_attention_weights_are_those_of_a_plain_computation(inspected):
    case = inspected("words", "model=transformer", "model.heads=2", "model.layers=1")
    block = network_of(case).encoder.blocks[0]
    weights, lengths = case.stage("Attention").values, case.result.lengths
    for row, length in enumerate(lengths.tolist()):
        np.testing.assert_allclose(weights[row, :length].sum(axis=-1), 1, atol=1e-5)
        assert (weights[row, :length, length:] == 0).all()
    with torch.no_grad():
        tokens = torch.from_numpy(case.stage("Embedded").values)
        for row, length in enumerate(lengths.tolist()):
            inputs = block.attention_norm(network_of(case).encoder.input(tokens[row : row + 1, :length]))
            angles = rotary_angles(length, network_of(case).encoder.head_size)
            values = block.attention.inputs(inputs).chunk(3, dim=-1)
            query, key, _ = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in values)
            products = torch.einsum("bhis,bhjs->bhij", rotate(query, angles), rotate(key, angles)) / 2
            np.testing.assert_allclose(weights[row, :length, :length], products.softmax(-1).mean(1)[0], atol=1e-5)


def test_pooling_scores_say_what_the_pooled_rows_are_made_of(inspected):
    case = inspected("words", "model=gru", "model.pooling=max+attention")
    outputs, pooled = case.stage("Outputs of Recurrent").values, case.stage("Pooled").values
    share, weights = case.stage("Pooling by max").values, case.stage("Pooling by attention").values
    for row, length in enumerate(case.result.lengths.tolist()):
        tokens = outputs[row, :length]
        np.testing.assert_allclose(tokens.max(axis=0), pooled[row, :16], atol=1e-6)
        np.testing.assert_allclose(weights[row, :length] @ tokens, pooled[row, 16:], atol=1e-5)
        winners = np.bincount(tokens.argmax(axis=0), minlength=length) / 16
        np.testing.assert_allclose(share[row, :length], winners, atol=1e-6)


def test_an_adaptive_network_says_where_rows_halt(inspected):
    case = inspected("words", "model=adaptive", "model.pooling=mean")
    assert case.stage("Pooled").note == ""
    case.task.model.threshold = 0.0
    result = inspect_rows(case.task, case.rows, Decision())
    stage = next(stage for stage in result.stages if stage.title == "Pooled rows")
    long = [f"row {row} after 1 of {length} tokens" for row, length in enumerate(case.result.lengths, 1) if length > 1]
    assert stage.note == f"The network halts before the end: {', '.join(long)}. Tokens behind it do not count."


def test_the_logits_of_an_ensemble_give_the_mean_probabilities(inspected):
    case = inspected("words", "model=lstm", "model.members=3")
    fields, lengths = batch_of(case)
    with torch.no_grad():
        logits = [member(fields, torch.from_numpy(lengths), lengths) for member in case.task.model.members]
    mean = torch.stack(logits).softmax(dim=-1).mean(dim=0)
    np.testing.assert_allclose(case.result.probabilities, mean, atol=1e-6)
    assert "first of 3 networks" in case.stage("Logits").note


def test_a_threshold_decides_the_labels_shown(inspected):
    case = inspected("words", "model=lstm")
    decision = Decision().with_margin("min_recall", case.task.classes, -9.0, "k1")
    result = inspect_rows(case.task, case.rows, decision)
    assert result.predicted.tolist() == [1, 1, 1, 1]
    assert "k1 is predicted from a probability of 0.000123 on" in result.stages[-1].text


class Counter(SequenceNetwork):
    """A network of another package, which counts tokens."""

    def __init__(self, classes):
        super().__init__()
        self.linear = torch.nn.Linear(1, 4)
        self.last = torch.nn.Linear(4, classes)

    def forward(self, fields, lengths, host_lengths):
        return self.last(self.linear(lengths[:, None].float()))


def test_a_network_of_another_package_shows_its_parts(inspected):
    case = inspected("words", "model=lstm")
    case.task.model = Counter(2)
    stages = inspect_rows(case.task, case.rows, Decision()).stages
    assert [stage.module for stage in stages if stage.module] == ["linear"], "the last part gives the logits"
    expected = case.task.model.linear(torch.from_numpy(case.result.lengths)[:, None].float())
    np.testing.assert_allclose(stages[3].values, expected.detach(), atol=1e-6)
