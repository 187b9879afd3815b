"""Checks of each `_target_` in a training config: it can be imported, is the right class and takes the given arguments.

They read no data, so a mistake is reported before hours of preparation. `resolve_task` gives a task its settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback
from torch import nn

from seqclf.config.build import (
    Arguments,
    Checked,
    Config,
    arguments_in,
    arguments_of,
    build,
    check,
    check_arguments,
    check_values,
    is_foreign,
    locate,
    locate_subclass,
    targets,
)
from seqclf.config.command_keys import default_settings
from seqclf.data.storage.dataset import DatasetDescription
from seqclf.errors import InputError, first_line
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.models.change_network import changed_config
from seqclf.models.classifier import EncoderClassifier, SequenceEncoder
from seqclf.models.ensemble import NO_STATIC, RUN_SETTINGS, check_members, reads_static
from seqclf.models.network import SequenceNetwork
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.train_settings import TrainConfig, read_schedule, with_run_settings
from seqclf.training.losses import OFFERED
from seqclf.training.own_metrics import resolve_metrics

OF_MODEL = ("fields", "num_classes")  # arguments that every network gets from the training
OF_ENCODER = ("input_size", "field_specs")  # arguments that an encoder gets from its classifier
OF_TASK = ("schedule", "average", "weight_decay")  # settings of an optimizer that the task uses itself


def resolve_targets(config: TrainConfig) -> TrainConfig:
    """Return a config whose model, loss and optimizer blocks are checked and have all arguments of their classes.

    Raises InputError for an unknown key, for a missing key, and for a class that cannot be imported.
    """
    check_callbacks(config.trainer.get("callbacks") or ())
    check_accelerator(config.trainer.get("accelerator"))
    model: Config = resolve_model(config.model)
    resolved = {"model": model, "loss": resolve_loss(config.loss), "optimizer": resolve_optimizer(config.optimizer)}
    for key, change in read_schedule(config.structure):
        model = changed_config(model, change.of_model(), key)
    return config.model_copy(
        update={**resolved, "metrics": resolve_metrics(config.metrics), "data": data_for(config.data, config.model)}
    )


def check_callbacks(callbacks: Sequence[Mapping[str, Any]]) -> None:
    """Raise InputError unless each entry names a Lightning callback and only arguments that the callback takes."""
    for index, settings in enumerate(callbacks):
        check(settings, Callback, (), f"trainer.callbacks[{index}]")


def build_callbacks(callbacks: Sequence[Mapping[str, Any]] | None) -> list[Callback]:
    """Build the callbacks of `_target_` dicts. Raises InputError, with the config key, for a wrong argument."""
    built: list[Callback] = []
    for index, settings in enumerate(callbacks or ()):
        try:
            built.append(build(settings, Callback, f"trainer.callbacks[{index}]._target_"))
        except MisconfigurationException as error:
            where = f"trainer.callbacks[{index}]._target_={settings['_target_']}"
            raise InputError(where, first_line(error)) from None
    return built


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


def resolve_loss(settings: Mapping[str, Any]) -> Checked:
    """Return the settings of a loss, with default values for missing arguments (see `check`)."""
    return check(settings, nn.Module, OFFERED, "loss")


def resolve_optimizer(settings: Mapping[str, Any]) -> Checked:
    """Return the settings of an optimizer. It is built for two groups of small weights to check the values."""
    if isinstance(settings, Checked):
        return settings
    located = locate_subclass(settings["_target_"], torch.optim.Optimizer, "optimizer._target_")
    # The task sets weight decay per parameter group, of an optimizer that takes it.
    of_task = [name for name in OF_TASK if name != "weight_decay" or arguments_of(located).accepts(name)]
    own = {name: value for name, value in settings.items() if name not in of_task}
    own = check(own, torch.optim.Optimizer, ["params"], "optimizer")
    groups = [{"params": [nn.Parameter(torch.zeros(shape))]} for shape in ((1, 1), (1,))]
    build(own, torch.optim.Optimizer, "optimizer._target_", params=groups)
    return Checked({**settings, **own})


def resolve_model(settings: Mapping[str, Any]) -> Checked:
    """Return the settings of a network and its encoder, with defaults for missing arguments of this package.

    Raises InputError for a value of a wrong type, for an argument that no class takes, and for a missing one.
    """
    if isinstance(settings, Checked):
        return settings
    network = locate_subclass(settings["_target_"], SequenceNetwork, "model._target_")
    taken = arguments_of(network)
    _require_accepted("model", settings, taken, OF_MODEL)
    if issubclass(network, EncoderClassifier) and taken.takes_any:
        settings = _resolve_classifier(network, settings)
    else:
        own = {name: value for name, value in settings.items() if name in taken.names or name not in RUN_SETTINGS}
        settings = {**settings, **check(own, SequenceNetwork, OF_MODEL, "model")}
    check_members(network, settings.get("members", 1))
    return Checked(settings)


def resolve_for_data(settings: Mapping[str, Any], dataset: Mapping[str, Any]) -> tuple[Checked, str]:
    """Return the settings of a network that follow from the data, and a text that explains them, empty without any.

    The `config_class` of a network resolves them (see `HeadsConfig`). `dataset`: see `Dataset.description()`.
    """
    settings = resolve_model(settings)
    network: Any = locate(settings["_target_"])
    if not hasattr(network, "config_class"):
        return settings, ""
    resolved, text = network.config_class.resolve(settings, dataset)
    return settings if resolved == settings else resolve_model(resolved), text


def _require_accepted(key: str, block: Mapping[str, Any], taken: Arguments, names: Collection[str]) -> None:
    if lacking := [name for name in names if not taken.accepts(name)]:
        raise InputError(f"{key}._target_={block['_target_']}", f"must take the argument {lacking[0]}")


def _resolve_classifier(network: type[EncoderClassifier], settings: Mapping[str, Any]) -> Config:
    """Arguments of the encoder may be in the block `encoder` or in the block `model` itself."""
    inner = settings.get("encoder")
    if not (isinstance(inner, Mapping) and "_target_" in inner):
        raise InputError("model.encoder._target_", "missing", "name the class of the encoder, or set model=lstm")
    encoder, block = locate_subclass(inner["_target_"], SequenceEncoder, "model.encoder._target_"), arguments_in(inner)
    _require_accepted("model.encoder", inner, arguments_of(encoder), ["input_size"])
    fixed = [*OF_MODEL, *network.fixed_arguments]
    of_network, of_base = (arguments_of(owner).without(fixed) for owner in (network, EncoderClassifier))
    of_classifier = {**of_network.defaults, **of_base.defaults, **of_network.defaults}
    of_encoder = arguments_of(encoder).without(OF_ENCODER)
    of_rest = of_encoder.without([*of_classifier, *block])  # arguments that can only be in the block `model`
    if repeated := [name for name in block if name in settings and name not in of_classifier]:
        raise InputError(f"model.encoder.{repeated[0]}", f"repeats model.{repeated[0]}", "set that one")
    above = {name: value for name, value in settings.items() if name not in ("_target_", *RUN_SETTINGS)}
    of_network.require_complete("model", above)
    if is_foreign(settings["_target_"]):  # a third-party class may take any argument, and set those of the encoder
        of_encoder, of_rest = (part._replace(defaults=dict.fromkeys(part.defaults)) for part in (of_encoder, of_rest))
    else:
        owner = f"{network.__qualname__} or {encoder.__qualname__}"
        known = of_encoder._replace(owner=owner, defaults={**of_classifier, **of_encoder.defaults})
        known.require_known("model", above)
        above = above if is_foreign(encoder.__module__) else of_rest.filled(above)
        above = of_network._replace(defaults=of_classifier).filled(above)
    rest = {name: value for name, value in above.items() if name not in of_classifier}
    for part in (network, EncoderClassifier):
        check_values("model", part, above)
    check_arguments("model.encoder", encoder, block, of_encoder.without(above.keys() - block.keys()))
    check_arguments("model", encoder, rest, of_rest._replace(takes_any=True))
    # Third-party code may not work on the device `meta`, and an encoder that reads specs needs the data.
    has_foreign = any(is_foreign(target) for _, target in targets(inner, ""))
    if not has_foreign and "field_specs" not in arguments_of(encoder).names:
        arguments = {name: value for name, value in rest.items() if of_encoder.accepts(name)}
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            network.check_encoder(build({**inner, **arguments}, SequenceEncoder, input_size=1))
    return {**settings, **above, "encoder": dict(inner)}


def resolve_task(
    dataset: DatasetDescription,
    model: Config | None,
    loss: Config | None,
    optimizer: Config | None,
    monitor: str | None,
    seed: int | None,
    frozen: Sequence[str] | None,
    metrics: Sequence[Config] | None,
) -> tuple[dict[str, Any], str]:
    """Return the arguments of `SequenceTask` as plain values, and what the network takes from the data, in words.

    Raises InputError for settings that cannot be used.
    """
    if not isinstance(dataset, Mapping):
        raise InputError("dataset", f"is of type {type(dataset).__name__}", "give Dataset.description()")
    resolved, text = resolve_for_data(_with_defaults("model", model), dataset)
    own = resolve_metrics(metrics or ())
    known = (*EPOCH_METRICS, *(block["name"] for block in own))
    if monitor not in (None, *known):
        raise InputError(f"monitor={monitor}", f"must be one of {', '.join(known)}")
    settings = {
        "dataset": dataset,
        "model": dict(resolved),
        "loss": dict(resolve_loss(_with_defaults("loss", loss))),
        "optimizer": _with_defaults("optimizer", optimizer),
        "monitor": monitor,
        "seed": default_settings("seed") if seed is None else seed,
        "frozen": list(frozen or ()),
        "metrics": own,
    }
    return settings, text


def _with_defaults(name: str, settings: Config | None) -> Config:
    if settings is None:
        return default_settings(name)
    if not isinstance(settings, Mapping):
        remedy = f'must be a mapping of settings, such as load_config(["{name}={settings}"])["{name}"]'
        raise InputError(f"{name}={settings!r}", remedy)
    if "_target_" not in settings:
        return {**default_settings(name), **settings}
    return settings if name != "model" or "members" in settings else with_run_settings(settings)
