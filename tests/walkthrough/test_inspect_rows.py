"""Stages of rows against independent computations: the network's modules, packed sequences and plain loops."""

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from seqclf.evaluation.decision import Decision
from seqclf.extend import SequenceNetwork
from seqclf.walkthrough import encoder_stages
from seqclf.walkthrough.inspect_rows import inspect_rows
from seqclf.walkthrough.stages import ClassScores, RowVectors, TokenPairs, TokenScores, TokenVectors

MODELS = [
    ("words", "model=lstm"),
    ("words", "model=gru", "model.layers=2", "model.layout=packed", "model.bidirectional=false", "model.pooling=last"),
    ("mixed", "model=rnn", "model.pooling=mean+attention"),
    ("mixed", "model=conv_lstm", "model.strides=[2]", "model.kernel=3", "model.channels=4"),
    ("words", "model=transformer", "model.heads=2"),
    ("numbers", "model=transformer", "model.heads=2", "model.pooling=max"),
    ("words", "model=lstm", "model.members=2"),
    ("trees", "model=tree_lstm"),
    ("words", "model=adaptive"),
]


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: " ".join(model[1:]))
def every(request, inspected):
    return inspected(*request.param)


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
    scores = every.stage("Logits").content
    assert isinstance(scores, ClassScores) and scores.values is every.result.logits
    probabilities = every.stage("Probabilities").content
    np.testing.assert_allclose(probabilities.values.sum(axis=1), 1)
    assert probabilities.labels == every.rows.labels


def test_every_stage_has_the_shape_and_lengths_of_its_values(every):
    for stage in every.result.stages:
        assert len(stage.shape) == len(stage.axes) and stage.text.endswith(".")
        values = getattr(stage.content, "values", None)
        if values is not None:
            assert values.shape == stage.shape
        if isinstance(stage.content, TokenVectors):
            lengths = stage.content.lengths
            assert len(lengths) == 4 and lengths.min() >= 1 and lengths.max() <= values.shape[1]
            inside = np.arange(values.shape[1]) < lengths[:, None]
            assert np.isfinite(values[inside]).all()
            assert len(set(stage.content.channels.tolist())) == len(stage.content.channels)


def test_the_embedded_tokens_are_rows_of_the_table(inspected):
    case = inspected("words", "model=lstm")
    fields, lengths = batch_of(case)
    table = network_of(case).embedding.layers[0].weight.detach().numpy()
    embedded = case.stage("Embedded").content.values
    for row, length in enumerate(lengths):
        np.testing.assert_array_equal(embedded[row, :length], table[fields["x"][row, :length]])


def test_fields_have_their_channels_by_name(inspected):
    content = inspected("mixed", "model=lstm").stage("Embedded").content
    assert [tuple(part) for part in content.parts] == [("x", 0, 6), ("y", 6, 12)]


def test_the_active_batch_sizes_are_those_of_a_packed_sequence(every):
    content = every.stage("Padded").content
    packed = pack_padded_sequence(
        torch.zeros(4, int(content.lengths.max()), 1), torch.from_numpy(content.lengths), True, enforce_sorted=False
    )
    assert content.active.tolist() == packed.batch_sizes.tolist()
    cells = [sum(bool(cell) for cell in row) for row in content.cells]
    assert cells == content.lengths.tolist() == every.rows.sequences.lengths.tolist()


def test_hidden_states_are_those_of_the_row_alone_in_both_directions(inspected):
    case = inspected("words", "model=lstm")
    network = network_of(case)
    hidden, embedded = (case.stage(title).content for title in ("Hidden", "Embedded"))
    with torch.no_grad():
        for row, length in enumerate(hidden.lengths.tolist()):
            tokens = torch.from_numpy(embedded.values[row : row + 1, :length])
            forward = network.encoder.forward_layers[0](tokens)[0]
            backward = network.encoder.backward_layers[0](tokens.flip(1))[0].flip(1)
            expected = torch.cat([forward, backward], dim=-1)[0]
            np.testing.assert_allclose(hidden.values[row, :length], expected, atol=1e-6)
    assert [tuple(part) for part in hidden.parts] == [("forward", 0, 8), ("backward", 8, 16)]


@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_the_states_between_two_layers_are_what_the_second_reads(inspected, layout):
    case = inspected("words", "model=gru", "model.layers=2", f"model.layout={layout}")
    first, second = (case.stage(f"Hidden states of layer {number} of 2").content for number in (1, 2))
    layers = network_of(case).encoder
    with torch.no_grad():
        for row, length in enumerate(first.lengths.tolist()):
            tokens = torch.from_numpy(first.values[row : row + 1, :length])
            forward = layers.forward_layers[1](tokens)[0]
            np.testing.assert_allclose(second.values[row, :length, :8], forward[0], atol=1e-6)


def test_the_pooled_vector_is_pooled_from_the_tokens_of_the_row(inspected):
    case = inspected("words", "model=lstm", "model.pooling=max+mean")
    hidden, pooled = case.stage("Hidden").content, case.stage("Pooled").content
    for row, length in enumerate(hidden.lengths):
        states = hidden.values[row, :length]
        np.testing.assert_allclose(pooled.values[row], np.r_[states.max(axis=0), states.mean(axis=0)], atol=1e-6)
    names = [part.name for part in pooled.parts]
    assert names == ["max forward", "max backward", "mean forward", "mean backward"]


def test_the_weights_of_attention_pooling_give_the_pooled_vector(inspected):
    case = inspected("words", "model=lstm", "model.pooling=attention")
    hidden, scores, pooled = (case.stage(title).content for title in ("Hidden", "Pooling by", "Pooled"))
    assert isinstance(scores, TokenScores) and isinstance(pooled, RowVectors)
    for row, length in enumerate(hidden.lengths):
        weights = scores.values[row, :length]
        assert weights.sum() == pytest.approx(1) and (scores.values[row, length:] == 0).all()
        np.testing.assert_allclose(weights @ hidden.values[row, :length], pooled.values[row], atol=1e-6)


def test_the_shares_of_max_pooling_count_the_channels_that_a_token_gives(inspected):
    case = inspected("words", "model=gru")
    hidden, scores = case.stage("Hidden").content, case.stage("Pooling by max").content
    for row, length in enumerate(hidden.lengths):
        winners = hidden.values[row, :length].argmax(axis=0)
        counts = np.bincount(winners, minlength=hidden.values.shape[1])
        np.testing.assert_allclose(scores.values[row], counts / hidden.values.shape[2])


def test_the_attention_shown_is_the_one_that_ran(inspected):
    """The shares, applied to the values of each head, give the output of the module with one head."""
    case = inspected("words", "model=transformer", "model.heads=1", "model.layers=1")
    pairs = case.stage("Attention").content
    assert isinstance(pairs, TokenPairs)
    block = network_of(case).encoder.blocks[0]
    outputs = {}
    hook = block.attention.register_forward_hook(lambda module, inputs, output: outputs.update(read=inputs, got=output))
    fields, lengths = batch_of(case)
    with torch.no_grad():
        case.task.model(fields, torch.from_numpy(lengths), lengths)
        hook.remove()
        values = block.attention.inputs(outputs["read"][0]).chunk(3, dim=-1)[2]
        expected = block.attention.output(torch.from_numpy(pairs.values) @ values)
    for row, length in enumerate(lengths):
        np.testing.assert_allclose(expected[row, :length], outputs["got"][row, :length], atol=1e-5)
        np.testing.assert_allclose(pairs.values[row, :length, :length].sum(axis=1), 1, atol=1e-5)


def test_the_attention_of_long_rows_is_left_out_and_named(inspected, monkeypatch):
    monkeypatch.setattr(encoder_stages, "MAX_ATTENTION_TOKENS", 1)
    stages = inspected("words", "model=transformer", "model.heads=2").result.stages
    assert not any(stage.title.startswith("Attention") for stage in stages)
    outputs = next(stage for stage in stages if stage.title == "Encoder outputs")
    assert "is shown for rows of at most 1 tokens" in outputs.text


def test_convolutions_show_the_shorter_time(inspected):
    case = inspected("mixed", "model=conv_lstm", "model.strides=[2]", "model.kernel=3", "model.channels=4")
    lengths = case.rows.sequences.lengths
    for title in ("Convolution 1 of 1", "Hidden"):
        content = case.stage(title).content
        assert content.lengths.tolist() == [-(-length // 2) for length in lengths] and content.tokens is None
    parts = case.stage("Hidden").content.parts
    assert [tuple(part) for part in parts] == [("convolution", 0, 4), ("forward", 4, 12), ("backward", 12, 20)]


def test_the_levels_of_a_tree_are_the_distances_to_its_root(inspected):
    case = inspected("trees", "model=tree_lstm")
    levels = case.stage("Levels").content
    sizes = []
    for row, length in enumerate(levels.lengths):
        parents = levels.parents[row, :length].tolist()
        for node in range(length):
            steps, above = 0, parents[node]
            while above >= 0:
                steps, above = steps + 1, parents[above]
            assert levels.depths[row, node] == steps
        sizes.append(length)
    assert levels.order == list(range(max(levels.order), -1, -1))
    nodes = [node for depth in levels.order for of_row in levels.nodes(depth) for node in of_row]
    assert len(nodes) == sum(sizes), "every node is computed once"


def test_the_root_of_a_tree_is_its_pooled_vector(inspected):
    case = inspected("trees", "model=tree_lstm")
    states, pooled = case.stage("Hidden states of the nodes").content, case.stage("Pooled").content
    roots = states.values[np.arange(4), states.lengths - 1]
    np.testing.assert_allclose(roots, pooled.values, atol=1e-6)
    assert pooled.channels.tolist() == states.channels.tolist()


def test_a_row_that_never_reaches_the_limit_is_marked_by_its_end(inspected):
    case = inspected("words", "model=adaptive")
    case.task.model.threshold = 1e6
    stage = next(stage for stage in inspect_rows(case.task, case.rows, Decision()).stages if stage.title == "Halting")
    assert stage.content.marks == ["end"] * 4


@pytest.mark.parametrize(
    ("fields", "model", "may_pack"),
    [
        ("words", "lstm", True),
        ("words", "adaptive", True),
        ("words", "conv_lstm", False),
        ("words", "transformer", False),
        ("trees", "tree_lstm", False),
    ],
)
def test_only_networks_that_can_pack_speak_of_packed_sequences(inspected, fields, model, may_pack):
    stage = inspected(fields, f"model={model}").stage("Padded")
    assert stage.content.may_pack == may_pack and ("packed" in stage.text) == may_pack


def test_an_adaptive_network_shows_where_each_row_halts(inspected):
    case = inspected("words", "model=adaptive", "model.pooling=mean")
    network = case.task.model
    stage = case.stage("Halting")
    assert stage.content.marked.tolist() == (case.result.lengths - 1).tolist() and "No limit is set" in stage.note
    assert stage.content.marks == ["end"] * 4
    network.threshold = 0.1
    torch.nn.init.normal_(network.halting.outputs.weight, std=3.0)
    result = inspect_rows(case.task, case.rows, Decision())
    stage = next(stage for stage in result.stages if stage.title == "Halting")
    content = stage.content
    assert "at least 0.0952, the limit" in stage.note
    pooled = next(stage.content for stage in result.stages if stage.title == "Pooled rows")
    fields, lengths = batch_of(case)
    with torch.no_grad():
        outputs = network.encoder(network.embedding(fields), torch.from_numpy(lengths), lengths)[0]
        prefixes = outputs.cumsum(dim=1) / torch.arange(1, outputs.shape[1] + 1)[:, None]
        wrong = 1 - network.head(prefixes).softmax(dim=-1).amax(dim=-1)
        stops = torch.sigmoid(network.halting.outputs(outputs)[..., 0] - wrong.log()).tolist()
    for row, length in enumerate(lengths.tolist()):
        kept, halted, mark = 1.0, length - 1, "end"
        for token in range(length):
            kept *= 1 - stops[row][token]
            assert content.values[row, token] == pytest.approx(1 - kept, abs=1e-5)
            if kept <= np.exp(-0.1):
                halted, mark = token, "halts"
                break
        assert content.marked[row] == halted and content.marks[row] == mark
        np.testing.assert_allclose(pooled.values[row], outputs[row, : halted + 1].mean(dim=0), atol=1e-5)
    assert (content.marked < lengths - 1).any()


def test_the_members_of_an_ensemble_average_to_the_probabilities(inspected):
    case = inspected("words", "model=lstm", "model.members=3")
    members = case.stage("Members").content
    assert members.members.shape == (3, 4, 2)
    np.testing.assert_allclose(members.members.mean(axis=0), case.result.probabilities, atol=1e-6)


def test_a_threshold_decides_the_labels_shown(inspected):
    case = inspected("words", "model=lstm")
    decision = Decision().with_margin("min_recall", case.task.classes, -9.0, "k1")
    result = inspect_rows(case.task, case.rows, decision)
    assert result.predicted.tolist() == [1, 1, 1, 1]
    assert "k1 is predicted from a probability of 0.000123 on" in result.stages[-1].text


class Foreign(SequenceNetwork):
    """A network of another package, which counts tokens."""

    def __init__(self, classes, stages=None):
        super().__init__()
        self.linear = torch.nn.Linear(1, classes)
        if stages is not None:
            self.walkthrough_stages = stages

    def forward(self, fields, lengths, host_lengths):
        return self.linear(lengths[:, None].float())


def test_a_network_of_another_package_shows_its_inputs_and_logits(inspected):
    case = inspected("words", "model=lstm")
    case.task.model = Foreign(2)
    result = inspect_rows(case.task, case.rows, Decision())
    titles = ["Raw rows", "Encoded tokens", "Padded batch", "Logits", "Probabilities and labels"]
    assert [stage.title for stage in result.stages] == titles


def test_a_network_may_yield_stages_of_its_own(inspected):
    case = inspected("words", "model=lstm")
    extra = case.stage("Embedded")
    recorded = []

    def stages(calls, batch):
        recorded.append(calls.output("linear").shape)
        assert batch.lengths.tolist() == case.rows.sequences.lengths.tolist()
        yield extra

    case.task.model = Foreign(2, stages)
    result = inspect_rows(case.task, case.rows, Decision())
    assert extra in result.stages and recorded == [(4, 2)]
