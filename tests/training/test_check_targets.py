"""Model, loss, optimizer and callbacks of any package: their keys are those that their classes take."""

import pytest
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.config import build
from seqclf.config.command_keys import default_settings
from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder, SequenceNetwork
from seqclf.models.classifier import EncoderClassifier
from seqclf.models.ensemble import build_classifier
from seqclf.training.check_targets import (
    build_callbacks,
    check_callbacks,
    resolve_loss,
    resolve_model,
    resolve_optimizer,
)
from seqclf.training.losses import build_loss
from seqclf.training.task import SequenceTask, load_task, save_model

from .conftest import DATASET

FIELDS = [{"name": "value", "kind": "number", "width": 2}]
HERE = __name__


def defaults(group, option):
    return default_settings(group, option)


MODEL = defaults("model", "lstm")


class Net(SequenceNetwork):
    def __init__(self, fields, num_classes, *, kernel, dropout, heads=2):
        super().__init__()
        self.arguments = (kernel, dropout, heads)


class Anything(SequenceNetwork):
    def __init__(self, fields, num_classes, **options):
        super().__init__()
        self.options = options


class Conv(SequenceEncoder):
    def __init__(self, input_size, *, hidden_size, kernel, dropout):
        super().__init__()
        self.size, self.arguments = hidden_size, (kernel, dropout)


class Extended(EncoderClassifier):
    def __init__(self, fields, num_classes, *, margin, **options):
        super().__init__(fields, num_classes, **{"kernel": 7, **options})
        self.margin = margin


class Every(Callback):
    def __init__(self, every=2):
        if every < 1:
            raise AssertionError("every must be positive")
        self.every = every


COMMON = defaults("model", "own_encoder")


def own_model(**arguments):
    return {"_target_": f"{HERE}.Net", "members": 1, **arguments}


def own_encoder(block=None, **arguments):
    return {**COMMON, "encoder": {"_target_": f"{HERE}.Conv", **(block or {})}, **arguments}


def refused(resolve, settings):
    with pytest.raises(InputError) as caught:
        resolve(settings)
    return str(caught.value)


def test_a_network_of_another_package_gets_its_keys():
    settings = own_model(kernel=5, dropout=0.1)
    assert resolve_model(settings) == settings
    assert build_classifier(settings, FIELDS, 2).arguments == (5, 0.1, 2)
    anything = {"_target_": f"{HERE}.Anything", "kernel": 5, "members": 1}
    assert resolve_model(anything) == anything


@pytest.mark.parametrize(
    ("block", "arguments"), [({}, {"kernel": 5, "hidden_size": 6}), ({"kernel": 5, "hidden_size": 6}, {})]
)
def test_an_encoder_gets_its_keys_from_its_block_or_above(block, arguments):
    model = resolve_model(own_encoder(block, **arguments))
    network = build_classifier(model, FIELDS, 2)
    assert network.encoder.arguments == (5, COMMON["dropout"]) and network.encoder.size == 6


def test_a_subclass_of_the_classifier_may_choose_arguments_of_its_encoder():
    model = resolve_model({**own_encoder(margin=1, hidden_size=6), "_target_": f"{HERE}.Extended"})
    assert model["margin"] == 1 and build_classifier(model, FIELDS, 2).encoder.arguments[0] == 7


@pytest.mark.parametrize("name", ["pooling", "number_noise", "layers"])
def test_a_tree_model_has_no_key_that_would_do_nothing(name):
    model = defaults("model", "tree_lstm")
    assert resolve_model(model) == model
    line = refused(resolve_model, {**model, name: MODEL[name]})
    assert line.startswith(f"model.{name}: no such argument of TreeClassifier or TreeLSTM; it takes node_loss, ")


def test_a_loss_of_another_package_gets_the_keys_that_it_takes():
    loss = {"_target_": "torch.nn.CrossEntropyLoss", "label_smoothing": 0.1}
    assert resolve_loss(loss) == loss
    line = refused(resolve_loss, {**loss, "class_weights": None})
    assert line.startswith("loss.class_weights: no such argument of CrossEntropyLoss; ")


def test_another_optimizer_gets_the_keys_that_it_takes():
    settings = {**defaults("optimizer", "own"), "_target_": "torch.optim.SGD", "momentum": 0.9}
    assert resolve_optimizer(settings) == settings
    line = refused(resolve_optimizer, {**settings, "betas": [0.9, 0.99]})
    assert line.startswith("optimizer.betas: no such argument of SGD; ") and "~optimizer.betas removes" in line


@pytest.mark.parametrize(
    ("name", "reason"), [("LBFGS", "doesn't support per-parameter options"), ("Muon", "2D parameters")]
)
def test_an_optimizer_that_cannot_train_a_model_is_refused_before_any_data_is_read(name, reason):
    settings = {**defaults("optimizer", "own"), "_target_": f"torch.optim.{name}"}
    line = refused(resolve_optimizer, settings)
    assert line.startswith(f"optimizer._target_=torch.optim.{name}: ") and reason in line


def test_callbacks_are_checked_and_built_with_their_arguments():
    callbacks = [{"_target_": f"{HERE}.Every", "every": 3}, {"_target_": f"{HERE}.Every"}]
    check_callbacks(callbacks)
    assert [callback.every for callback in build_callbacks(callbacks)] == [3, 2]
    assert build_callbacks(None) == []


class PerRow(nn.Module):
    """A loss without a constructor: that of nn.Module seems to take any argument."""

    def forward(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)


def test_a_loss_without_a_constructor_takes_no_arguments(monkeypatch):
    original = nn.Module.__init__

    def wrapper(self, *arguments, **options):  # torch.compile leaves such a one for the rest of the process
        original(self, *arguments, **options)

    monkeypatch.setattr(nn.Module, "__init__", wrapper)
    assert resolve_loss({"_target_": f"{HERE}.PerRow"}) == {"_target_": f"{HERE}.PerRow"}
    assert isinstance(build_loss({"_target_": f"{HERE}.PerRow"}, ["a", "b"], [1, 2]), PerRow)
    with pytest.raises(InputError, match=r"loss.gamma: no such argument of PerRow; it takes none"):
        resolve_loss({"_target_": f"{HERE}.PerRow", "gamma": 2.0})


@pytest.mark.parametrize(("option", "again"), [("lstm", 0), ("auto", 1)])
def test_a_model_is_checked_once_and_again_only_for_what_the_data_resolves(monkeypatch, tmp_path, option, again):
    checked, check_values = [], build.check_values
    monkeypatch.setattr(build, "check_values", lambda key, *rest: (checked.append(key), check_values(key, *rest)))
    once = {"lstm": ["model.encoder", "model"], "auto": ["model"]}[option]
    model = resolve_model(defaults("model", option))
    task = SequenceTask(DATASET, model)
    assert checked == [*once, *once * again, "loss"]
    checked.clear()
    save_model(tmp_path / "model.ckpt", task, 0, {})
    load_task(tmp_path / "model.ckpt")
    assert checked == [*once, "loss"]


class Lazy(SequenceNetwork):
    def __init__(self, fields, num_classes):
        super().__init__()
        self.layer = nn.LazyLinear(num_classes)


def test_lazy_modules_are_refused():
    with pytest.raises(InputError, match="has lazy modules, which a checkpoint cannot hold"):
        build_classifier({"_target_": f"{HERE}.Lazy", "members": 1}, FIELDS, 2)
