"""Checks of each `_target_` in a training config: it can be imported, is the right class and takes the given arguments.

These checks import PyTorch but read no data, so a mistake is reported before hours of data preparation.
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
    Arguments,
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
from seqclf.errors import InputError, first_line
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.encoder import SequenceEncoder
from seqclf.models.ensemble import check_members
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
    """Build the callbacks of a list of `_target_` dicts.

    Raises InputError, which names the config key, if a callback rejects an argument value.

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
OF_ENCODER = ("input_size",)  # arguments that every encoder gets from its classifier
OFFERED_TO_ENCODER = ("field_specs",)  # arguments that an encoder gets from its classifier if it takes them
OF_PART = (*OF_ENCODER, "hidden_size", *OFFERED_TO_ENCODER)  # arguments that a part of an encoder gets from the encoder
NOT_OF_MODEL = ("_target_", *RUN_SETTINGS)  # `members` is the number of networks of an ensemble, see `build_classifier`
# `make_optimizer` sets weight decay per parameter group.
NOT_OF_OPTIMIZER = ("_target_", "schedule", "average", "weight_decay")


def resolve_targets(config: TrainConfig) -> TrainConfig:
    """Return a config whose model, loss and optimizer blocks are checked and have all arguments of their classes.

    Raises InputError for an unknown key, for a missing key, and for a class that cannot be imported.
    """
    callbacks = config.trainer.get("callbacks")
    if callbacks:
        check_callbacks(callbacks)
    check_accelerator(config.trainer.get("accelerator"))
    resolved = {
        "model": resolve_model(config.model),
        "loss": resolve_loss(config.loss),
        "optimizer": resolve_optimizer(config.optimizer),
    }
    model = resolved["model"]
    for key, _, change in read_schedule(config.structure):
        model = changed_config(model, change.of_model(), key)
    return config.model_copy(update=resolved)


def check_accelerator(name: str | None) -> None:
    """Raise InputError if this machine lacks the accelerator. Lightning would raise only after reading the data."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    available = {"gpu": cuda or mps, "cuda": cuda, "mps": mps, "tpu": find_spec("torch_xla") is not None}
    if name is not None and not available.get(name, True):
        raise InputError(f"trainer.accelerator={name}", "PyTorch sees no such device", "set trainer.accelerator=cpu")


def resolve_model(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a network and its encoder, with default values for missing arguments.

    Values are checked against their declared types. Classes of other packages get no default values. Raises InputError
    for an argument that no class takes, and for a missing one.
    """
    network = locate_subclass(settings["_target_"], SequenceNetwork, "model._target_")
    taken = arguments_of(network)
    for name in OF_MODEL:
        if not taken.accepts(name):
            raise InputError(f"model._target_={settings['_target_']}", f"must take the argument {name}")
    taken = taken.without(OF_MODEL)
    if issubclass(network, SequenceClassifier) and taken.takes_any:
        settings = _resolve_classifier(network, taken, settings)
    else:
        settings = _resolve("model", network, settings, taken, NOT_OF_MODEL)
    check_values("model", network, settings)
    check_members(network, settings.get("members", 1))
    return settings


def resolve_for_data(settings: Config, dataset: Mapping[str, Any]) -> tuple[Config, str]:
    """Return the settings of a network that follow from the data, and a text that explains them.

    A network may have the method `for_data(settings, dataset)`, which returns both (see `HeadsClassifier`). Other
    networks keep their settings, and the text is empty. `dataset`: see `Dataset.description()`.
    """
    network: Any = locate(settings["_target_"])
    if not hasattr(network, "for_data"):
        return settings, ""
    resolved, text = network.for_data(settings, dataset)
    return resolve_model(resolved), text


def _resolve_classifier(network: type[SequenceClassifier], taken: Arguments, settings: Mapping[str, Any]) -> Config:
    """Return the settings of a classifier that passes the arguments of its encoder on to it.

    Arguments of the encoder may be in the block `encoder` or in the block `model` itself.
    """
    if not isinstance(settings.get("encoder"), Mapping) or "_target_" not in settings["encoder"]:
        raise InputError("model.encoder._target_", "missing", "name the class of the encoder, or set model=lstm")
    block = dict(settings["encoder"])
    located = locate_subclass(block["_target_"], SequenceEncoder, "model.encoder._target_")
    of_encoder = arguments_of(located)
    for name in OF_ENCODER:
        if not of_encoder.accepts(name):
            raise InputError(f"model.encoder._target_={block['_target_']}", f"must take the argument {name}")
    reads_specs = set(OFFERED_TO_ENCODER) <= set(of_encoder.names)
    of_encoder = of_encoder.without([*OF_ENCODER, *OFFERED_TO_ENCODER])
    require_known("model.encoder", [name for name in block if name != "_target_"], of_encoder)
    of_base = arguments_of(SequenceClassifier).without([*OF_MODEL, *network.fixed_arguments])
    of_classifier = [*taken.names, *of_base.names]
    if repeated := [name for name in block if name in settings and name not in ("_target_", *of_classifier)]:
        name = repeated[0]
        raise InputError(f"model.encoder.{name}", f"repeats model.{name}", "set that one")
    either = Arguments(
        owner=f"{network.__qualname__} or {located.__qualname__}",
        names=[*dict.fromkeys([*of_classifier, *of_encoder.names])],
        required=[*dict.fromkeys([*taken.required, *of_base.required])],
        takes_any=of_encoder.takes_any,
    )
    settings = {**settings, "encoder": block}
    if is_foreign(settings["_target_"]):  # a third-party class may take any argument, and set encoder arguments itself
        require_complete("model", settings, taken)
    else:
        require_known("model", [name for name in settings if name not in NOT_OF_MODEL], either)
        settings |= _missing(located, {*settings, *block, *of_classifier, *OFFERED_TO_ENCODER})
        settings |= _missing(SequenceClassifier, {*settings, *network.fixed_arguments}) | _missing(network, settings)
        require_complete("model", settings, taken._replace(required=either.required))
        _require_parts(located, {**settings, **block}, of_encoder)
        require_complete("model", {*settings, *block}, of_encoder)
    check_values("model", SequenceClassifier, settings)
    check_values("model.encoder", located, block)
    of_encoder_alone = {name: value for name, value in settings.items() if name not in ("encoder", *of_classifier)}
    check_values("model", located, of_encoder_alone)
    _check_parts("model", located, of_encoder_alone)
    _check_parts("model.encoder", located, block)
    # Third-party code, such as a recurrent cell in the block, may not work on the device `meta`.
    # An encoder that reads the specs of the fields can be built only after the data is read.
    if not reads_specs and not any(is_foreign(target) for _, target in targets(block, "model.encoder")):
        _check_encoder(network, {**of_encoder_alone, **block}, of_encoder)
    return settings


def _missing(owner: type, named: Collection[str]) -> Config:
    """Return the default values of the arguments of `owner` that are not in `named`.

    The returned dict is empty for a third-party class.
    """
    defaults = {} if is_foreign(owner.__module__) else defaults_of(owner)
    return {name: value for name, value in defaults.items() if name not in named}


def _require_parts(encoder: type, settings: Mapping[str, Any], taken: Arguments) -> None:
    """Raise InputError if a required part of `encoder`, such as a recurrent cell, names no class in `settings`.

    The setting may be the default value of another encoder, such as the name of a built-in cell.
    """
    for name, kind in target_kinds(encoder).items():
        if name in taken.required:
            locate_part(settings.get(name), kind, f"model.encoder.{name}")


def _check_parts(group: str, encoder: type, settings: Mapping[str, Any]) -> None:
    """Raise InputError if the config of a part of an encoder, such as a recurrent cell, has a wrong argument.

    A third-party encoder may use a dict as it likes, unless the argument has a type with `TargetOf`. `group`: config
    key of `settings`.
    """
    kinds = target_kinds(encoder)
    for name, part in settings.items():
        if not (isinstance(part, Mapping) and "_target_" in part):
            continue
        if name in kinds or not is_foreign(encoder.__module__):
            key = f"{group}.{name}"
            located = locate_part(part, kinds.get(name, nn.Module), key)
            arguments = {argument: value for argument, value in part.items() if argument != "_target_"}
            require_known(key, arguments, arguments_of(located))
            require_complete(key, arguments, arguments_of(located).without(OF_PART))
            check_values(key, located, arguments)


def _check_encoder(network: type[SequenceClassifier], settings: Config, taken: Arguments) -> None:
    """Raise InputError if the arguments of an encoder contradict each other, or if `network` cannot use the encoder.

    The encoder is built on the meta device, without memory for its weights. The input size 1 stands for any input size.
    """
    arguments = {name: value for name, value in settings.items() if name == "_target_" or taken.accepts(name)}
    with torch.device("meta"), torch.random.fork_rng(devices=[]):
        network.check_encoder(build(arguments, SequenceEncoder, input_size=1))


def resolve_loss(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a loss, with default values for missing arguments (see `resolve_model`)."""
    located = locate_subclass(settings["_target_"], nn.Module, "loss._target_")
    resolved = _resolve("loss", located, settings, arguments_of(located).without(OFFERED), ["_target_"])
    check_values("loss", located, resolved)
    return resolved


def resolve_optimizer(settings: Mapping[str, Any]) -> Config:
    """Return the settings of an optimizer. It is built and tried on small weights to check the values."""
    located = locate_subclass(settings["_target_"], torch.optim.Optimizer, "optimizer._target_")
    taken = arguments_of(located).without(["params"])
    ignored = [name for name in NOT_OF_OPTIMIZER if name != "weight_decay" or taken.accepts(name)]
    settings = _resolve("optimizer", located, settings, taken, ignored)
    arguments = {name: value for name, value in settings.items() if name not in ignored}
    if package_of(settings["_target_"]) == "torch":  # third-party optimizers may accept infinity
        require_finite("optimizer", arguments)
    _try_optimizer({"_target_": settings["_target_"], **arguments})
    return settings


def _try_optimizer(settings: Config) -> None:
    """Raise InputError unless the optimizer can be built with two parameter groups and can take one step.

    `SequenceTask.make_optimizer` builds two parameter groups as well.
    """
    key = f"optimizer._target_={settings['_target_']}"
    matrix, vector = (nn.Parameter(torch.zeros(shape)) for shape in ((1, 1), (1,)))
    build(settings, torch.optim.Optimizer, "optimizer._target_", params=[matrix])
    try:
        optimizer = build(settings, torch.optim.Optimizer, params=[{"params": [matrix]}, {"params": [vector]}])
        if optimizer.__module__.startswith("torch."):  # third-party optimizers may need a GPU or a whole model
            matrix.grad, vector.grad = torch.zeros_like(matrix), torch.zeros_like(vector)
            optimizer.step()
    except (InputError, RuntimeError) as error:
        reason = error.problem if isinstance(error, InputError) else first_line(error)
        raise InputError(
            key, f"cannot train all weights of a model ({reason})", "choose another, such as torch.optim.AdamW"
        ) from None


def _resolve(
    key: str, located: type, settings: Mapping[str, Any], taken: Arguments, ignored: Collection[str]
) -> Config:
    """Return settings with default values for missing arguments of the class `located`.

    `taken`: arguments that the settings may name. `ignored`: names of further settings. Raises InputError for an
    unknown argument and for a missing one.
    """
    require_known(key, [name for name in settings if name not in ignored], taken)
    defaults = _missing(located, settings)
    resolved = {**settings, **{name: value for name, value in defaults.items() if name in taken.names}}
    require_complete(key, resolved, taken.without(ignored))
    return resolved
