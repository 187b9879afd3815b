"""A network with code of another package is tried before it is trained; one of this package is not."""

import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.training.foreign_network import check_foreign_network

HERE = __name__


class Tokenwise(nn.Module):
    """An encoder that reads each token alone."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.linear = nn.Linear(input_size, hidden_size)

    def forward(self, tokens, lengths, host_lengths):
        return self.linear(tokens), lengths, host_lengths


class Mixing(Tokenwise):
    """Lets a sequence read its padding, and its batch mates."""

    def forward(self, tokens, lengths, host_lengths):
        return self.linear(tokens + tokens.mean(dim=(0, 1))), lengths, host_lengths


class Branching(Tokenwise):
    """Depends on a value of a tensor, which no exported graph can."""

    def forward(self, tokens, lengths, host_lengths):
        return (self.linear(tokens) if tokens.sum() < 1e9 else tokens), lengths, host_lengths


class Broken(Tokenwise):
    def forward(self, tokens, lengths, host_lengths):
        return self.linear(tokens.transpose(1, 2)), lengths, host_lengths


@pytest.fixture
def with_encoder():
    """`with_encoder(task, "Tokenwise")`: a task with this encoder."""

    def make(task, name, members=1):
        built = task(model={"members": members})
        settings = {key: value for key, value in built.hparams["model"].items() if key not in LSTM_ONLY}
        description = {key: built.hparams[key] for key in ("dataset", "loss", "optimizer", "monitor", "seed")}
        return type(built)(model={**settings, "encoder": {"_target_": f"{HERE}.{name}"}}, **description)

    return make


LSTM_ONLY = ("cell", "layers", "bidirectional", "layout")


@pytest.mark.parametrize("members", [1, 2])
def test_an_encoder_that_leaves_padding_alone_gets_no_warning(task, with_encoder, members):
    checked = with_encoder(task, "Tokenwise", members).train()
    weights = {name: value.clone() for name, value in checked.state_dict().items()}
    assert check_foreign_network(checked, export=members == 1) == []
    assert checked.training and all(torch.equal(value, weights[name]) for name, value in checked.state_dict().items())


def test_an_encoder_that_mixes_sequences_is_named(task, with_encoder):
    (line,) = check_foreign_network(with_encoder(task, "Mixing"), export=False)
    assert line.startswith(f"model.encoder._target_={HERE}.Mixing: the logits of a sequence change by up to ")


def test_an_encoder_that_cannot_be_exported_is_refused_unless_nothing_is_exported(task, with_encoder):
    checked = with_encoder(task, "Branching")
    with pytest.raises(InputError, match=r"Branching: cannot be exported to ONNX: .*onnx_form.*export=false") as caught:
        check_foreign_network(checked, export=True)
    assert "\n" not in str(caught.value)
    assert check_foreign_network(checked, export=False) == []


def test_an_encoder_that_fails_is_named(task, with_encoder):
    with pytest.raises(InputError, match=r"^model\.encoder\._target_=.*Broken: fails on .* \(RuntimeError: "):
        check_foreign_network(with_encoder(task, "Broken"), export=True)


def test_networks_of_this_package_are_not_tried(task, monkeypatch):
    monkeypatch.setattr("seqclf.training.foreign_network.padding_error", None)
    assert check_foreign_network(task(), export=True) == []
