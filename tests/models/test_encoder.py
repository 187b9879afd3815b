"""An encoder is a `_target_`, inside this package or outside of it, and gets its arguments by name."""

import re
from typing import Any

import pytest
from models.checks import check_exactness, check_gradients_of_tokens, exported, max_error
from support.halving_encoder import HalvingEncoder
from torch import nn

from seqclf.errors import InputError
from seqclf.models.classifier import EncoderClassifier, SequenceEncoder
from seqclf.models.onnx.exporter import export_step, replace_modules

FIELDS: list[Any] = [{"name": "value", "kind": "number", "width": 3}]
COMMON = {"embedding_size": 6, "pooling": "last", "token_dropout": 0.0, "number_noise": 0.0}


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
    encoder = {"_target_": path(kind), **dict(block)}
    return EncoderClassifier(FIELDS, 3, encoder=encoder, **{**COMMON, "dropout": 0.25, **arguments}).eval()


def test_the_block_of_the_encoder_comes_first():
    network = classifier(HalvingEncoder, {"hidden_size": 5, "dropout": 0.5}, hidden_size=7)
    assert network.encoder.linear.out_features == 10 and network.encoder.dropout == 0.5


def test_an_encoder_that_takes_anything_gets_all_arguments_but_not_dropout():
    assert classifier(Scaling, factor=2.0, kernel=5).encoder.others == {"kernel": 5}


@pytest.mark.parametrize(
    ("kind", "block", "arguments", "message"),
    [
        (
            HalvingEncoder,
            {"hiden_size": 5},
            {},
            "HalvingEncoder.__init__() got an unexpected keyword argument 'hiden_size'",
        ),
        (Sizeless, {}, {}, "Sizeless: has no attribute size; set it to the channels of an output"),
        (int, {}, {}, "model.encoder._target_=builtins.int: is not a SequenceEncoder; derive it from seqclf.extend."),
    ],
)
def test_an_encoder_that_cannot_be_built_is_one_line(kind, block, arguments, message):
    with pytest.raises(InputError, match=re.escape(message)):
        classifier(kind, block, **arguments)


@pytest.mark.parametrize("pooling", ["last", "max", "mean+attention"])
def test_an_encoder_may_shorten_the_sequences(inputs, pooling):
    """Pooling reads the shortened outputs, so the logits still ignore padding and batch mates."""
    check_exactness(classifier(HalvingEncoder, hidden_size=5, pooling=pooling), inputs)


def test_the_padding_of_an_encoder_that_shortens_gets_no_gradient():
    check_gradients_of_tokens(HalvingEncoder(3, hidden_size=5))


def test_an_encoder_that_shortens_is_exported_without_a_step(tmp_path):
    model = classifier(HalvingEncoder, hidden_size=5, pooling="last+max")
    session = exported(model, tmp_path / "model.onnx", FIELDS)
    cases = [([1], 1), ([2], 2), ([1, 7, 3], 7), ([33, 4, 8, 32, 1], 40), ([700], 700)]
    assert max_error(model, session, FIELDS, cases) < 1e-5
    assert export_step(model, FIELDS, tmp_path / "step.onnx") is None


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
