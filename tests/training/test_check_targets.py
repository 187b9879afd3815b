"""Model, loss, optimizer and callbacks of any package: their keys are those that their classes take."""

import math
import re

import pytest
import yaml
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.config.documentation import CONF
from seqclf.errors import InputError
from seqclf.extend import SequenceEncoder, SequenceNetwork
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.ensemble import build_classifier
from seqclf.models.structure.options import changeable_keys
from seqclf.search.space import known_keys
from seqclf.training.check_targets import (
    build_callbacks,
    check_callbacks,
    resolve_loss,
    resolve_model,
    resolve_optimizer,
)
from seqclf.training.losses import build_loss

FIELDS = [{"name": "value", "kind": "number", "width": 2}]
HERE = __name__


def defaults(group, option):
    return yaml.safe_load((CONF / group / f"{option}.yaml").read_text(encoding="utf-8"))


MODEL = defaults("model", "lstm")


class Net(SequenceNetwork):
    """A network that takes none of the keys of conf/model/lstm.yaml but `dropout`."""

    def __init__(self, fields, num_classes, *, kernel, dropout, heads=2):
        super().__init__()
        self.arguments = (kernel, dropout, heads)


class Headless(SequenceNetwork):
    def __init__(self, fields, kernel):
        super().__init__()


class Anything(SequenceNetwork):
    def __init__(self, fields, num_classes, **options):
        super().__init__()
        self.options = options


class Conv(SequenceEncoder):
    """An encoder that takes `hidden_size` and `dropout` of the classifier around it."""

    def __init__(self, input_size, *, hidden_size, kernel, dropout):
        super().__init__()
        self.size, self.arguments = hidden_size, (kernel, dropout)


class Extended(SequenceClassifier):
    """A classifier that chooses an argument of its encoder."""

    def __init__(self, fields, num_classes, *, margin, **options):
        super().__init__(fields, num_classes, **{"kernel": 7, **options})
        self.margin = margin


class Every(Callback):
    def __init__(self, every=2):
        if every < 1:
            raise ValueError("every must be positive")
        self.every = every


def own_model(**arguments):
    return {**MODEL, "_target_": f"{HERE}.Net", **arguments}


def own_encoder(block=None, **arguments):
    return {**MODEL, "encoder": {"_target_": f"{HERE}.Conv", **(block or {})}, **arguments}


def refused(resolve, settings, *written):
    with pytest.raises(InputError) as caught:
        resolve(settings, set(written))
    return str(caught.value)


def test_a_network_of_another_package_gets_the_keys_that_it_takes():
    model = resolve_model(own_model(kernel=5), {"model._target_", "model.kernel"})
    assert model == {"_target_": f"{HERE}.Net", "dropout": MODEL["dropout"], "members": 1, "kernel": 5}
    assert build_classifier(model, FIELDS, 2).arguments == (5, MODEL["dropout"], 2)


def test_what_the_default_network_leaves_to_the_data_is_no_value_of_another_network():
    settings = {**defaults("model", "auto"), "_target_": f"{HERE}.Net", "kernel": 5}
    assert refused(resolve_model, settings) == "model.dropout: missing; Net needs it"
    written = {"model.dropout"}
    assert resolve_model({**settings, "dropout": 0.1}, written) == {
        "_target_": f"{HERE}.Net", "kernel": 5, "dropout": 0.1, "members": 1
    }  # fmt: skip
    assert resolve_model(settings, written)["dropout"] == "auto", "the user wrote it"


def test_a_key_that_the_user_wrote_is_refused_where_the_network_does_not_take_it():
    line = refused(resolve_model, own_model(kernel=5, layers=3), "model.kernel", "model.layers")
    assert line == "model.layers: no such argument of Net; it takes kernel, dropout, heads"
    line = refused(resolve_model, own_model(kernle=5), "model.kernle")
    assert line == "model.kernle: no such argument of Net; did you mean 'kernel'?"
    assert refused(resolve_model, own_model()) == "model.kernel: missing; Net needs it"


def test_a_network_that_takes_any_name_gets_the_keys_that_were_written():
    settings = {**MODEL, "_target_": f"{HERE}.Anything", "kernel": 5}
    written = {"model.kernel", "model.hidden_size"}
    assert resolve_model(settings, written) == {
        "_target_": settings["_target_"],
        "kernel": 5,
        "hidden_size": MODEL["hidden_size"],
        "members": 1,
    }


def test_a_network_that_cannot_be_called_is_refused():
    settings = {"_target_": f"{HERE}.Headless", "kernel": 5}
    assert refused(resolve_model, settings) == f"model._target_={HERE}.Headless: must take the argument num_classes"


@pytest.mark.parametrize(
    ("block", "arguments", "written"),
    [
        ({}, {"kernel": 5}, "model.kernel"),
        ({"kernel": 5}, {}, "model.encoder.kernel"),
        ({"kernel": 5, "cell": "lstm"}, {}, "model.encoder.kernel"),  # a block that a config of this package brought
    ],
)
def test_an_encoder_gets_the_keys_that_it_takes_from_its_block_or_above(block, arguments, written):
    model = resolve_model(own_encoder(block, **arguments), {"model.encoder._target_", written})
    assert not {"cell", "layers", "bidirectional", "layout"} & {*model, *model["encoder"]}
    network = build_classifier(model, FIELDS, 2)
    assert network.encoder.arguments == (5, MODEL["dropout"]) and network.encoder.size == MODEL["hidden_size"]


def test_keys_that_neither_classifier_nor_encoder_takes_are_refused():
    line = refused(resolve_model, own_encoder(kernel=5), "model.kernel", "model.cell")
    assert line.startswith(
        "model.cell: no such argument of SequenceClassifier or Conv; it takes encoder, embedding_size"
    )
    line = refused(resolve_model, own_encoder({"kernle": 5}), "model.encoder.kernle")
    assert line == "model.encoder.kernle: no such argument of Conv; did you mean 'kernel'?"
    assert refused(resolve_model, own_encoder()) == "model.kernel: missing; Conv needs it"


@pytest.mark.parametrize("encoder", [None, "Conv", {}, {"kernel": 5}])
def test_a_classifier_without_the_class_of_its_encoder_is_refused(encoder):
    line = refused(resolve_model, {**MODEL, "encoder": encoder})
    assert line == "model.encoder._target_: missing; name the class of the encoder, or set model=lstm"


def test_a_subclass_of_the_classifier_may_choose_arguments_of_its_encoder():
    model = resolve_model({**own_encoder(margin=1), "_target_": f"{HERE}.Extended"}, {"model.margin"})
    assert "cell" not in model and model["margin"] == 1
    assert build_classifier(model, FIELDS, 2).encoder.arguments[0] == 7


def test_the_built_in_models_keep_all_their_keys():
    assert resolve_model(MODEL, set()) == MODEL


@pytest.mark.parametrize("name", ["pooling", "number_noise", "layers"])
def test_a_tree_model_has_no_key_that_would_do_nothing(name):
    model = defaults("model", "tree_lstm")
    assert resolve_model(model, set()) == model and name not in changeable_keys(model)
    line = refused(resolve_model, {**model, name: MODEL[name]}, f"model.{name}")
    assert line.startswith(f"model.{name}: no such argument of TreeClassifier or TreeLSTM; it takes node_loss, ")
    usual = known_keys({"model.pooling": ["last", "max"], "model.dropout": [0.1, 0.2]}, {"model": model})
    assert list(usual) == ["model.dropout"]


def test_a_loss_of_another_package_gets_the_keys_that_it_takes():
    loss = {**defaults("loss", "cross_entropy"), "_target_": "torch.nn.CrossEntropyLoss", "label_smoothing": 0.1}
    assert resolve_loss(loss, {"loss.label_smoothing"}) == {"_target_": loss["_target_"], "label_smoothing": 0.1}
    line = refused(resolve_loss, loss, "loss.class_weights")
    assert line.startswith("loss.class_weights: no such argument of CrossEntropyLoss; ")


def test_an_optimizer_that_is_switched_drops_the_keys_of_the_one_before():
    settings = {**defaults("optimizer", "adamw"), "_target_": "torch.optim.SGD", "momentum": 0.9}
    resolved = resolve_optimizer(settings, {"optimizer.momentum"})
    assert "betas" not in resolved and resolved["momentum"] == 0.9 and resolved["schedule"] == settings["schedule"]
    assert refused(resolve_optimizer, settings, "optimizer.betas").startswith(
        "optimizer.betas: no such argument of SGD"
    )


@pytest.mark.parametrize("key", ["weight_decay", "fused", "betas"])
def test_a_key_that_an_optimizer_does_not_take_is_dropped_unless_the_user_wrote_it(key):
    settings = {**defaults("optimizer", "adamw"), "_target_": "torch.optim.Rprop"}
    assert key not in resolve_optimizer(settings, set())
    line = refused(resolve_optimizer, settings, f"optimizer.{key}")
    assert line.startswith(f"optimizer.{key}: no such argument of Rprop; ")


@pytest.mark.parametrize(
    ("name", "reason"),
    [("LBFGS", "doesn't support per-parameter options"), ("SparseAdam", "dense gradients"), ("Muon", "2D parameters")],
)
def test_an_optimizer_that_cannot_train_a_model_is_refused_before_any_data_is_read(name, reason):
    settings = {**defaults("optimizer", "adamw"), "_target_": f"torch.optim.{name}"}
    line = refused(resolve_optimizer, settings)
    assert line.startswith(f"optimizer._target_=torch.optim.{name}: cannot train all weights of a model (")
    assert reason in line and line.endswith("; choose another, such as torch.optim.AdamW")


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("adamw", "eps", math.inf), ("sgd", "momentum", math.nan), ("adamw", "betas", [0, math.nan])],
)
def test_an_optimizer_gets_finite_numbers_only(name, key, value):
    line = refused(resolve_optimizer, {**defaults("optimizer", name), key: value}, f"optimizer.{key}")
    assert line == f"optimizer.{key}={value}: must be a finite number"


def test_callbacks_are_checked_and_built_with_their_arguments():
    callbacks = [{"_target_": f"{HERE}.Every", "every": 3}, {"_target_": f"{HERE}.Every"}]
    check_callbacks(callbacks)
    assert [callback.every for callback in build_callbacks(callbacks)] == [3, 2]
    assert build_callbacks(None) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"_target_": f"{HERE}.Net"}, rf"trainer\.callbacks\[1\]\._target_={re.escape(HERE)}\.Net: is not a Callback$"),
        ({"_target_": f"{HERE}.Evry"}, r"trainer\.callbacks\[1\]\._target_=.*did you mean 'Every'\?"),
        ({"_target_": f"{HERE}.Every", "evry": 3}, r"trainer\.callbacks\[1\]\.evry: no .* did you mean 'every'\?"),
    ],
)
def test_a_wrong_callback_is_named_by_its_position(settings, message):
    with pytest.raises(InputError, match=f"^{message}"):
        check_callbacks([{"_target_": f"{HERE}.Every"}, settings])


def test_a_value_that_a_callback_refuses_is_named():
    with pytest.raises(InputError, match=r"^trainer\.callbacks\[0\]\._target_=.*\.Every: every must be positive$"):
        build_callbacks([{"_target_": f"{HERE}.Every", "every": 0}])


class PerRow(nn.Module):
    """A loss without a constructor: that of nn.Module seems to take any argument."""

    def forward(self, logits, labels):
        return nn.functional.cross_entropy(logits, labels)


class Forwarding(SequenceEncoder):
    """An encoder that hands its arguments on."""

    def __init__(self, input_size, **options):
        super().__init__()
        self.size, self.options = 8, options


class Nameless(SequenceEncoder):
    def __init__(self, in_features):
        super().__init__()


def test_a_loss_without_a_constructor_takes_no_arguments(monkeypatch):
    original = nn.Module.__init__

    def wrapper(self, *arguments, **options):  # torch.compile leaves such a one for the rest of the process
        original(self, *arguments, **options)

    monkeypatch.setattr(nn.Module, "__init__", wrapper)
    settings = {**defaults("loss", "focal"), "_target_": f"{HERE}.PerRow"}
    assert resolve_loss(settings, {"loss._target_"}) == {"_target_": f"{HERE}.PerRow"}
    assert isinstance(build_loss({"_target_": f"{HERE}.PerRow"}, ["a", "b"], [1, 2]), PerRow)
    with pytest.raises(InputError, match=r"loss.gamma: no such argument of PerRow; it takes none"):
        resolve_loss(settings, {"loss._target_", "loss.gamma"})


def test_an_encoder_of_any_arguments_gets_those_that_were_written():
    encoder = {"_target_": f"{HERE}.Forwarding", "num_layers": 2}
    written = {"model.encoder._target_", "model.encoder.num_layers", "model.dropout"}
    resolved = resolve_model({**MODEL, "encoder": encoder}, written)
    assert not {"cell", "hidden_size", "layout"} & set(resolved) and resolved["encoder"] == encoder


def test_an_encoder_that_does_not_take_the_input_size_is_named():
    settings = {**MODEL, "encoder": {"_target_": f"{HERE}.Nameless"}}
    with pytest.raises(InputError, match=rf"model.encoder._target_={HERE}.Nameless: must take the argument input_size"):
        resolve_model(settings, {"model.encoder._target_"})


def test_an_argument_beside_the_block_that_holds_it_is_dropped_or_refused():
    encoder = {"_target_": f"{HERE}.Conv", "kernel": 3, "hidden_size": 64}
    settings = {**MODEL, "encoder": encoder}
    assert "hidden_size" not in resolve_model(settings, {"model.encoder._target_"})
    with pytest.raises(InputError, match=r"model.hidden_size: has no effect beside model.encoder.hidden_size"):
        resolve_model(settings, {"model.encoder._target_", "model.hidden_size"})


class Asserting(Callback):
    def __init__(self, every):
        assert every > 0, "every must be positive"


@pytest.mark.parametrize(
    ("callback", "message"),
    [
        ({"_target_": f"{HERE}.Asserting", "every": 0}, "every must be positive"),
        (
            {"_target_": "lightning.pytorch.callbacks.LearningRateMonitor", "logging_interval": "hour"},
            "logging_interval should be",
        ),
    ],
)
def test_a_value_that_a_callback_refuses_is_one_line(callback, message):
    with pytest.raises(InputError, match=rf"^trainer.callbacks\[0\]._target_={callback['_target_']}: {message}"):
        build_callbacks([callback])


class Lazy(SequenceNetwork):
    def __init__(self, fields, num_classes):
        super().__init__()
        self.layer = nn.LazyLinear(num_classes)


def test_lazy_modules_are_refused():
    with pytest.raises(InputError, match="has lazy modules, which a checkpoint cannot hold"):
        build_classifier({"_target_": f"{HERE}.Lazy", "members": 1}, FIELDS, 2)
