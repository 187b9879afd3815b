"""The first non-finite value of a training is found at the module and in the rows that hold it, and nowhere else."""

import pyarrow as pa
import pytest
import torch
from torch import nn

from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder
from seqclf.training.debugging.finite_check import FiniteCheck

MARK = 777.0  # a number that only marked rows hold
ONE_BATCH = {"max_tokens": 10_000, "max_sequences": None, "overhead": None}


@pytest.fixture
def marked(splits):
    """The training split with two marked rows: the second value of their first token is `MARK`."""
    train = splits["train"]
    values = train.sequences.fields["value"].copy()
    rows = [4, 9]
    values[train.sequences.offsets[rows], 1] = MARK
    sequences = Ragged(train.sequences.offsets, {**train.sequences.fields, "value": values})
    ids = pa.array([f"card{row}" for row in range(len(train.labels))])
    return {**splits, "train": train._replace(sequences=sequences, ids=ids, row_numbers=train.row_numbers + 100)}


@pytest.fixture
def check(task, fit, marked, data_module):
    """`check(change_network, **settings)` trains with a FiniteCheck and returns the error line, None without one."""

    def run(change=lambda module: None, callback=None, splits=marked, model=None, **settings):
        module = task(model={"number_noise": 0.0, "dropout": 0.0, **(model or {})})
        change(module)
        trainer_settings = {
            "callbacks": [callback or FiniteCheck()],
            "max_epochs": 1,
            "enable_checkpointing": False,
            **settings,
        }
        try:
            fit(module, batching=ONE_BATCH, splits=splits, **trainer_settings)
        except InputError as error:
            return str(error)
        finally:
            assert_no_hooks(module)
        return None

    return run


def assert_no_hooks(module):
    for part in module.modules():
        assert not part._forward_hooks and not part._forward_pre_hooks and not part._backward_hooks
    assert not any(weight._backward_hooks for weight in module.parameters())


class Faulty(nn.Module):
    """Wraps a module and changes its first output by `change(values, inputs)`."""

    def __init__(self, inner, change):
        super().__init__()
        self.inner = inner
        self.change = change

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("inner"), name)

    def forward(self, *inputs):
        output = self.inner(*inputs)
        if isinstance(output, tuple):
            return self.change(output[0], inputs), *output[1:]
        return self.change(output, inputs)


def nan_in_marked_rows(tokens, inputs):
    """NaN in the first token of sequences whose embedding is marked, which is far larger than any other."""
    return torch.where(tokens.abs().amax(dim=-1, keepdim=True) > 100, float("nan"), tokens)


def test_a_sound_training_has_no_finding(check):
    callback = FiniteCheck()
    assert check(callback=callback) is None
    assert callback.batches == 2, "one of training and one of validation"


@pytest.mark.parametrize(("layout", "members"), [("padded", 1), ("packed", 2)])
def test_the_first_module_and_its_rows_are_named(check, layout, members):
    def change(task):
        network = task.model if members == 1 else task.model.members[1]
        network.embedding = Faulty(network.embedding, nan_in_marked_rows)

    line = check(change, model={"layout": layout, "members": members})
    name = "model.embedding" if members == 1 else "model.members.1.embedding"
    assert f"{name} (Faulty) is the first module with a non-finite output: NaN in 2 of " in line
    assert line.startswith("train, step 1: ")
    assert "row 104 (id card4)" in line and "row 109 (id card9)" in line


def test_an_operation_between_modules_is_named_by_the_module_after_it(check):
    class Divides(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, fields):
            marks = fields["value"][..., 1] == MARK
            return self.inner({**fields, "value": fields["value"] / (1 - marks.float())[..., None]})

    def change(task):
        task.model.embedding = Divides(task.model.embedding)

    line = check(change)
    assert "is made by an operation before model.embedding.inner (FieldEmbedding)" in line
    assert "Inf in 2 of " in line and "row 104 (id card4)" in line


def test_padding_may_hold_anything(check):
    def spoil_padding(tokens, inputs):
        inside = torch.arange(tokens.shape[1]) < inputs[1][:, None]
        return torch.where(inside[..., None], tokens, float("nan"))

    def change(task):
        task.model.encoder = Faulty(task.model.encoder, spoil_padding)

    assert check(change) is None


def test_padding_may_hold_anything_in_tensors_of_unknown_axes(check):
    class TimeFirst(nn.Module):
        """(T, B, D), with NaN in the padding, and NaN in marked rows if `armed`."""

        def __init__(self, armed):
            super().__init__()
            self.armed = armed
            self.inner = nn.Identity()

        def forward(self, tokens, lengths):
            inside = torch.arange(tokens.shape[1]) < lengths[:, None]
            tokens = torch.where(inside[..., None], tokens, float("nan"))
            if self.armed:
                tokens = nan_in_marked_rows(tokens, None)
            return self.inner(tokens.transpose(0, 1)).transpose(0, 1)

    class FieldEncoder(SequenceEncoder):
        def __init__(self, inner, armed):
            super().__init__()
            self.size, self.backward_size = inner.size, inner.backward_size
            self.time_first, self.encoder = TimeFirst(armed), inner

        def forward(self, tokens, lengths, host_lengths):
            tokens = self.time_first(tokens, lengths)
            inside = torch.arange(tokens.shape[1]) < lengths[:, None]
            return self.encoder(torch.where(inside[..., None], tokens, 0.0), lengths, host_lengths)

    def change(armed):
        return lambda task: setattr(task.model, "encoder", FieldEncoder(task.model.encoder, armed))

    assert check(change(armed=False)) is None
    line = check(change(armed=True))
    assert "model.encoder.time_first (TimeFirst) is the first module with a non-finite output: NaN in 2 of" in line
    assert "may come from NaN in the input of model.encoder.time_first.inner (Identity) before" in line
    assert "row 104 (id card4), row 109 (id card9)" in line


def test_numbers_that_are_not_finite_in_the_data_are_named_by_field_and_row(check, marked):
    train = marked["train"]
    values = train.sequences.fields["value"].copy()
    values[train.sequences.offsets[4]] = float("inf")
    sequences = Ragged(train.sequences.offsets, {**train.sequences.fields, "value": values})
    line = check(splits={**marked, "train": train._replace(sequences=sequences)})
    assert "the field value holds Inf in 1 of" in line and "row 104 (id card4); correct" in line


def test_weights_are_checked_before_the_first_step_and_after_each(check):
    def spoil(task):
        task.model.output.weight.data[0, 0] = float("nan")

    line = check(spoil)
    assert line.startswith(
        "before the first step of this training: the weight model.output.weight of model.output (Lin"
    )

    class Spoils(torch.optim.SGD):
        def step(self, closure=None):
            loss = super().step(closure)
            self.param_groups[0]["params"][0].data.fill_(float("inf"))
            return loss

    def spoil_step(task):
        task.configure_optimizers = lambda: Spoils(task.parameters(), lr=0.5)

    line = check(spoil_step)
    assert line.startswith("after step 1, whose gradients were finite: the weight model.embedding.layers.0.weight of")
    assert "holds Inf; lower optimizer.lr (now 0.01)" in line


def test_the_first_module_with_a_non_finite_gradient_is_named_with_its_rows(check):
    class Root(nn.Module):
        """sqrt(x²), finite everywhere. Its derivative at 0 is NaN: that of marked rows, which are set to 0."""

        def forward(self, tokens):
            zero = tokens.abs().amax(dim=-1, keepdim=True) > 100
            return ((tokens * ~zero) ** 2).sqrt()

    class Around(nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner, self.root = inner, Root()

        def forward(self, fields):
            return self.root(self.inner(fields))

    line = check(lambda task: setattr(task.model, "embedding", Around(task.model.embedding)))
    assert "model.embedding.root (Root) is the first module in the backward pass with a non-finite gradient" in line
    assert "NaN in 2 of" in line and "row 104 (id card4)" in line and "row 109 (id card9)" in line


def test_a_gradient_of_a_weight_alone_is_named_with_the_weight(check):
    class Scaled(nn.Module):
        """Adds the norm of its weights, whose derivative at 0 is NaN."""

        def __init__(self, inner):
            super().__init__()
            self.inner, self.scale = inner, nn.Parameter(torch.zeros(2))

        def forward(self, values):
            return self.inner(values) + (self.scale**2).sum().sqrt()

    line = check(lambda task: setattr(task.model, "norm", Scaled(task.model.norm)))
    assert "the gradient of the weight model.norm.scale of model.norm (Scaled) is the first: NaN" in line
    assert "derivative that is infinite at 0" in line


def test_a_loss_that_is_not_finite_is_named_with_its_rows(check):
    class Loss(nn.Module):
        def forward(self, logits, labels):
            costs = nn.functional.cross_entropy(logits, labels, reduction="none")
            return (costs / (labels != 2)).mean()

    line = check(lambda task: setattr(task, "loss", Loss()))
    assert "loss (Loss) is the first module with a non-finite output: Inf in " in line
    assert "in some of 60 rows of the batch: row 100" in line


def test_validation_is_checked_too(check, splits, marked):
    def change(task):
        def spoil(tokens, inputs):
            return tokens if task.training else tokens * float("inf")

        task.model.embedding = Faulty(task.model.embedding, spoil)

    line = check(change)
    assert line.startswith("validation, after step ") and "model.embedding (Faulty)" in line


def test_negative_infinity_is_a_finding_only_if_something_follows_from_it(check):
    class Mask(nn.Module):
        """Scores with -Inf for half of the channels, as a mask has them."""

        def __init__(self, inner, softmax):
            super().__init__()
            self.inner, self.hide, self.softmax = inner, Hide(), softmax

        def forward(self, values):
            hidden = self.hide(self.inner(values))
            return hidden.softmax(dim=-1) if self.softmax else hidden * 0

    class Hide(nn.Module):
        def forward(self, scores):
            return scores.masked_fill(torch.arange(scores.shape[-1]) < 4, float("-inf"))

    def change(softmax):
        return lambda task: setattr(task.model, "norm", Mask(task.model.norm, softmax))

    assert check(change(softmax=True)) is None
    line = check(change(softmax=False))
    assert "model.norm (Mask) is the first module with a non-finite output: NaN" in line
    assert "may come from -Inf in the output of model.norm.hide (Hide) before" in line
