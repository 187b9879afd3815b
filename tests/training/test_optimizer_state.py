"""The state of any optimizer of PyTorch is taken from a checkpoint, and a damaged one is refused."""

import copy
import json

import pytest
import torch

from seqclf.errors import InputError
from seqclf.training.change_structure import change_structure
from seqclf.training.resume import check_optimizer_state

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


def check(module, state):
    """Check a state as a resumed run does, with optimizers that are made anew."""
    optimizer, fresh = (module.make_optimizer(steps=9)[0] for _ in range(2))
    check_optimizer_state(state, fresh)
    optimizer.load_state_dict(copy.deepcopy(state))
    return optimizer


@pytest.mark.parametrize("typed", OPTIMIZERS)
def test_any_optimizer_of_pytorch_goes_on_from_its_state_also_after_a_change_of_the_structure(task, batches, typed):
    """The states of the optimizers differ, that of Adafactor even by the form of a weight."""
    module = make(task, typed)
    optimizer, _ = module.make_optimizer(steps=9)
    train(module, optimizer, batches)
    check(module, optimizer.state_dict())
    change_structure(module, optimizer, hidden_size=12, layers=2)
    train(module, optimizer, batches)
    resumed = copy.deepcopy(module)
    continued = check(resumed, optimizer.state_dict())
    for one, of_it in ((module, optimizer), (resumed, continued)):
        torch.manual_seed(0)
        train(one, of_it, batches)
    for name, weight in module.state_dict().items():
        assert torch.equal(weight, resumed.state_dict()[name]), name


@pytest.mark.parametrize(("name", "part"), [("AdamW", "exp_avg"), ("Adafactor", "row_var"), ("Adafactor", "variance")])
def test_a_damaged_state_of_a_weight_is_refused(task, batches, name, part):
    module = make(task, name)
    optimizer, _ = module.make_optimizer(steps=9)
    train(module, optimizer, batches)
    state = optimizer.state_dict()
    parts = next(parts for parts in state["state"].values() if part in parts)
    parts[part] = torch.zeros(3, 1, 2)
    for change in (lambda: None, lambda: parts.pop(part)):
        change()
        with pytest.raises(InputError, match=f"optimizer_states: {part} is missing or does not have the size of its"):
            check(module, state)


def test_weights_without_a_gradient_need_no_state(task, batches):
    module = task()
    module.model.embedding.requires_grad_(False)
    optimizer, _ = module.make_optimizer(steps=9)
    train(module, optimizer, batches)
    state = optimizer.state_dict()
    assert len(state["state"]) < sum(len(group["params"]) for group in state["param_groups"])
    check(module, state)
