"""An optimizer goes on after a change of the structure: groups, state, and steps."""

import pytest
import torch

from seqclf.errors import InputError
from seqclf.models.structure import axes as axes_module
from seqclf.models.structure.axes import continued_moment
from seqclf.models.structure.carry_optimizer import carry_optimizer
from seqclf.models.structure.change_network import change_network
from seqclf.models.structure.options import changed_config

from .conftest import CLASSES, COMMON, ENCODERS, SEQUENCE, Case

LSTM = {
    **COMMON,
    "encoder": {"_target_": ENCODERS["recurrent"]},
    "cell": "lstm",
    "embedding_size": 3,
    "hidden_size": 4,
    "layers": 1,
    "bidirectional": True,
    "pooling": "max",
    "layout": "auto",
}
WITHOUT_OPTIONS = ("SGD", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop", "ASGD", "Adafactor")
OPTIMIZERS = [
    ("AdamW", {"amsgrad": True}),
    ("AdamW", {"fused": True}),
    ("SGD", {"momentum": 0.9, "nesterov": True}),
    *((name, {}) for name in WITHOUT_OPTIONS),
]


def groups_of(network):
    weights = list(network.parameters())
    matrices, vectors = ([weight for weight in weights if (weight.ndim > 1) == wanted] for wanted in (True, False))
    return [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]


def step(case, optimizer):
    optimizer.zero_grad()
    case.loss().backward()
    optimizer.step()


def change(case, optimizer, **changes):
    """Change a network and its optimizer. Returns the weights before."""
    before = dict(case.network.named_parameters())
    case.config = changed_config(case.config, changes, "structure")
    changed = change_network(case.network, case.config, SEQUENCE, CLASSES, seed=5)
    carry_optimizer(optimizer, before, changed.network, changed.axes)
    case.network = changed.network
    return before


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
def test_every_optimizer_of_pytorch_goes_on_as_if_it_were_made_for_the_new_network(name, options):
    case = Case(LSTM)
    optimizer = getattr(torch.optim, name)(groups_of(case.network), lr=0.01, **options)
    step(case, optimizer)
    kept = {id(weight): state for weight, state in optimizer.state.items()}
    before = change(case, optimizer, layers=2, hidden_size=8)
    fresh = getattr(torch.optim, name)(groups_of(case.network), lr=0.01, **options)
    for group, fresh_group in zip(optimizer.param_groups, fresh.param_groups, strict=True):
        assert [id(weight) for weight in group["params"]] == [id(weight) for weight in fresh_group["params"]]
        assert group["weight_decay"] == fresh_group["weight_decay"]
    network = case.network
    assert network.embedding.layers[0].weight is before["embedding.layers.0.weight"], "a kept weight is the same one"
    for weight in network.embedding.parameters():
        assert optimizer.state.get(weight) is kept.get(id(weight))
    old = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    step(case, optimizer)
    step(case, optimizer)
    fresh.load_state_dict(optimizer.state_dict())
    for name, weight in network.named_parameters():
        assert weight.isfinite().all() and not torch.equal(weight, old[name]), name
    alive = {id(weight) for weight in network.parameters()}
    assert all(id(weight) in alive for weight in optimizer.state)


def test_moments_of_copies_are_those_that_their_gradients_have(monkeypatch):
    """Autograd is the oracle: with equal shares, the gradient of a copy is its share of the gradient before."""
    monkeypatch.setattr(axes_module, "UNEVENNESS", 0.0)
    case = Case({**LSTM, "layers": 2, "pooling": "attention+max"}, torch.float64)
    case.loss().backward()
    gradients = {name: weight.grad.clone() for name, weight in case.network.named_parameters()}
    changes = {"hidden_size": 8, "embedding_size": 7}
    changed = change_network(case.network, changed_config(case.config, changes, ""), SEQUENCE, CLASSES, seed=1)
    case.network = changed.network.zero_grad() or changed.network
    case.loss().backward()
    for name, weight in case.network.named_parameters():
        for power in (1, 2):
            moment = continued_moment(gradients[name] ** power, changed.axes[name], power)
            torch.testing.assert_close(weight.grad**power, moment, rtol=1e-9, atol=1e-15, msg=name)


def test_a_new_weight_joins_the_group_of_the_weight_with_the_most_similar_name():
    case = Case(LSTM)
    parts = {"embedding": [], "encoder": [], "pooling": [], "norm": [], "output": []}
    for name, weight in case.network.named_parameters():
        parts[name.partition(".")[0]].append(weight)
    optimizer = torch.optim.SGD([{"params": part, "lr": 0.1} for part in parts.values() if part])
    change(case, optimizer, layers=2)
    encoder = optimizer.param_groups[1]
    assert all(a is b for a, b in zip(encoder["params"], case.network.encoder.parameters(), strict=True))


def test_one_state_for_all_weights_and_weights_of_another_network_are_refused():
    case = Case(LSTM)
    with pytest.raises(InputError, match="LBFGS keeps one state for all weights"):
        change(case, torch.optim.LBFGS(case.network.parameters()), layers=2)
    with pytest.raises(InputError, match="holds no weight of this network"):
        change(case, torch.optim.SGD(Case(LSTM).network.parameters()), layers=3)


def test_a_weight_whose_state_cannot_be_continued_has_none():
    """An empty state would be taken for a damaged one, where the weight is frozen and never fills it."""
    case = Case(LSTM)
    optimizer = torch.optim.Adadelta(groups_of(case.network))
    step(case, optimizer)
    change(case, optimizer, hidden_size=8)
    assert all(optimizer.state.values())
