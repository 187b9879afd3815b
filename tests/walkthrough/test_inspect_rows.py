"""Stages of rows against independent computations: a pass over each row alone, packed sequences and members."""

from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils._pytree import tree_leaves

from seqclf.evaluation.decisions.decision import Decision
from seqclf.extend import SequenceNetwork
from seqclf.walkthrough.data_stages import active_rows
from seqclf.walkthrough.inspect_rows import inspect_rows

AUTO = ("numbers", "model=auto", "model.window=2", "model.dilations=[1]", "model.closed_form=false")
HALVING = ("mixed", "model=own_encoder", "model.encoder={_target_: support.halving_encoder.HalvingEncoder}")
STAGES = {
    AUTO: ["front (FrontEnd)", "heads.0.recurrent (Recurrent)", "heads.0 (RecurrentHead)", "heads.1 (KernelsHead)"],
    ("static", "model=auto"): ["front (FrontEnd)", "heads.0.static (StaticFields)", "heads.2 (StatisticsHead)"],
    ("words", "model=lstm"): ["embedding (FieldEmbedding)", "encoder (Recurrent)", "pooling (Pooling)"],
    ("words", "model=gru", "model.layers=2", "model.layout=packed", "model.pooling=last"): ["encoder (Recurrent)"],
    ("static", "model=lstm"): ["static (StaticFields)"],
    HALVING: ["embedding (FieldEmbedding)", "encoder (HalvingEncoder)"],
    ("words", "model=transformer", "model.heads=2"): ["encoder.blocks.0 (Block)", "encoder (Transformer)"],
    ("words", "model=adaptive"): ["encoder (Recurrent)", "output (Linear)", "halting (HaltingHead)"],
    ("trees", "model=tree_lstm"): ["embedding (FieldEmbedding)", "encoder (TreeLSTM)"],
    ("words", "model=lstm", "model.members=2"): ["encoder (Recurrent)"],
}


@pytest.fixture(scope="module", params=STAGES, ids=lambda model: " ".join(model))
def every(request, inspected):
    case = inspected(*request.param)
    assert set(STAGES[request.param]) <= set(case.titles) and "dropout (Dropout)" not in case.titles
    return case


def row_alone(case, row):
    """The fields and the length of a row without padding, as a batch of one row."""
    length = case.rows.sequences.lengths[row : row + 1]
    static = case.rows.sequences.static
    fields = {name: values if name in static else values[None] for name, values in case.rows.inputs(row).items()}
    tensors = {name: torch.from_numpy(values) for name, values in fields.items()}
    return {k: v if v.is_floating_point() else v.long() for k, v in tensors.items()}, torch.from_numpy(length), length


def test_the_logits_are_those_of_the_network_alone_with_each_row(every):
    logits = every.stage("Logits").values
    for row in range(len(every.rows)):
        with torch.inference_mode():
            np.testing.assert_allclose(logits[row], every.task.model(*row_alone(every, row))[0], atol=1e-5)
    np.testing.assert_allclose(every.stages[-1].values.sum(axis=1), 1, atol=1e-6)


def first_outputs(network, paths, batch):
    """The tensors in the first output of each module."""
    outputs = {}

    def keep(path, module, inputs, output):
        outputs.setdefault(path, tree_leaves(output))

    handles = [network.get_submodule(path).register_forward_hook(partial(keep, path)) for path in paths]
    with torch.inference_mode():
        network(*batch)
    for handle in handles:
        handle.remove()
    return outputs


def test_the_values_of_a_module_are_those_of_a_pass_over_each_row_alone(every):
    network = every.task.model.independent_parts()[0]
    for row in range(len(every.rows)):
        outputs = first_outputs(network, every.modules, row_alone(every, row))
        for path, stage in every.modules.items():
            values = stage.values[row]
            alone = next(each for each in outputs[path] if each.ndim == stage.values.ndim and each.numel())[0]
            np.testing.assert_allclose(values[: len(alone)], alone, atol=1e-5, err_msg=path)


def test_cells_are_real_values_of_the_channels_that_vary_most(every):
    for stage in every.modules.values():
        assert stage.shape.endswith(f"= ({', '.join(stage.axes)})") and stage.values.ndim == len(stage.axes)
        assert stage.text.endswith(".")
        *_, heats = stage.blocks
        for row, heat_map in enumerate(heats.maps):
            for line, (heading, cells) in enumerate(heat_map.rows):
                if stage.values.ndim == 2:
                    channels = [int(name.removeprefix("channel ")) - 1 for name in heat_map.headings]
                    numbers = stage.values[line, channels]
                else:
                    numbers = stage.values[row, : len(cells), int(heading.removeprefix("channel ")) - 1]
                assert [cell.text for cell in cells] == [f"{number:z.2f}" for number in numbers]


def test_windows_are_shorter_than_their_tokens(inspected):
    case = inspected(*AUTO)
    counts = [len(heat_map.headings) for heat_map in case.stage("heads.0.recurrent").blocks[-1].maps]
    assert counts == ((case.rows.sequences.lengths + 1) // 2).tolist()


def test_the_active_batch_sizes_are_those_of_a_packed_sequence(every):
    lengths = torch.from_numpy(every.rows.sequences.lengths)
    packed = pack_padded_sequence(torch.zeros(4, int(lengths.max()), 1), lengths, True, enforce_sorted=False)
    assert active_rows(lengths.numpy()).tolist() == packed.batch_sizes.tolist()
    *rows, active = (cells for _, cells in every.stage("Padded").blocks[0].maps[0].rows)
    assert [int(cell.text) for cell in active] == packed.batch_sizes.tolist()
    assert [sum(cell is not None for cell in row) for row in rows] == lengths.tolist()


def test_the_logits_of_an_ensemble_give_the_mean_probabilities(inspected):
    case = inspected("words", "model=lstm", "model.members=3")
    with torch.inference_mode():
        logits = [member(*row_alone(case, 0)) for member in case.task.model.members]
    np.testing.assert_allclose(case.stages[-1].values[:1], torch.stack(logits).softmax(-1).mean(0), atol=1e-6)
    assert "first of 3 networks" in case.stage("Logits").blocks[0].text


def test_a_threshold_decides_the_labels_shown(inspected):
    case = inspected("words", "model=lstm")
    decision = Decision().with_margin("min_recall", case.task.classes, -9.0, "k1")
    *_, last = inspect_rows(case.task, case.rows, decision)
    assert [cells[1] for cells in last.blocks[0].rows] == ["k1"] * 4
    assert last.text.endswith("The decision is min_recall: k1 is predicted from a probability of 0.000123 on.")


class Counter(SequenceNetwork):
    """A network of another package, which counts tokens, and changes the output of a part in place."""

    def __init__(self, classes):
        super().__init__()
        self.linear = torch.nn.Linear(1, 4)
        self.dropout = torch.nn.Dropout()
        self.last = torch.nn.Linear(4, classes)

    def forward(self, fields, lengths, host_lengths):
        return self.last(self.dropout(self.linear(lengths[:, None].float())).relu_())


def test_a_network_of_another_package_shows_its_parts(inspected):
    case = inspected("words", "model=lstm")
    case.task.model = Counter(2)
    stages = inspect_rows(case.task, case.rows, Decision())
    assert [stage.title for stage in stages[3:-2]] == ["linear (Linear)"], "dropout changes nothing"
    expected = case.task.model.linear(torch.from_numpy(case.rows.sequences.lengths)[:, None].float())
    np.testing.assert_allclose(stages[3].values, expected.detach(), atol=1e-6)


def test_a_stage_of_many_long_rows_has_a_limited_number_of_cells(inspected):
    case = inspected("words", "model=lstm", values=[{"x": [1] * 900}] * 50)
    for stage in case.stages:
        heats = [block for block in stage.blocks if hasattr(block, "maps")]
        assert sum(len(cells) for block in heats for one in block.maps for _, cells in one.rows) < 4100
    assert case.stage("encoder").blocks[-1].maps[-1].caption.endswith(": the first 10 of 900 tokens")
