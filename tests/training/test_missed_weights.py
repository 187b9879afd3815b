"""Weights that a checkpoint misses, and logits that cannot be evaluated."""

import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder, SequenceNetwork
from seqclf.runs.score import predict_logits
from seqclf.training.checks.custom_network_checks import check_foreign_network

HERE = __name__


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


class WideOutput(SequenceNetwork):
    """Returns a logit too many for single sequences."""

    def __init__(self, fields, num_classes):
        super().__init__()
        self.linear = nn.Linear(2, num_classes + 1)

    def forward(self, fields, lengths, host_lengths):
        return self.linear(fields["value"][:, 0])


@pytest.mark.parametrize("members", [1, 2])
def test_weights_that_a_checkpoint_misses_are_found_before_training(with_encoder, members):
    checked = with_encoder(f"{HERE}.Hidden", members)
    drawn = torch.get_rng_state()
    with pytest.raises(InputError) as error:
        check_foreign_network(checked, export=False)
    assert error.value.where == f"model.encoder._target_={HERE}.Hidden"
    assert "a checkpoint misses weights" in error.value.problem and "nn.ModuleList" in error.value.remedy
    assert torch.equal(torch.get_rng_state(), drawn)
    check_foreign_network(with_encoder(f"{HERE}.Shared", members), export=False)


def test_evaluation_refuses_logits_that_are_not_finite(task, batches):
    module = task()
    nn.init.constant_(module.model.output.bias, torch.nan)
    with pytest.raises(InputError) as error:
        predict_logits(module, batches.evaluation_loader("validation"))
    assert "31 of 31" in error.value.problem


def test_evaluation_refuses_logits_of_another_shape(with_model, batches):
    module = with_model({"_target_": f"{HERE}.WideOutput", "members": 1})
    batch = next(iter(batches.evaluation_loader("validation")))
    for run in (module.validation_step, module.predict_step):
        with pytest.raises(InputError) as error:
            run(batch, 0)
        assert str((len(batch.ids), 4)) in error.value.problem
    with pytest.raises(InputError):
        predict_logits(module, [batch])
