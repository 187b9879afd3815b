"""A network that cannot be exported, or that reads padding, is named before it is trained."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.errors import InputError
from seqclf.models.network import SequenceNetwork
from seqclf.models.onnx.checks import TOLERANCE
from seqclf.training.network_checks import check_exportable, check_logits, padding_error

FIELDS: list[Any] = [{"name": "x", "kind": "number", "width": 4}]
KEY = "model._target_=mypkg.Net"
EXPORT = rf"^{KEY}: cannot be exported to ONNX: "
REMEDY = r"; compute with tensors .*, give that module an onnx_form \(see docs/extending\.md\), or set export=false$"


class Network(SequenceNetwork):
    """Linear layer, mean over the tokens, and whatever a subclass does with the tokens before."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"step": self.make()})
        self.linear = nn.Linear(4, 3)

    def make(self):
        return nn.Identity()

    def read(self, tokens, lengths, host_lengths):
        return self.inner["step"](tokens)

    def forward(self, fields, lengths, host_lengths):
        tokens = self.read(fields["x"], lengths, host_lengths)
        inside = (torch.arange(tokens.shape[1]) < lengths[:, None])[..., None]
        return self.linear(torch.where(inside, tokens, 0.0).sum(1) / lengths[:, None])


class Looping(Network):
    def make(self):
        return nn.GRUCell(4, 4)

    def read(self, tokens, lengths, host_lengths):
        outputs, hidden = [], tokens.new_zeros(tokens.shape[0], 4)
        for time in range(tokens.shape[1]):
            hidden = self.inner["step"](tokens[:, time], hidden)
            outputs.append(hidden)
        return torch.stack(outputs, dim=1)


class Branch(nn.Module):
    def forward(self, tokens):
        return tokens if tokens.sum() > 0 else 2 * tokens


class Branching(Network):
    def make(self):
        return Branch()


class Untranslatable(nn.Module):
    def forward(self, tokens):
        return tokens * torch.linalg.svdvals(tokens)[:, :1, None]


class Counting(Network):
    def read(self, tokens, lengths, host_lengths):
        return tokens / len(tokens)


class Unknown(Network):
    def make(self):
        return Untranslatable()


class Packing(Network):
    def make(self):
        return nn.LSTM(4, 4, batch_first=True)

    def read(self, tokens, lengths, host_lengths):
        packed = pack_padded_sequence(tokens, torch.from_numpy(host_lengths), batch_first=True, enforce_sorted=False)
        outputs = self.inner["step"](packed)[0]
        return pad_packed_sequence(outputs, batch_first=True, total_length=tokens.shape[1])[0]


@pytest.mark.parametrize(
    ("kind", "line"),
    [
        pytest.param(Looping, "the network fixes the number of sequences or tokens", marks=pytest.mark.soak),
        (Branching, r"inner\.step \(Branch\) fails \(\w+: .*\)"),
        (Counting, "the network fixes the number of sequences or tokens"),
        (Unknown, r"inner\.step \(Untranslatable\) fails \(\w+: No ONNX function found for .*_linalg_svd.*\)"),
    ],
)
def test_a_network_that_cannot_be_exported_is_one_line_with_the_module_and_the_remedy(kind, line, capfd):
    network = kind()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(InputError, match=EXPORT + line + REMEDY):
        check_exportable(network, FIELDS, KEY)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert network.training and capfd.readouterr() == ("", ""), "nothing but the line"


class Swapped(Network):
    def make(self):
        step: Any = nn.Identity()
        step.onnx_form = lambda: nn.Tanh()
        return step


def test_a_form_that_computes_something_else_is_refused():
    with pytest.raises(InputError, match=rf"^{KEY}: the exported network has other logits on .* of up to .* tokens"):
        check_exportable(Swapped(), FIELDS, KEY)


class Halving(Network):
    """Its output length, by which it divides, is 0 for one token."""

    def forward(self, fields, lengths, host_lengths):
        halves = lengths // 2
        inside = (torch.arange(fields["x"].shape[1]) < halves[:, None])[..., None]
        return self.linear(torch.where(inside, fields["x"], 0.0).sum(1) / halves[:, None])


def test_logits_that_are_not_finite_are_named_by_the_length_of_their_sequence():
    with pytest.raises(InputError, match="sequence of 1 tokens are not finite"):
        padding_error(Halving(), FIELDS, KEY)
    assert padding_error(Halving(), FIELDS, KEY, shortest=2) < 0.1 * TOLERANCE


class Returning(Network):
    def __init__(self, make):
        super().__init__()
        self.make_logits = make

    def forward(self, fields, lengths, host_lengths):
        return self.make_logits(super().forward(fields, lengths, host_lengths))


@pytest.mark.parametrize(
    ("make", "returned"),
    [
        (lambda logits: logits[:, :1], r"a tensor \(4, 1\) of float32"),
        (lambda logits: logits[None], r"a tensor \(1, 4, 3\) of float32"),
        (lambda logits: logits.argsort(), r"a tensor \(4, 3\) of int64"),
        (lambda logits: (logits, None), "a tuple"),
    ],
)
def test_logits_of_another_shape_or_type_are_one_line(make, returned):
    with pytest.raises(InputError, match=rf"^{KEY}: returns {returned} for 4 sequences; return logits \(4, 3\)$"):
        check_logits(Returning(make), FIELDS, 3, KEY)
    check_logits(Returning(torch.Tensor.double), FIELDS, 3, KEY)


@pytest.mark.parametrize("kind", [Network, Looping, Packing])
def test_a_network_that_ignores_padding_has_no_error_but_rounding(kind):
    network = kind()
    assert padding_error(network, FIELDS) < 0.1 * TOLERANCE
    assert network.training, "the mode of the network stays"


def test_the_built_in_network_ignores_padding_in_training_mode_too(net):
    """Its dropout must not count."""
    network = net(dropout=0.5, number_noise=0.5, bidirectional=True).train()
    network.encoder.eval()
    fields = [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 3}]
    assert padding_error(network, fields) < 0.1 * TOLERANCE
    assert network.training and not network.encoder.training
