"""Build the contenders of a benchmark from the config of `python -m seqclf.bench`."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from typing import Any, cast

import torch
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf.errors import OmegaConfBaseException

from seqclf.bench.mode_trainer import MODES, Comparison, Contender, unavailable_modes
from seqclf.bench.options import BenchConfig
from seqclf.config.composition import Composition
from seqclf.config.documentation import Command
from seqclf.config.hints import must_be_one_of
from seqclf.config.hydra_command import check_config, config_folders, typed_overrides, user_error
from seqclf.config.override_checks import TypedArguments
from seqclf.config.override_text import key_of
from seqclf.config.targets import Config, is_foreign, locate, targets
from seqclf.config.user_keys import written_keys, written_with
from seqclf.documents.terminal import show_line
from seqclf.errors import InputError
from seqclf.models.classifier import SequenceClassifier
from seqclf.models.heads.network import HeadsClassifier
from seqclf.runs.process_settings import set_threads
from seqclf.training.check_targets import resolve_model

BUILT_IN = "set model=lstm or another model of this package"
NOISE_OPTIONS = ("dropout", "token_dropout", "number_noise")


def compose_comparison(config: BenchConfig) -> Comparison:
    """Return the comparison that a config describes: one model in several modes, or several models."""
    if config.models is not None:
        contenders = {name: build_contender(*composed) for name, composed in configs_by_model(config).items()}
        return Comparison("models", contenders, next(iter(contenders)))
    contender = build_contender(config, written_keys())
    unavailable = unavailable_modes(contender.model)
    for mode in sorted(unavailable.keys() & config.modes):
        show_line(f"{mode} is left out: {unavailable[mode]}")
    contenders = {mode: contender._replace(mode=MODES[mode]) for mode in config.modes if mode not in unavailable}
    return Comparison("modes", contenders, reference="static")


def build_contender(config: BenchConfig, written: Collection[str]) -> Contender:
    """Return the model of a config as a contender in the mode `dynamic`, and set the number of PyTorch threads.

    `written`: keys that the user wrote. Each written model key must be an argument of the model (see `resolve_model`).
    Raises InputError if the benchmark cannot run the model, or cannot run on the device or in the precision of the
    config.
    """
    _check_network(config.model)
    available = torch.cuda.is_available()
    if config.device == "cuda" and not available:
        raise InputError("device=cuda", "PyTorch sees no NVIDIA device", "set device=cpu")
    device = "cuda" if available and config.device != "cpu" else "cpu"
    if config.precision == "16-mixed" and device == "cpu":
        raise InputError("precision=16-mixed", "needs an NVIDIA device", "set precision=bf16-mixed")
    set_threads(config.runtime)
    # Round denormal numbers to 0, as in training. Computing with denormal numbers is so slow that it would dominate the
    # measured time.
    torch.set_flush_denormal(config.runtime.flush_denormal)
    return Contender(
        model=model_without_noise(resolve_model(config.model, written)),
        learning_rate=config.optimizer["lr"],
        device=device,
        precision=config.precision,
        seed=config.seed,
    )


def model_without_noise(model_config: Mapping[str, Any]) -> Config:
    """Return the model config without noise, without `layout` and with a single ensemble member.

    Dropout and other noise are set to 0, so that all modes compute the same numbers. The key `layout` is removed,
    because each mode sets its own layout.
    """
    settings = {key: value for key, value in model_config.items() if key != "layout"}
    return settings | {"members": 1} | {name: 0.0 for name in NOISE_OPTIONS if name in settings}


def _check_network(model: Mapping[str, Any]) -> None:
    """Raise InputError for a third-party network or encoder.

    A third-party model might compute different numbers in different modes.
    """
    network = locate(model["_target_"], "model._target_")
    if is_foreign(model["_target_"]) or not issubclass(network, (SequenceClassifier, HeadsClassifier)):
        raise InputError(f"model._target_={model['_target_']}", "cannot be timed", BUILT_IN)
    for key, target in targets({"encoder": model.get("encoder"), "heads": model.get("heads")}, "model"):
        if is_foreign(target):
            raise InputError(f"{key}={target}", "cannot be timed", BUILT_IN)


# A comparison of models needs one config for each model, so the benchmark config is composed once for each model.

COMMAND, OPTIONS = "bench", "seqclf.bench.options.BenchConfig"


def configs_by_model(config: BenchConfig) -> dict[str, tuple[BenchConfig, set[str]]]:
    """Return a dict model name → (config, keys that the user wrote), with one config for each compared model.

    The reference model comes first. The overrides on the command line apply to all configs, except the overrides of
    `model` and `models`.
    """
    typed = typed_overrides()
    keys = {key_of(text): text for text in typed}
    if "modes" in keys:
        raise InputError(keys["modes"], "has no effect beside models, which are timed in the mode dynamic", "remove it")
    names = _names(config, keys)
    rest = [text for text in typed if key_of(text) not in ("model", "models")]
    return {name: _compose([f"model={name}", "models=null", *rest]) for name in names}


def _names(config: BenchConfig, typed_keys: Collection[str]) -> list[str]:
    """Return the names of the compared models."""
    chosen = HydraConfig.get().runtime.choices["model"]
    choices = Command.typed(COMMAND, sys.argv[1:]).choices("model")
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
    """Return the validated config for a list of overrides, and the keys that the user wrote (see `config.user_keys`).

    The config is composed from the config folders of the running command.
    """
    typed = TypedArguments(COMMAND, [*config_folders(), *overrides], OPTIONS)
    try:
        loader = GlobalHydra.instance().config_loader()
        loaded = loader.load_configuration(COMMAND, overrides, RunMode.RUN)
        composed = Composition(COMMAND, overrides, loaded)
        return cast(BenchConfig, check_config(typed, composed.plain(), composed.choices)), written_with(overrides)
    except (InputError, HydraException, OmegaConfBaseException) as error:
        raise user_error(error, typed).within(overrides[0]) from None
