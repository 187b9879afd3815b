"""Any recurrent cell in training, in ONNX and chunk by chunk, against each other and against PyTorch's GRU."""

import copy

import numpy as np
import onnx
import pytest
import torch
from models.checks import eager, exported, open_session
from support.random_batches import draw
from support.recurrent_cells import CELLS
from torch import nn
from torch.nn.utils import parametrizations
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.bundle.step_model import StepModel, read_chunks
from seqclf.errors import InputError
from seqclf.extend import CellEncoder, RecurrentCell, State
from seqclf.models.adaptive import AdaptiveClassifier
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.onnx.checks import logit_error
from seqclf.models.onnx.exporter import example_inputs, export_onnx, export_step
from seqclf.models.rnn.decay_cells import DecayGRU, TimeLSTM

# Names that the exporter gives to values inside the body of a Scan.
FIELDS = [
    {"name": "sigmoid", "kind": "category", "size": 12},
    {"name": "linear_2", "kind": "number", "width": 3, "scaled": [True, False, True]},  # value, mask, elapsed time
]
OF_FIELDS = {"t_lstm": TimeLSTM, "gru_d": DecayGRU}  # cells that read a field beside the tokens
NAMED = {TimeLSTM: {"gap": "linear_2"}, DecayGRU: {"field": "linear_2"}}  # their arguments
TOLERANCE = 1e-6
PLAIN = {"embedding_size": 6, "hidden_size": 8, "dropout": 0.0, "token_dropout": 0.0, "number_noise": 0.0}


def path(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def settings(kind, **arguments):
    cell = {"_target_": path(kind), **NAMED.get(kind, {}), **arguments}
    return {"_target_": "seqclf.extend.CellEncoder", "cell": cell}


def network(kind, base=EncoderClassifier, **options):
    """A network in evaluation mode whose encoder runs a cell. No weight is at a special value, such as 0."""
    torch.manual_seed(1)
    built = base(FIELDS, 4, encoder=settings(kind), **{**PLAIN, "pooling": "last+max", **options}).eval()
    with torch.no_grad():
        for weight in built.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return built


def step_model(model, file):
    step = export_step(model, FIELDS, file)
    return StepModel(open_session(file), [state._asdict() for state in step.states], FIELDS, 4, step.more_outputs)


def rows_alone(model, inputs):
    rows = []
    for row, length in enumerate(inputs["lengths"]):
        alone = {name: values[row : row + 1] for name, values in inputs.items()}
        alone = {name: values if name == "lengths" else values[:, :length] for name, values in alone.items()}
        rows.append(eager(model, alone)[0])
    return np.stack(rows)


def compare(kind, layers, bidirectional, batches, folder):
    """Compare ONNX, chunks and rows alone to the eager network, on random batches."""
    model = network(kind, layers=layers, bidirectional=bidirectional)
    precise = copy.deepcopy(model).double()
    session = exported(model, folder / "model.onnx", FIELDS)
    graph = onnx.load(folder / "model.onnx").graph
    scans = [node for node in graph.node if node.op_type == "Scan"]
    assert len(scans) == layers * (1 + bidirectional), "one for each layer and direction"
    steps = None if bidirectional else step_model(model, folder / "step.onnx")
    generator = np.random.default_rng(0)
    for number in range(batches):
        inputs = draw(FIELDS, generator, number)
        expected = eager(model, inputs)
        assert np.isfinite(expected).all()
        assert logit_error(session.run(["logits"], inputs)[0], expected) <= TOLERANCE
        # In float64, because float32 rounds products of one row and of several differently.
        wide = {**inputs, "linear_2": inputs["linear_2"].astype(np.float64)}
        assert logit_error(rows_alone(precise, wide), eager(precise, wide)) <= 1e-12
        if steps is not None:
            fields = {name: values for name, values in inputs.items() if name != "lengths"}
            chunk = int(generator.integers(1, 9))
            assert logit_error(read_chunks(steps, fields, inputs["lengths"], chunk).logits, expected) <= TOLERANCE


@pytest.mark.parametrize(
    ("name", "layers", "bidirectional"),
    [
        ("gru", 1, True),
        ("matrix", 1, False),
        ("gru_d", 1, False),
        pytest.param("t_lstm", 1, False, marks=pytest.mark.slow),
    ],
)
def test_onnx_chunks_and_rows_alone_equal_the_network(name, layers, bidirectional, tmp_path):
    compare({**CELLS, **OF_FIELDS}[name], layers, bidirectional, 8, tmp_path)


@pytest.mark.soak  # the quick tests check fewer batches
@pytest.mark.parametrize("name", [*CELLS, *OF_FIELDS])
@pytest.mark.parametrize(("layers", "bidirectional"), [(3, True), (1, False)])
def test_onnx_chunks_and_rows_alone_equal_the_network_on_60_batches(name, layers, bidirectional, tmp_path):
    compare({**CELLS, **OF_FIELDS}[name], layers, bidirectional, 60, tmp_path)


class Orthogonal(RecurrentCell):
    """A cell whose recurrent weight is computed as orthogonal, by a function that ONNX lacks."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,))]
        self.inputs = parametrizations.weight_norm(nn.Linear(input_size, hidden_size))
        self.recurrent = parametrizations.orthogonal(nn.Linear(hidden_size, hidden_size, bias=False))

    def step(self, inputs, state):
        hidden = (self.inputs(inputs) + self.recurrent(state["hidden"])).tanh()
        return hidden, {"hidden": hidden}


def test_a_cell_whose_weights_are_computed_is_exported_and_still_computes_them(tmp_path):
    compare(Orthogonal, 2, False, 2, tmp_path)  # the step is exported after the whole network
    weights = {weight.name: weight.dims for weight in onnx.load(tmp_path / "model.onnx").graph.initializer}
    assert sum(name.endswith("recurrent.weight") for name in weights) == 2, "one constant for each layer"


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_gru_cell_equals_the_gru_of_torch(bidirectional):
    options = {"hidden_size": 8, "layers": 2, "bidirectional": bidirectional, "dropout": 0.0}
    encoder = CellEncoder(5, cell={"_target_": path(CELLS["gru"])}, **options)
    oracle = nn.GRU(5, 8, 2, batch_first=True, bidirectional=bidirectional)
    for cells, suffix in ((encoder.forward_cells, ""), (encoder.backward_cells, "_reverse")):
        for layer, cell in enumerate(cells):
            for name, weight in cell.cell.named_parameters():
                weight.data.copy_(getattr(oracle, f"{name}_l{layer}{suffix}"))
    lengths = np.array([7, 1, 4])
    tokens = torch.randn(3, 9, 5)
    packed = pack_padded_sequence(tokens, torch.from_numpy(lengths), batch_first=True, enforce_sorted=False)
    expected = pad_packed_sequence(oracle(packed)[0], batch_first=True, total_length=9)[0]
    outputs, _, _ = encoder(tokens, torch.from_numpy(lengths), lengths)
    for row, length in enumerate(lengths):
        torch.testing.assert_close(outputs[row, :length], expected[row, :length], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", CELLS)
def test_gradients_are_finite_and_independent_of_padding_that_is_nan(name, dtype):
    encoder = CellEncoder(5, cell={"_target_": path(CELLS[name])}, hidden_size=8, layers=2, dropout=0.0)
    lengths = np.array([6, 2, 1])
    tokens = torch.randn(3, 6, 5)
    gradients = []
    for padding in (0.0, torch.nan):
        padded = tokens.clone()
        for row, length in enumerate(lengths):
            padded[row, length:] = padding
        padded.requires_grad_()
        with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
            outputs, _, _ = encoder(padded, torch.from_numpy(lengths), lengths)
        sum(outputs[row, :length].float().sum() for row, length in enumerate(lengths)).backward()
        gradients.append([padded.grad, *(weight.grad.clone() for weight in encoder.parameters())])
        encoder.zero_grad()
    for clean, of_nan in zip(*gradients, strict=True):
        assert of_nan.isfinite().all() and torch.equal(clean, of_nan)
    assert not gradients[0][0][1, 2:].any(), "padding has no gradient"


@pytest.mark.parametrize("kind", [TimeLSTM, DecayGRU])
def test_gradients_are_independent_of_fields_whose_padding_is_nan(kind):
    model = network(kind, layers=2, bidirectional=True)
    inputs = example_inputs(FIELDS, np.array([6, 2, 1]), 6, np.random.default_rng(0))
    gradients = []
    for padding in (0.0, np.nan):
        for row, length in enumerate(inputs["lengths"]):
            inputs["linear_2"][row, length:] = padding
        tensors = {name: torch.from_numpy(values.copy()) for name, values in inputs.items()}
        embedded = torch.ones(3, 6, model.embedding.size)
        lengths = tensors["lengths"]
        outputs, _, _ = model.encoder(embedded, lengths, inputs["lengths"], linear_2=tensors["linear_2"])
        sum(outputs[row, :length].sum() for row, length in enumerate(inputs["lengths"])).backward()
        gradients.append([weight.grad.clone() for weight in model.encoder.parameters()])
        model.zero_grad()
    for clean, of_nan in zip(*gradients, strict=True):
        assert of_nan.isfinite().all() and torch.equal(clean, of_nan)


def test_a_time_lstm_equals_its_formula():
    torch.manual_seed(0)
    cell = TimeLSTM(3, 4, gap="at")
    torch.nn.init.normal_(cell.rate)
    torch.nn.init.normal_(cell.offset)
    tokens, gaps = torch.randn(5, 3), torch.randn(5, 2)
    hidden = memory = np.zeros(4)
    state = {"hidden": torch.zeros(1, 4), "memory": torch.zeros(1, 4)}
    of_cell = {name: weight.detach().double().numpy() for name, weight in cell.named_parameters()}
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    for token, gap in zip(tokens, gaps, strict=True):
        short = np.tanh(of_cell["short_term.weight"] @ memory + of_cell["short_term.bias"])
        kept = sigmoid(of_cell["offset"] - np.log1p(np.exp(of_cell["rate"])) * float(gap[0]))
        adjusted = memory - short + kept * short
        gates = of_cell["lstm.weight_ih"] @ token.double().numpy() + of_cell["lstm.weight_hh"] @ hidden
        enter, forget, new, leave = np.split(gates + of_cell["lstm.bias_ih"] + of_cell["lstm.bias_hh"], 4)
        memory = sigmoid(forget) * adjusted + sigmoid(enter) * np.tanh(new)
        hidden = sigmoid(leave) * np.tanh(memory)
        output, state = cell.step(token[None], state, gap[None])
        np.testing.assert_allclose(output.detach()[0], hidden, atol=1e-5)
    np.testing.assert_allclose(state["memory"].detach()[0], memory, atol=1e-5)


def test_gru_d_lets_missing_numbers_decay_to_the_mean_and_ignores_what_stands_in_their_place():
    specs = [{"name": "x", "kind": "number", "width": 6, "scaled": [True, True, False, False, True, True]}]
    cell = DecayGRU(3, 4, field="x", field_specs=specs)
    seen = {}
    cell.gru.register_forward_pre_hook(lambda module, arguments: seen.update(inputs=arguments[0], hidden=arguments[1]))
    state = {"hidden": torch.ones(1, 4), "last": torch.tensor([[2.0, -3.0]])}
    # The first number is missing for 1.5 deviations longer than usual, the second is there.
    _, after = cell.step(torch.zeros(1, 3), state, torch.tensor([[9.0, 7.0, 0.0, 1.0, 1.5, 0.2]]))
    assert after["last"].tolist() == [[2.0, 7.0]]
    inputs = seen["inputs"][0]
    assert inputs[3].item() == pytest.approx(2.0 * np.exp(-(0.5 * 1.5 + 0.5))) and inputs[4:].tolist() == [7.0, 0, 1]
    weight, bias = (part.detach().numpy() for part in (cell.hidden_decay.weight, cell.hidden_decay.bias))
    expected = np.exp(-np.maximum(weight @ np.array([1.5, 0.2], np.float32) + bias, 0))
    np.testing.assert_allclose(seen["hidden"].detach()[0], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("cell", "where", "problem"),
    [
        ({"_target_": path(TimeLSTM), "gap": "at"}, "cell.gap=at", "the data has no such field"),
        ({"_target_": path(TimeLSTM), "gap": "sigmoid"}, "cell.gap=sigmoid", "is a field of kind category"),
        ({"_target_": path(DecayGRU), "field": "sigmoid"}, "cell.field=sigmoid", "is a field of kind category"),
        ({"_target_": path(DecayGRU), "field": "plain"}, "cell.field=plain", "is not a field of scaled numbers"),
    ],
)
def test_a_field_that_a_cell_cannot_read_is_one_line_with_its_name_and_key(cell, where, problem):
    specs = [*FIELDS, {"name": "plain", "kind": "number", "width": 3, "scaled": [True] * 3}]
    with pytest.raises(InputError) as error:
        CellEncoder(9, cell=cell, field_specs=specs)
    assert error.value.where == f"model.encoder.{where}" and error.value.problem.startswith(problem)


class Named(RecurrentCell):
    """A cell whose class names a field, which has the name of an argument of the encoder."""

    fields = ("tokens",)

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,))]
        self.linear = nn.Linear(input_size, hidden_size)

    def step(self, inputs, state, tokens):
        hidden = state["hidden"] + self.linear(inputs) * tokens[:, :1]
        return hidden, {"hidden": hidden}


def test_a_field_may_have_the_name_of_an_argument():
    cell = {"_target_": path(Named)}
    fields = [{"name": "tokens", "kind": "number", "width": 1}]
    model = EncoderClassifier(fields, 3, encoder={"_target_": "seqclf.extend.CellEncoder", "cell": cell}).eval()
    lengths = np.array([2, 1])
    assert model({"tokens": torch.ones(2, 2, 1)}, torch.from_numpy(lengths), lengths).shape == (2, 3)
    with pytest.raises(InputError) as error:
        network(Named)
    assert error.value.where == f"model.encoder.cell._target_={path(Named)}.fields=tokens"


def test_the_step_has_the_states_of_all_layers():
    step = network(CELLS["matrix"], layers=2, bidirectional=False).streaming()
    assert [tuple(state) for state in step.states[:6]] == [
        (f"{name}_{layer}", shape, initial)
        for layer in (0, 1)
        for name, shape, initial in (("memory", (8, 4), 0.0), ("count", (), 1.0), ("hidden", (8,), 0.0))
    ]
    assert network(CELLS["gru"]).streaming() is None, "the backward direction starts at the end"


@pytest.mark.parametrize("kind", [CELLS["matrix"], pytest.param(DecayGRU, marks=pytest.mark.slow)])
def test_an_adaptive_network_reads_a_cell_chunk_by_chunk(kind, tmp_path):
    model = network(kind, AdaptiveClassifier, bidirectional=False)
    model.threshold.fill_(0.8)
    inputs = example_inputs(FIELDS, np.array([9, 1, 21, 21]), 21, np.random.default_rng(0))
    expected = eager(model, inputs)
    fields = {name: values for name, values in inputs.items() if name != "lengths"}
    read = read_chunks(step_model(model, tmp_path / "step.onnx"), fields, inputs["lengths"], 4)
    assert logit_error(read.logits, expected) <= TOLERANCE
    with pytest.raises(InputError, match=r"model\.bidirectional=true: an adaptive model reads each sequence once"):
        network(CELLS["gru"], AdaptiveClassifier)


class Wrong(RecurrentCell):
    """A cell with one state, whose mistake a subclass makes."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.states = [State("hidden", (hidden_size,))]
        self.linear = nn.Linear(input_size, hidden_size)

    def step(self, inputs, state):
        hidden = self.linear(inputs) + state["hidden"]
        return hidden, {"hidden": hidden}


class Unnamed(Wrong):
    def step(self, inputs, state):
        return state["hidden"], {"memory": state["hidden"]}


class InPlace(Wrong):
    def step(self, inputs, state):
        state["hidden"] += self.linear(inputs)
        return state["hidden"], {"hidden": state["hidden"]}


class Branching(Wrong):
    def step(self, inputs, state):
        if inputs.sum() > 0:
            return super().step(inputs, state)
        return state["hidden"], {"hidden": state["hidden"]}


class Guarded(Wrong):
    def step(self, inputs, state):
        if inputs.isnan().any():
            raise ValueError("NaN")
        return super().step(inputs, state)


class Constant(Wrong):
    def step(self, inputs, state):
        hidden = self.linear(inputs) * torch.tensor(0.5)
        return hidden, {"hidden": hidden}


class Squeezing(Wrong):
    def step(self, inputs, state):
        hidden = self.linear(inputs).squeeze()
        return hidden, {"hidden": hidden}


class Random(Wrong):
    def step(self, inputs, state):
        hidden = nn.functional.dropout(self.linear(inputs) + 1)
        return hidden, {"hidden": hidden}


class WithoutField(Wrong):
    fields = ("linear_2",)


class FromMinusInfinity(Wrong):
    def __init__(self, input_size, hidden_size):
        super().__init__(input_size, hidden_size)
        self.states = [State("hidden", (hidden_size,), -np.inf)]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Squeezing, r"returns the output as \(\(8,\), torch.float32\) for 1 tokens"),
        (Unnamed, r"step returns the output, state memory, not the output, state hidden; write step"),
        (InPlace, r"step changes an argument in place; return a new tensor"),
        (WithoutField, r"step fails on 3 tokens \(TypeError: .*; write step\(self, inputs, state, linear_2\)"),
        (Branching, r"other results for a row alone than in a batch; compute each row alone: torch\.where"),
        (Random, r"other results for a row alone than in a batch; .*nn\.Dropout"),
        (nn.GRUCell, r"is not a RecurrentCell"),
        (FromMinusInfinity, r"has the attribute states .*-inf.*; set it to a list .* a finite number"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_in_a_cell_is_one_line_that_names_the_cell(kind, message):
    with pytest.raises(InputError, match=message) as error:
        CellEncoder(9, cell={"_target_": path(kind)}, hidden_size=8, field_specs=FIELDS)
    assert error.value.where == f"model.encoder.cell._target_={path(kind)}" and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        (Guarded, r"step of Guarded fails \(Data-dependent.*torch\.where"),
        (Constant, r"encoder \(CellEncoder\) fails .*instead of torch\.tensor\(0\.5\)"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_cell_that_cannot_be_exported_is_one_line_with_the_remedy(kind, line, tmp_path):
    with pytest.raises(InputError, match=line) as error:
        export_onnx(network(kind), FIELDS, tmp_path / "model.onnx")
    assert "\n" not in str(error.value) and list(tmp_path.iterdir()) == []


def test_cells_are_built_without_memory_as_a_checkpoint_is_read():
    with torch.device("meta"):
        built = EncoderClassifier(FIELDS, 4, encoder=settings(TimeLSTM), **PLAIN)
    assert all(weight.is_meta for weight in built.parameters())
