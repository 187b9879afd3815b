"""The state of any optimizer of PyTorch is taken from a checkpoint."""

import copy
import json

import pytest
import torch

from seqclf.training.change_structure import change_structure

OPTIMIZERS = [
    *("ASGD", "Adadelta", "Adafactor", "NAdam", "Rprop", "SGD"),
    *("SGD momentum=0.9", "AdamW amsgrad=true fused=true", "RMSprop centered=true momentum=0.5"),
]


def make(task, typed):
    name, *options = typed.split()
    given = {key: json.loads(value) for key, value in (option.split("=") for option in options)}
    module = task()
    module.optimizer = {
        "_target_": f"torch.optim.{name}",
        "lr": 0.01,
        "schedule": module.optimizer["schedule"],
        **given,
    }
    return module


def train(module, optimizer, batches):
    loader = batches.train_dataloader()
    loader.sampler.set_epoch(0)  # the same batches each time
    for step, batch in zip(range(2), loader, strict=False):
        optimizer.zero_grad()
        module.training_step(batch, step).backward()
        optimizer.step()


@pytest.mark.parametrize("typed", OPTIMIZERS)
def test_any_optimizer_of_pytorch_goes_on_from_its_state_also_after_a_change_of_the_structure(task, batches, typed):
    """The states of the optimizers differ, that of Adafactor even by the form of a weight."""
    module = make(task, typed)
    optimizer, _ = module.make_optimizer(steps=9)
    train(module, optimizer, batches)
    change_structure(module, optimizer, hidden_size=12, layers=2)
    train(module, optimizer, batches)
    resumed = copy.deepcopy(module)
    continued, _ = resumed.make_optimizer(steps=9)
    continued.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, of_it in ((module, optimizer), (resumed, continued)):
        torch.manual_seed(0)
        train(one, of_it, batches)
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name
