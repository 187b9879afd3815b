"""Settings of a benchmark from the config of `python -m seqclf.bench`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, cast

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from seqclf.bench.mode_trainer import BenchmarkSettings
from seqclf.bench.options import ALL_MODELS, BenchConfig
from seqclf.config.command_line import typed_command
from seqclf.config.hydra_command import check_config, typed_overrides, user_error
from seqclf.config.override_checks import TypedArguments
from seqclf.config.suggestions import must_be_one_of
from seqclf.config.targets import Config, is_foreign, locate
from seqclf.config.user_keys import written_with
from seqclf.errors import InputError
from seqclf.models.classifier import SequenceClassifier
from seqclf.training.check_targets import resolve_model

BUILT_IN = "set model=lstm or another model of this package"
NOISE_OPTIONS = ("dropout", "token_dropout", "number_noise")


def build_settings(config: BenchConfig, written: Collection[str]) -> BenchmarkSettings:
    """Choose the device and set PyTorch's threads. Raise InputError for values that cannot run.

    `written`: keys that the user wrote, which a model must take (see `resolve_model`).
    """
    _check_network(config.model)
    device = _choose_device(config.device)
    if config.precision == "16-mixed" and device == "cpu":
        raise InputError("precision=16-mixed", "needs an NVIDIA device", "set precision=bf16-mixed")
    if config.runtime.threads:
        torch.set_num_threads(config.runtime.threads)
    # As in training, or the denormal gradients of long sequences would be timed.
    torch.set_flush_denormal(config.runtime.flush_denormal)
    return BenchmarkSettings(
        model=model_without_noise(resolve_model(config.model, written)),
        learning_rate=config.optimizer["lr"],
        device=device,
        precision=config.precision,
        seed=config.seed,
    )


def model_without_noise(model_config: Mapping[str, Any]) -> Config:
    """Return a config of conf/model without `layout`, which the modes set, and as a single network.

    Dropout and other noise is off, so that all modes compute the same numbers.
    """
    settings = {key: value for key, value in model_config.items() if key != "layout"}
    return settings | {"members": 1} | {name: 0.0 for name in NOISE_OPTIONS if name in settings}


def _check_network(model: Mapping[str, Any]) -> None:
    """Raise InputError unless network and encoder are of this package, so that modes compute the same numbers."""
    network = locate(model["_target_"], "model._target_")
    if is_foreign(model["_target_"]) or not issubclass(network, SequenceClassifier):
        raise InputError(f"model._target_={model['_target_']}", "cannot be timed", BUILT_IN)
    encoder = model["encoder"]["_target_"]
    if is_foreign(encoder):
        raise InputError(f"model.encoder._target_={encoder}", "cannot be timed", BUILT_IN)


def _choose_device(name: str) -> str:
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise InputError("device=cuda", "PyTorch sees no NVIDIA device", "set device=cpu")
    if name == "auto":
        return "cuda" if available else "cpu"
    return name


# The config of the running benchmark with each of the models that it compares.

COMMAND, OPTIONS = "bench", "seqclf.bench.options.BenchConfig"
OF_MODES = ("modes", "leak_steps")  # keys that a comparison of models does not use


def configs_by_model(config: BenchConfig) -> dict[str, tuple[BenchConfig, set[str]]]:
    """Return the config with each model of `models`, the reference first, and the keys that the user wrote.

    Overrides other than the model hold for all of them.
    """
    typed = typed_overrides()
    keys = {_key(text): text for text in typed}
    for key in OF_MODES:
        if key in keys:
            raise InputError(keys[key], "has no effect beside models, which are timed in the mode dynamic", "remove it")
    names = _names(config, keys)
    rest = [text for text in typed if _key(text) not in ("model", "models")]
    return {name: _compose([f"model={name}", "models=null", *rest]) for name in names}


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def _names(config: BenchConfig, typed_keys: Collection[str]) -> list[str]:
    """Return the names of the models, of which `all` takes the chosen one first."""
    chosen = HydraConfig.get().runtime.choices["model"]
    choices = typed_command(COMMAND, sys.argv[1:]).choices("model")
    if config.models == ALL_MODELS:
        return sorted(choices, key=lambda name: (name != chosen, name))
    names = list(config.models or ())
    for name in names:
        if name not in choices:
            raise InputError(f"models={name}", *must_be_one_of(name, choices))
        if names.count(name) > 1:
            raise InputError("models", f"names {name} twice")
    if "model" in typed_keys and chosen not in names:
        raise InputError(f"model={chosen}", "has no effect beside models", "name it there")
    return names


def _compose(overrides: list[str]) -> tuple[BenchConfig, set[str]]:
    """Return the checked config that the overrides give, with the config folders of the running command.

    The keys that the user wrote come second (see `config.user_keys`).
    """
    try:
        composed = GlobalHydra.instance().config_loader().load_configuration(COMMAND, overrides, RunMode.RUN)
        groups = composed.hydra.runtime.choices
        with read_write(composed), open_dict(composed):
            del composed["hydra"]
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        config = cast(BenchConfig, check_config(COMMAND, OPTIONS, plain, overrides, groups))
        return config, written_with(overrides)
    except (InputError, HydraException, OmegaConfBaseException) as error:
        raise user_error(error, TypedArguments(COMMAND, overrides, OPTIONS)).within(overrides[0]) from None
