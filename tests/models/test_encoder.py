"""An encoder is a `_target_`, inside this package or outside of it, and gets its arguments by name."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.onnx.export import replace_modules

FIELDS: list[Any] = [{"name": "value", "kind": "number", "width": 3}]
COMMON = {"embedding_size": 6, "pooling": "last", "token_dropout": 0.0, "number_noise": 0.0}


class Halving(SequenceEncoder):
    """An encoder of another package: means of pairs of tokens, in both directions."""

    def __init__(self, input_size: int, width: int, dropout: float = 0.9):
        super().__init__()
        self.size, self.backward_size = 2 * width, width
        self.linear = nn.Linear(input_size, 2 * width)
        self.dropout = dropout

    def forward(self, tokens, lengths, host_lengths):
        inside = torch.arange(tokens.shape[1]) < lengths[:, None]
        tokens = nn.functional.pad(torch.where(inside[..., None], tokens, 0.0), (0, 0, 0, 1))
        pairs = tokens[:, :-1:2] + tokens[:, 1::2]
        return self.linear(pairs), (lengths + 1) // 2, None if host_lengths is None else (host_lengths + 1) // 2


class Scaling(SequenceEncoder):
    def __init__(self, input_size: int, factor: float, **others: Any):
        super().__init__()
        self.size, self.factor, self.others = input_size, factor, others

    def forward(self, tokens, lengths, host_lengths):
        return self.factor * tokens, lengths, host_lengths


class Sizeless(SequenceEncoder):
    def __init__(self, input_size: int):
        super().__init__()


def path(kind):
    return f"{kind.__module__}.{kind.__qualname__}"


def classifier(kind, block=(), **arguments):
    """Build a classifier with the encoder of a class, its arguments in the block or beside it."""
    encoder = {"_target_": path(kind), **dict(block)}
    return SequenceClassifier(FIELDS, 3, encoder=encoder, **{**COMMON, "dropout": 0.25, **arguments}).eval()


def test_the_block_of_the_encoder_comes_first():
    network = classifier(Halving, {"width": 5, "dropout": 0.5}, width=7)
    assert network.encoder.linear.out_features == 10 and network.encoder.dropout == 0.5


def test_an_encoder_that_takes_anything_gets_all_arguments_but_not_dropout():
    assert classifier(Scaling, factor=2.0, kernel=5).encoder.others == {"kernel": 5}


@pytest.mark.parametrize(
    ("kind", "block", "arguments", "message"),
    [
        (Halving, {"widht": 5}, {"width": 5}, "model.encoder.widht: no such argument of Halving; did you mean 'width'"),
        (Sizeless, {}, {}, "Sizeless: has no attribute size; set it to the channels of an output"),
        (int, {}, {}, "model.encoder._target_=builtins.int: is not a SequenceEncoder; derive it from seqclf.extend."),
    ],
)
def test_an_encoder_that_cannot_be_built_is_one_line(kind, block, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        classifier(kind, block, **arguments)


@pytest.mark.parametrize("pooling", ["last", "max", "mean+attention"])
def test_an_encoder_may_shorten_time(pooling):
    """Pooling reads the shortened outputs, so the logits still ignore padding."""
    network = classifier(Halving, width=5, pooling=pooling)
    lengths = np.array([1, 2, 9, 4])
    values = torch.randn(4, 12, 3)
    together = network({"value": values}, torch.from_numpy(lengths), lengths)
    for row, length in enumerate(lengths):
        one = lengths[row : row + 1]
        alone = network({"value": values[row : row + 1, :length]}, torch.from_numpy(one), one)
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-6)


class Form(nn.Module):
    def __init__(self, original):
        super().__init__()
        self.original, self.nested = original, nn.ModuleList([nn.Linear(2, 2), SequenceEncoder()])


class Nested(SequenceEncoder):
    def onnx_form(self):
        return Form(self)


def test_modules_are_replaced_wherever_they_are_nested():
    """The form of a module may hold that module, and others that are replaced in turn."""
    shared = Nested()
    network = nn.Sequential(nn.ModuleDict({"a": shared}), nn.ModuleList([shared, Nested()]))
    replace_modules(network)
    form = network[0]["a"]
    assert isinstance(form, Form) and network[1][0] is form, "one form of a module that is used twice"
    assert form.original is shared
    assert type(form.nested[1]) is SequenceEncoder, "by default an encoder is exported as it is"
    assert isinstance(network[1][1], Form)
