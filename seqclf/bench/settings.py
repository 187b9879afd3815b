"""Build the contenders of a benchmark from the config of `python -m seqclf.bench`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from seqclf.bench.mode_trainer import Contender, unavailable_modes
from seqclf.bench.modes import MODES
from seqclf.bench.options import BenchConfig
from seqclf.config.targets import Config, is_foreign, targets
from seqclf.documents.terminal import show_line
from seqclf.errors import InputError
from seqclf.runs.processes.process_settings import set_threads
from seqclf.training.checks.check_targets import resolve_model

NOISE_OPTIONS = ("dropout", "token_dropout", "number_noise")


def compose_contenders(config: BenchConfig) -> dict[str, Contender]:
    """Return the model of a config in the modes that it can run in, as a dict mode → contender.

    The number of PyTorch threads is set. Raises InputError if the benchmark cannot run the model, or cannot run on the
    device or in the precision of the config.
    """
    for key, target in targets(config.model, "model"):
        if is_foreign(target):  # it might compute different numbers in different modes
            raise InputError(f"{key}={target}", "cannot be timed", "set model=lstm or another model of this package")
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
    model = model_without_noise(resolve_model(config.model))
    contender = Contender(model, config.optimizer["lr"], device, config.precision, config.seed)
    unavailable = unavailable_modes(model)
    for mode in sorted(unavailable.keys() & config.modes):
        show_line(f"{mode} is left out: {unavailable[mode]}")
    return {mode: contender._replace(mode=MODES[mode]) for mode in config.modes if mode not in unavailable}


def model_without_noise(model_config: Mapping[str, Any]) -> Config:
    """Return the model config without noise, without `layout` and with a single ensemble member.

    Dropout and other noise are set to 0, so that all modes compute the same numbers. The key `layout` is removed,
    because each mode sets its own layout.
    """
    settings = {key: value for key, value in model_config.items() if key != "layout"}
    return settings | {"members": 1} | {name: 0.0 for name in NOISE_OPTIONS if name in settings}
