"""Settings of a benchmark from the config of `python -m seqclf.bench`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from seqclf.benchmark.modes import MODES, BenchmarkSettings
from seqclf.benchmark.workload import LENGTH_DISTRIBUTIONS
from seqclf.config.instantiate import Config, is_foreign, locate
from seqclf.errors import InputError
from seqclf.models.classifier import SequenceClassifier
from seqclf.training.check_targets import resolve_model

PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")
BUILT_IN = "set model=lstm or another model of this package"
NOISE_OPTIONS = ("dropout", "token_dropout", "number_noise")


def build_settings(config: Mapping[str, Any], written: Collection[str]) -> BenchmarkSettings:
    """Check a config, choose the device and set PyTorch's threads. Raise InputError for values that cannot run.

    `written`: keys that the user wrote, which a model must take (see `resolve_model`).
    """
    _check_choices(config)
    _check_network(config["model"])
    device = _choose_device(config["device"])
    if config["precision"] == "16-mixed" and device == "cpu":
        raise InputError("precision=16-mixed", "needs an NVIDIA device", "set precision=bf16-mixed")
    if config["runtime"]["threads"]:
        torch.set_num_threads(config["runtime"]["threads"])
    # As in training, or the denormal gradients of long sequences would be timed.
    torch.set_flush_denormal(config["runtime"]["flush_denormal"])
    return BenchmarkSettings(
        model=model_without_noise(resolve_model(config["model"], written)),
        learning_rate=config["optimizer"]["lr"],
        device=device,
        precision=config["precision"],
        seed=config["seed"],
    )


def model_without_noise(model_config: Mapping[str, Any]) -> Config:
    """Return a config of conf/model without `layout`, which the modes set, and as a single network.

    Dropout and other noise is off, so that all modes compute the same numbers.
    """
    settings = {key: value for key, value in model_config.items() if key != "layout"}
    return settings | {"members": 1} | {name: 0.0 for name in NOISE_OPTIONS if name in settings}


def _check_choices(config: Mapping[str, Any]) -> None:
    if config["precision"] not in PRECISIONS:
        raise InputError(f"precision={config['precision']}", f"must be one of {', '.join(PRECISIONS)}")
    if config["device"] not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={config['device']}", "must be auto, cpu or cuda")
    for key, choices in (("modes", list(MODES)), ("lengths", list(LENGTH_DISTRIBUTIONS))):
        unknown = [name for name in config[key] if name not in choices]
        if unknown or not config[key]:
            raise InputError(f"{key}={unknown[0] if unknown else '[]'}", f"must be some of {', '.join(choices)}")
    if not {"dynamic", "static"} <= set(config["modes"]):
        raise InputError("modes", "must hold dynamic and static, which are compared")


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
