"""A network with code of another package is tried before it is trained; one of this package is not."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from seqclf.data.ragged import Ragged
from seqclf.errors import InputError
from seqclf.extend import MaskedLSTM, SequenceEncoder
from seqclf.runs.training_run import shortest_tokens
from seqclf.training.network_checks import check_foreign_network, check_trained_network

HERE = __name__


class Tokenwise(SequenceEncoder):
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


class PlainBackward(Tokenwise):
    """The backward direction starts in the padding."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.lstm = nn.LSTM(input_size, hidden_size // 2, batch_first=True, bidirectional=True)

    def forward(self, tokens, lengths, host_lengths):
        return self.lstm(tokens)[0], lengths, host_lengths


class Packed(PlainBackward):
    def forward(self, tokens, lengths, host_lengths):
        return self.read_packed(tokens, host_lengths), lengths, host_lengths

    def read_packed(self, tokens, lengths):
        packed = pack_padded_sequence(tokens, torch.from_numpy(lengths), batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])[0]


class PackedTooLong(Packed):
    def forward(self, tokens, lengths, host_lengths):
        return self.read_packed(tokens, np.full(len(tokens), tokens.shape[1])), lengths, host_lengths


class OwnRecurrent(Tokenwise):
    """A recurrent layer of seqclf, as the remedy says."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.lstm = MaskedLSTM(input_size, hidden_size, bidirectional=True)
        self.size, self.backward_size = self.lstm.size, self.lstm.backward_size

    def forward(self, tokens, lengths, host_lengths):
        return self.lstm(tokens, lengths)[0], lengths, host_lengths


class FinalState(Tokenwise):
    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.gru = nn.GRU(input_size, hidden_size, batch_first=True)

    def forward(self, tokens, lengths, host_lengths):
        return self.gru(tokens)[1].transpose(0, 1), lengths.clamp(max=1), host_lengths


class PlainForward(FinalState):
    """The outputs at tokens know no padding, and nothing uses the final state."""

    def forward(self, tokens, lengths, host_lengths):
        return self.gru(tokens)[0], lengths, host_lengths


class Unmasked(Tokenwise):
    """The window of the last token reaches into the padding."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.convolution = nn.Conv1d(input_size, hidden_size, 3, padding="same")

    def forward(self, tokens, lengths, host_lengths):
        return self.convolution(tokens.mT).mT, lengths, host_lengths


class Overflowing(Tokenwise):
    def forward(self, tokens, lengths, host_lengths):
        return self.linear(tokens / (lengths == tokens.shape[1])[:, None, None]), lengths, host_lengths


class AtLeastThree(Tokenwise):
    """Fails on a batch of shorter sequences."""

    def forward(self, tokens, lengths, host_lengths):
        return self.linear(tokens.unfold(1, 3, 1)[..., 0]), (lengths - 2).clamp(min=1), host_lengths


@pytest.mark.parametrize("members", [1, 2])
def test_an_encoder_that_leaves_padding_alone_is_accepted(with_encoder, members):
    checked = with_encoder(f"{HERE}.Tokenwise", members).train()
    weights = {name: value.clone() for name, value in checked.state_dict().items()}
    check_foreign_network(checked, export=False)
    assert checked.training and all(torch.equal(value, weights[name]) for name, value in checked.state_dict().items())


READING_PADDING = {  # encoder → whether it has a recurrent layer of PyTorch
    "Mixing": False,
    "PlainBackward": True,
    "FinalState": True,
    "Unmasked": False,
    "PackedTooLong": True,  # it cannot be exported either, which must not be the error
}


@pytest.mark.parametrize(("name", "members"), [*((name, 1) for name in READING_PADDING), ("PlainBackward", 2)])
def test_an_encoder_that_reads_padding_is_rejected(with_encoder, name, members):
    checked = with_encoder(f"{HERE}.{name}", members).train()
    weights = {name: value.clone() for name, value in checked.state_dict().items()}
    with pytest.raises(InputError) as caught:
        check_foreign_network(checked, export=True)
    assert caught.value.where == f"model.encoder._target_={HERE}.{name}"
    assert caught.value.problem.startswith("the logits of a sequence change by up to ")
    masked = "MaskedLSTM or MaskedGRU, called as layer(tokens, lengths)"
    assert (masked in caught.value.remedy) == READING_PADDING[name]
    assert checked.training and all(torch.equal(value, weights[name]) for name, value in checked.state_dict().items())


@pytest.mark.parametrize(("name", "export"), [("PlainForward", False), ("Packed", False), ("OwnRecurrent", True)])
def test_an_encoder_whose_outputs_at_tokens_are_right_is_accepted(with_encoder, name, export):
    check_foreign_network(with_encoder(f"{HERE}.{name}"), export)


def test_packed_tokens_are_rejected_with_the_layer_unless_nothing_is_exported(with_encoder):
    line = r"Packed: cannot be exported to ONNX: encoder\.lstm \(LSTM\) .*; use seqclf\.extend\.MaskedLSTM .*=false$"
    with pytest.raises(InputError, match=line):
        check_foreign_network(with_encoder(f"{HERE}.Packed"), export=True)


def test_padding_that_makes_logits_infinite_is_rejected(with_encoder):
    with pytest.raises(InputError, match=r"Overflowing: the logits of a sequence change by up to "):
        check_foreign_network(with_encoder(f"{HERE}.Overflowing"), export=False)


def test_a_network_is_exported_by_its_trained_weights(task, with_encoder):
    checked = with_encoder(f"{HERE}.PlainBackward", members=2)
    with pytest.raises(InputError, match="the logits of a sequence change by up to "):
        check_trained_network(checked)
    with torch.no_grad():
        for member in checked.model.members:
            for weight in member.encoder.lstm.parameters():
                weight.zero_()
    check_trained_network(checked)
    check_trained_network(task())


def test_a_network_is_tried_on_sequences_as_long_as_those_of_the_data(with_encoder, random_split):
    checked, split = with_encoder(f"{HERE}.AtLeastThree"), random_split(2, 0)
    splits = {length: split._replace(sequences=Ragged(np.array([0, 9, 9 + length]), {})) for length in (2, 3, 4)}
    with pytest.raises(InputError, match=r"AtLeastThree: fails on 1 sequences of 2 tokens "):
        check_foreign_network(checked, False, shortest_tokens(splits))
    check_foreign_network(checked, False, shortest_tokens({4: splits[4], 3: splits[3]}))


def test_networks_of_this_package_are_not_tried(task, monkeypatch):
    monkeypatch.setattr("seqclf.training.network_checks.require_padding_ignored", None)
    check_foreign_network(task(), export=True)


class Hidden(SequenceEncoder):
    """An encoder whose layer is in a plain list, which PyTorch does not register."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__()
        self.size = hidden_size
        self.layers = [nn.Linear(input_size, hidden_size)]

    def forward(self, tokens, lengths, host_lengths):
        return self.layers[0](tokens), lengths, host_lengths


class Shared(Hidden):
    """Keeps a registered layer in a list too."""

    def __init__(self, input_size, *, hidden_size):
        super().__init__(input_size, hidden_size=hidden_size)
        self.registered = self.layers[0]


@pytest.mark.parametrize("members", [1, 2])
def test_weights_that_a_checkpoint_misses_are_found_before_training(with_encoder, members):
    checked = with_encoder(f"{HERE}.Hidden", members)
    drawn = torch.get_rng_state()
    with pytest.raises(InputError) as error:
        check_foreign_network(checked, export=False)
    assert error.value.where == f"model.encoder._target_={HERE}.Hidden"
    assert "nn.ModuleList" in error.value.remedy
    assert torch.equal(torch.get_rng_state(), drawn)
    check_foreign_network(with_encoder(f"{HERE}.Shared", members), export=False)
