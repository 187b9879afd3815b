"""The operation whose gradient is NaN is named with its module and its line of code, in one line."""

import pytest
import torch
from torch import nn

from seqclf.errors import InputError
from seqclf.training.debugging.anomaly_trace import AnomalyTrace, forward_line


class Root(nn.Module):
    """Has a derivative of NaN at 0."""

    def forward(self, values):
        return ((values * 0) ** 2).sqrt()


def train(fit, module, trace):
    with trace.explained():
        fit(module, callbacks=[trace], max_epochs=1, enable_checkpointing=False)


def test_module_operation_and_line_are_named(task, fit):
    module, trace = task(), AnomalyTrace()
    module.model.norm = nn.Sequential(module.model.norm, Root())
    with pytest.raises(InputError) as error:
        train(fit, module, trace)
    line = str(error.value)
    assert line.startswith(
        "step 1: the operation SqrtBackward0 of model.norm.1 (Root), called in test_anomaly_trace.py:"
    )
    assert "(return ((values * 0) ** 2).sqrt()), gave NaN as the gradient of its input 0; look at" in line
    assert_nothing_is_left(module)


def test_an_operation_of_the_loss_is_named(task, fit):
    class Loss(nn.Module):
        def forward(self, logits, labels):
            return ((logits * 0).sum() ** 2).sqrt()

    module = task()
    module.loss = Loss()
    with pytest.raises(InputError, match=r"Backward0 of loss \(Loss\), called in test_anomaly_trace"):
        train(fit, module, AnomalyTrace())


def test_a_sound_training_and_other_errors_are_left_alone(task, fit):
    module, trace = task(), AnomalyTrace()
    train(fit, module, trace)
    assert trace.steps > 2 and trace.summary() == f"no gradient was NaN in {trace.steps} steps"
    assert_nothing_is_left(module)
    module.training_step = lambda batch, batch_idx: torch.zeros(2, requires_grad=True) @ torch.zeros(3)
    with pytest.raises(RuntimeError, match="size"):
        train(fit, module, AnomalyTrace())
    assert_nothing_is_left(module)


def test_frames_of_libraries_are_left_out():
    library = torch.nn.__file__
    text = f'  File "net.py", line 3, in forward\n    x = f(y)\n  File "{library}", line 9, in f\n    return y\n'
    assert forward_line(text) == "net.py:3 (x = f(y))"
    assert forward_line("") == ""


def assert_nothing_is_left(module):
    assert not torch.is_anomaly_enabled()
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
