"""Keys of a config that the user wrote, in contrast to those that the config files of this package bring.

Switching a `_target_` leaves the keys of the class that its config file was made for. Those that the user wrote are
meant for the new class, so one that it does not take is an error; the others only give way (see `drop_unused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import OmegaConf

from seqclf.config.composition import CONF, Composition, version_base
from seqclf.config.hydra_command import typed_overrides


def written_keys() -> set[str]:
    """Return the dotted keys that the running command got from the user, with the groups above them.

    A key is written if it is on the command line, or in a config file outside of this package that the command has
    composed: a file of `--config-dir`, a file in its defaults list, or another experiment.
    """
    return written_with(typed_overrides())


def written_with(overrides: Sequence[str]) -> set[str]:
    """Return the same keys of the running command with other overrides."""
    loader = GlobalHydra.instance().config_loader()
    return _written_keys(loader, str(HydraConfig.get().job.config_name), overrides)


def keys_written_in(composition: Composition) -> set[str]:
    """Return the same keys of a config that a program has composed.

    >>> from seqclf.config.composition import compose_config
    >>> sorted(keys_written_in(compose_config("train", ["seed=1", "model.cell=gru"])))
    ['model', 'model.cell', 'seed']
    """
    with version_base():
        return _written_keys(composition.loader, composition.name, composition.overrides)


def _written_keys(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> set[str]:
    keys = {key for text in overrides for key in _override_keys(text)}
    for default in loader.compute_defaults_list(name, list(overrides), RunMode.RUN).defaults:
        keys |= set(_file_keys(loader, default))
    return keys


def _override_keys(text: str) -> Iterator[str]:
    """Yield the keys of one argument, `model.kernel=5` or `model.encoder={kernel: 5}`.

    >>> list(_override_keys("+model.encoder={kernel: 5}"))
    ['model', 'model.encoder', 'model.encoder.kernel']
    >>> list(_override_keys("~model.cell"))
    []
    """
    override = OverridesParser.create().parse_override(text)
    if override.is_delete():
        return
    key = str(override.package or override.key_or_group)
    yield from _with_groups(key)
    value = override.value()
    if isinstance(value, dict):
        yield from _dotted(value, f"{key}.")


def _file_keys(loader: ConfigLoader, default: ResultDefault) -> Iterator[str]:
    """Yield the keys of a config file, none if it is of this package or of Hydra."""
    path = default.config_path
    source = next((source for source in loader.get_sources() if path and source.is_config(path)), None)
    if source is None or source.provider in ("hydra", "schema") or Path(source.path).resolve() == CONF.resolve():
        return
    content: Any = OmegaConf.to_container(source.load_config(str(path)).config, resolve=False)
    content.pop("defaults", None)
    package = default.package or ""
    if package:
        yield from _with_groups(package)
    yield from _dotted(content, f"{package}." if package else "")


def _with_groups(key: str) -> Iterator[str]:
    parts = key.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def _dotted(values: dict[Any, Any], above: str) -> Iterator[str]:
    for key, value in values.items():
        yield f"{above}{key}"
        if isinstance(value, dict):
            yield from _dotted(value, f"{above}{key}.")
