"""Logits that cannot be evaluated."""

import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.extend import SequenceNetwork
from seqclf.runs.row_outputs import predict_outputs

HERE = __name__


class WideOutput(SequenceNetwork):
    def __init__(self, fields, num_classes):
        super().__init__()
        self.linear = nn.Linear(2, num_classes + 1)

    def forward(self, fields, lengths, host_lengths):
        return self.linear(fields["value"][:, 0])


def test_evaluation_refuses_logits_that_are_not_finite(task, batches):
    module = task()
    nn.init.constant_(module.model.output.bias, torch.nan)
    with pytest.raises(InputError) as error:
        predict_outputs(module, batches.evaluation_loader("validation"))
    assert "31 of 31" in error.value.problem


def test_evaluation_refuses_logits_of_another_shape(with_model, batches):
    module = with_model({"_target_": f"{HERE}.WideOutput", "members": 1})
    batch = next(iter(batches.evaluation_loader("validation")))
    for run in (module.validation_step, module.predict_step):
        with pytest.raises(InputError) as error:
            run(batch, 0)
        assert str((len(batch.ids), 4)) in error.value.problem
    with pytest.raises(InputError):
        predict_outputs(module, [batch])
