"""Structure changes in a plain loop: what is changed, what is refused, and that nothing is left behind."""

import random
import weakref

import pytest
import torch

from seqclf.errors import InputError
from seqclf.training.change_structure import StructureSchedule, change_structure

from .conftest import QUIET

pytestmark = QUIET


def train(module, optimizer, batches, steps=1):
    for step, batch in zip(range(steps), batches.train_dataloader(), strict=False):
        optimizer.zero_grad()
        module.training_step(batch, step).backward()
        optimizer.step()


def test_a_plain_loop_goes_on_with_the_changed_network(task, batches):
    module = task()
    optimizer, _ = module.make_optimizer(steps=100)
    train(module, optimizer, batches, steps=2)
    change = change_structure(module, optimizer, layers=2, freeze="embedding")
    assert change.text == "layers 1 → 2, embedding frozen" and change.preserves
    assert change.weights == sum(weight.numel() for weight in module.model.parameters())
    before = {name: weight.clone() for name, weight in module.model.named_parameters()}
    train(module, optimizer, batches, steps=3)
    for name, weight in module.model.named_parameters():
        assert torch.equal(weight, before[name]) == name.startswith("embedding"), name


def test_an_optimizer_keeps_the_state_of_weights_that_keep_their_shape(task, batches):
    module = task()
    optimizer, _ = module.make_optimizer(steps=100)
    train(module, optimizer, batches)
    before, states = dict(module.model.named_parameters()), dict(optimizer.state)
    change_structure(module, optimizer, layers=2, hidden_size=16)
    fresh, _ = module.make_optimizer(steps=100)
    for group, expected in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        assert list(map(id, group["params"])) == list(map(id, expected["params"]))
        assert group["weight_decay"] == expected["weight_decay"]
    kept = {name: weight for name, weight in module.model.named_parameters() if weight is before.get(name)}
    assert {name.partition(".")[0] for name in kept} == {"embedding", "output"} and "output.weight" not in kept
    assert {id(weight) for weight in kept.values()} == {id(weight) for weight in optimizer.state}
    assert all(optimizer.state[weight] is states[weight] for weight in kept.values())


@pytest.mark.parametrize("name", ["LBFGS", "Adagrad"])
def test_an_optimizer_whose_state_cannot_start_anew_is_rejected_before_the_first_step(task, fit, name):
    module = task()
    optimizer = getattr(torch.optim, name)(module.parameters())
    with pytest.raises(InputError, match=f"optimizer: {name} cannot change"):
        change_structure(module, optimizer, layers=2)
    module.configure_optimizers = lambda: optimizer
    with pytest.raises(InputError, match=f"optimizer: {name} cannot change"):
        fit(module, callbacks=[StructureSchedule([{"epoch": 2, "layers": 2}])])
    assert module.trainer.global_step == 0


def test_what_a_change_adds_is_not_frozen_with_the_module_it_is_added_to(task):
    module = task()
    change_structure(module, layers=2, freeze="encoder")
    learning = {name for name, weight in module.model.encoder.named_parameters() if weight.requires_grad}
    assert learning == {name for name, _ in module.model.encoder.named_parameters() if ".1." in name} | {"scales.0"}
    change_structure(module, layers=1)
    assert not any(".1." in name or "scales" in name for name in module.hparams["frozen"])


def test_a_refused_change_leaves_the_task_as_it_was(task, batches):
    module = task()
    optimizer, _ = module.make_optimizer(steps=100)
    network, hparams = module.model, dict(module.hparams)
    refused = [
        ({"freeze": "embedding", "hidden_size": 4}, r"change_structure.hidden_size=4: must be above 8"),
        ({"freeze": ["embedding", "nothing"], "layers": 2}, r"change_structure.freeze=nothing: no such module"),
        ({"layer": 2}, r"change_structure.layer: no such key"),
        ({}, r"change_structure: changes nothing"),
        ({"layers": 2, "freeze": "output"}, "holds no weight of this network"),
    ]
    for changes, message in refused:
        wrong = torch.optim.SGD(task().parameters()) if "network" in message else optimizer
        with pytest.raises(InputError, match=message):
            change_structure(module, wrong, **changes)
    assert module.model is network and dict(module.hparams) == hparams
    assert all(weight.requires_grad for weight in network.parameters())
    train(module, optimizer, batches)


def test_random_changes_train_and_leave_nothing_behind(task, batches):
    drawn, module = random.Random(0), task(model={"dropout": 0.1})
    optimizer, _ = module.make_optimizer(steps=100)
    old = []
    for _ in range(25):
        model = module.hparams["model"]
        changes = [
            {"layers": drawn.choice([count for count in (1, 2, 3) if count != model["layers"]])},
            {"dropout": drawn.random()},
            {"hidden_size": model["hidden_size"] + 1},
            {"unfreeze": "embedding"} if module.hparams["frozen"] else {"freeze": "embedding"},
        ]
        chosen = drawn.sample(changes, 2)
        network = weakref.ref(module.model)
        change_structure(module, optimizer, **chosen[0], **chosen[1])
        old += [network] if network() is not module.model else []
        train(module, optimizer, batches, steps=2)
    weights = list(module.model.parameters())
    assert all(weight.isfinite().all() for weight in weights)
    held = [weight for group in optimizer.param_groups for weight in group["params"]]
    assert {id(weight) for weight in held} == {id(weight) for weight in weights} >= {id(key) for key in optimizer.state}
    assert len(old) > 10 and sum(network() is not None for network in old) == 0
