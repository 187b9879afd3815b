"""Checks of each `_target_` in a training config: it can be imported, is the right class and takes the given arguments.

They import PyTorch but read no data, so a mistake is reported before hours of data preparation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.config.argument_types import check_values, target_kinds
from seqclf.config.targets import (
    Config,
    arguments_of,
    build,
    check_arguments,
    defaults_of,
    is_foreign,
    locate,
    locate_part,
    locate_subclass,
    package_of,
    require_complete,
    require_finite,
    require_known,
    targets,
)
from seqclf.data.options import DataOptions
from seqclf.errors import InputError, first_line
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.ensemble import NO_STATIC, check_members, reads_static
from seqclf.models.network import SequenceNetwork
from seqclf.models.options import RUN_SETTINGS
from seqclf.models.structure.options import changed_config, read_schedule
from seqclf.training.losses import OFFERED
from seqclf.training.options import TrainConfig

# Lightning callbacks that a config adds to the default callbacks.


def check_callbacks(callbacks: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError unless each entry names a Lightning callback and only arguments that the callback takes."""
    for index, settings in enumerate(callbacks):
        key = f"trainer.callbacks[{index}]"
        if "_target_" not in settings:
            raise InputError(f"{key}._target_", "missing", "name the class of the callback")
        located = locate_subclass(settings["_target_"], Callback, f"{key}._target_")
        check_arguments(key, located, settings.keys() - {"_target_"}, provided=())


def build_callbacks(callbacks: Sequence[Mapping[str, Any]] | None) -> list[Callback]:
    """Build the callbacks of `_target_` dicts. Raises InputError, with the config key, for a wrong argument.

    >>> build_callbacks([{"_target_": "lightning.pytorch.callbacks.LambdaCallback"}])[0].state_key
    'LambdaCallback'
    """
    built: list[Callback] = []
    for index, settings in enumerate(callbacks or ()):
        try:
            built.append(build(settings, Callback, f"trainer.callbacks[{index}]._target_"))
        except MisconfigurationException as error:
            where = f"trainer.callbacks[{index}]._target_={settings['_target_']}"
            raise InputError(where, first_line(error)) from None
    return built


OF_MODEL = ("fields", "num_classes")  # arguments that every network gets from the training
OF_ENCODER = ("input_size", "field_specs")  # arguments that an encoder gets from its classifier
OF_PART = ("hidden_size", *OF_ENCODER)  # arguments that a part of an encoder gets from the encoder
OF_TASK = ("schedule", "average", "weight_decay")  # settings of an optimizer that the task uses itself


def resolve_targets(config: TrainConfig) -> TrainConfig:
    """Return a config whose model, loss and optimizer blocks are checked and have all arguments of their classes.

    Raises InputError for an unknown key, for a missing key, and for a class that cannot be imported.
    """
    check_callbacks(config.trainer.get("callbacks") or ())
    check_accelerator(config.trainer.get("accelerator"))
    model = resolve_model(config.model)
    resolved = {"model": model, "loss": resolve_loss(config.loss), "optimizer": resolve_optimizer(config.optimizer)}
    for key, change in read_schedule(config.structure):
        model = changed_config(model, change.of_model(), key)
    return config.model_copy(update={**resolved, "data": data_for(config.data, config.model)})


def data_for(data: DataOptions, model: Mapping[str, Any]) -> DataOptions:
    """Return the data options for a model: a network that reads no static fields gets all fields for each token.

    Raises InputError if static fields are declared for such a network.
    """
    target = model["_target_"]
    if reads_static(target) or data.static == {}:
        return data
    if data.static:
        raise InputError(f"model._target_={target}", *NO_STATIC)
    return data.model_copy(update={"static": {}})


def check_accelerator(name: str | None) -> None:
    """Raise InputError if this machine lacks the accelerator. Lightning would raise only after reading the data."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    available = {"gpu": cuda or mps, "cuda": cuda, "mps": mps, "tpu": find_spec("torch_xla") is not None}
    if name is not None and not available.get(name, True):
        raise InputError(f"trainer.accelerator={name}", "PyTorch sees no such device", "set trainer.accelerator=cpu")


def resolve_loss(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a loss, with default values for missing arguments (see `resolve_model`)."""
    return _resolve("loss", locate_subclass(settings["_target_"], nn.Module, "loss._target_"), settings, OFFERED)


def resolve_optimizer(settings: Mapping[str, Any]) -> Config:
    """Return the settings of an optimizer. It is built for small weights to check the values."""
    located = locate_subclass(settings["_target_"], torch.optim.Optimizer, "optimizer._target_")
    # The task sets weight decay per parameter group, of an optimizer that takes it.
    of_task = [name for name in OF_TASK if name != "weight_decay" or arguments_of(located).accepts(name)]
    settings = _resolve("optimizer", located, settings, ["params"], of_task)
    arguments = {name: value for name, value in settings.items() if name not in of_task}
    if package_of(settings["_target_"]) == "torch":  # third-party optimizers may accept infinity
        require_finite("optimizer", arguments)
    _try_optimizer(arguments)
    return settings


def _try_optimizer(settings: Config) -> None:
    """Raise InputError unless the optimizer can be built with two groups, as `SequenceTask.make_optimizer` does."""
    groups = [{"params": [nn.Parameter(torch.zeros(shape))]} for shape in ((1, 1), (1,))]
    build(settings, torch.optim.Optimizer, "optimizer._target_", params=groups)


def resolve_model(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a network and its encoder, with defaults for missing arguments of this package.

    Raises InputError for a value of a wrong type, for an argument that no class takes, and for a missing one.
    """
    network = locate_subclass(settings["_target_"], SequenceNetwork, "model._target_")
    _require_arguments("model", network, OF_MODEL)
    if issubclass(network, SequenceClassifier) and arguments_of(network).takes_any:
        settings = _resolve_classifier(network, settings)
    else:
        settings = _resolve("model", network, settings, OF_MODEL, RUN_SETTINGS)
    check_members(network, settings.get("members", 1))
    return settings


def resolve_for_data(settings: Config, dataset: Mapping[str, Any]) -> tuple[Config, str]:
    """Return the settings of a network that follow from the data, and a text that explains them, empty without any.

    The `config_class` of a network resolves them (see `HeadsConfig`). `dataset`: see `Dataset.description()`.
    """
    network: Any = locate(settings["_target_"])
    if not hasattr(network, "config_class"):
        return settings, ""
    resolved, text = network.config_class.resolve(settings, dataset)
    return resolve_model(resolved), text


def _resolve(
    key: str, located: type, settings: Mapping[str, Any], provided: Collection[str], others: Collection[str] = ()
) -> Config:
    """`provided`: arguments that the settings may not name. `others`: settings that are not arguments."""
    arguments = {name: value for name, value in settings.items() if name not in ("_target_", *others)}
    check_arguments(key, located, arguments, provided)
    check_values(key, located, arguments)
    return {**settings, **_missing(located, {*settings, *provided})}


def _missing(owner: type, named: Collection[str]) -> Config:
    defaults = {} if is_foreign(owner.__module__) else defaults_of(owner)
    return {name: value for name, value in defaults.items() if name not in named}


def _require_arguments(key: str, located: type, names: Collection[str]) -> None:
    for name in names:
        if not arguments_of(located).accepts(name):
            where = f"{key}._target_={located.__module__}.{located.__qualname__}"
            raise InputError(where, f"must take the argument {name}")


def _resolve_classifier(network: type[SequenceClassifier], settings: Mapping[str, Any]) -> Config:
    """Arguments of the encoder may be in the block `encoder` or in the block `model` itself."""
    if not isinstance(settings.get("encoder"), Mapping) or "_target_" not in settings["encoder"]:
        raise InputError("model.encoder._target_", "missing", "name the class of the encoder, or set model=lstm")
    block = {name: value for name, value in settings["encoder"].items() if name != "_target_"}
    encoder = locate_subclass(settings["encoder"]["_target_"], SequenceEncoder, "model.encoder._target_")
    _require_arguments("model.encoder", encoder, ["input_size"])
    of_encoder = arguments_of(encoder).without(OF_ENCODER)
    require_known("model.encoder", block, of_encoder)
    fixed = (*OF_MODEL, *network.fixed_arguments)
    owners = [arguments_of(owner).without(fixed) for owner in (network, SequenceClassifier)]
    of_classifier = [name for taken in owners for name in taken.names]
    if repeated := [name for name in block if name in settings and name not in of_classifier]:
        raise InputError(f"model.encoder.{repeated[0]}", f"repeats model.{repeated[0]}", "set that one")
    settings = {**settings, "encoder": dict(settings["encoder"])}
    above = {name: value for name, value in settings.items() if name not in ("_target_", *RUN_SETTINGS)}
    if is_foreign(settings["_target_"]):  # a third-party class may take any argument, and set encoder arguments itself
        require_complete("model", settings, owners[0])
    else:
        names = [*dict.fromkeys([*of_classifier, *of_encoder.names])]
        owner = f"{network.__qualname__} or {encoder.__qualname__}"
        require_known("model", above, of_encoder._replace(owner=owner, names=names))
        defaults = _missing(encoder, {*above, *block, *of_classifier, *OF_ENCODER})
        for part in (SequenceClassifier, network):
            defaults |= _missing(part, {*above, *fixed})
        settings, above = {**settings, **defaults}, {**above, **defaults}
        for taken in owners:
            require_complete("model", above, taken)
        for name, kind in target_kinds(encoder).items():  # may be set to the name of a built-in cell
            if name in of_encoder.required:
                locate_part({**above, **block}.get(name), kind, f"model.encoder.{name}")
        require_complete("model", {*above, *block}, of_encoder)
    of_encoder_above = {name: value for name, value in above.items() if name not in of_classifier}
    for part in (network, SequenceClassifier):
        check_values("model", part, settings)
    for key, arguments in (("model", of_encoder_above), ("model.encoder", block)):
        check_values(key, encoder, arguments)
        _check_parts(key, encoder, arguments)
    # Third-party code, such as a recurrent cell in the block, may not work on the device `meta`.
    # An encoder that reads the specs of the fields can be built only after the data is read.
    foreign = any(is_foreign(target) for _, target in targets(settings["encoder"], "model.encoder"))
    if not foreign and not arguments_of(encoder).accepts("field_specs"):
        arguments = {name: value for name, value in of_encoder_above.items() if of_encoder.accepts(name)}
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            network.check_encoder(build({**settings["encoder"], **arguments}, SequenceEncoder, input_size=1))
    return settings


def _check_parts(group: str, encoder: type, settings: Mapping[str, Any]) -> None:
    """A third-party encoder may use a dict as it likes, unless the argument has a type with `TargetOf`."""
    kinds = target_kinds(encoder)
    for name, part in settings.items():
        is_part = isinstance(part, Mapping) and "_target_" in part
        if is_part and (name in kinds or not is_foreign(encoder.__module__)):
            key = f"{group}.{name}"
            located = locate_part(part, kinds.get(name, nn.Module), key)
            arguments = {argument: value for argument, value in part.items() if argument != "_target_"}
            require_known(key, arguments, arguments_of(located))
            require_complete(key, arguments, arguments_of(located).without(OF_PART))
            check_values(key, located, arguments)
