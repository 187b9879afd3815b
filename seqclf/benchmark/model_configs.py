"""The config of the running benchmark with each of the models that it compares."""

from __future__ import annotations

import sys
from collections.abc import Collection
from typing import Any

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from seqclf.benchmark.options import ALL_MODELS, BenchConfig
from seqclf.config.command_line import typed_command
from seqclf.config.hydra_command import check_config, typed_overrides, user_error
from seqclf.config.instantiate import Config
from seqclf.config.suggestions import must_be_one_of
from seqclf.config.typed_arguments import TypedArguments
from seqclf.config.written_keys import written_with
from seqclf.errors import InputError

COMMAND, OPTIONS = "bench", "seqclf.benchmark.options.BenchConfig"
OF_MODES = ("modes", "leak_steps")  # keys that a comparison of models does not use


def configs_by_model(config: BenchConfig) -> dict[str, tuple[Config, set[str]]]:
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


def _compose(overrides: list[str]) -> tuple[Config, set[str]]:
    """Return the checked config that the overrides give, with the config folders of the running command.

    The keys that the user wrote come second (see `written_keys`).
    """
    try:
        composed = GlobalHydra.instance().config_loader().load_configuration(COMMAND, overrides, RunMode.RUN)
        groups = composed.hydra.runtime.choices
        with read_write(composed), open_dict(composed):
            del composed["hydra"]
        plain: Any = OmegaConf.to_container(composed, resolve=True, throw_on_missing=True)
        return check_config(COMMAND, OPTIONS, plain, overrides, groups).model_dump(), written_with(overrides)
    except (InputError, HydraException, OmegaConfBaseException) as error:
        raise user_error(error, TypedArguments(COMMAND, overrides, OPTIONS)).within(overrides[0]) from None
