"""Find the config keys that the user wrote. All other keys come only from the config files of this package.

The commands need these keys if the user sets another `_target_`, because the config still contains the keys of the
default class. If the new class does not take a key that the user wrote, the command ends with an error. If the new
class does not take a key of the default class, the key is dropped (see `drop_unused`).
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

from seqclf.config.composition import CONF, Composition, config_loader
from seqclf.config.hydra_command import typed_overrides


def written_keys() -> set[str]:
    """Return the dotted keys that the user of the running command wrote.

    The result also has the parents of each key, such as `model` for `model.cell`.

    The user wrote a key if it is on the command line or in a config file of the user. All config files outside of this
    package are files of the user.
    """
    return written_with(typed_overrides())


def written_with(overrides: Sequence[str]) -> set[str]:
    """Return the keys that the user would have written with other overrides of the running command."""
    loader = GlobalHydra.instance().config_loader()
    return _written_keys(loader, str(HydraConfig.get().job.config_name), overrides)


def keys_written_in(composition: Composition) -> set[str]:
    """Return the keys that the user wrote, for a config that was composed by a Python program (see `written_keys`).

    >>> from seqclf.config.composition import compose_config
    >>> sorted(keys_written_in(compose_config("train", ["seed=1", "model.cell=gru"])))
    ['model', 'model.cell', 'seed']
    """
    with config_loader() as loader:
        return _written_keys(loader, composition.name, composition.overrides)


def _written_keys(loader: ConfigLoader, name: str, overrides: Sequence[str]) -> set[str]:
    keys = {key for text in overrides for key in _override_keys(text)}
    for default in loader.compute_defaults_list(name, list(overrides), RunMode.RUN).defaults:
        keys |= set(_file_keys(loader, default))
    return keys


def _override_keys(text: str) -> Iterator[str]:
    """Yield the dotted keys that an override sets, such as `model.kernel=5` or `model.encoder={kernel: 5}`.

    >>> sorted(set(_override_keys("+model.encoder={kernel: 5}")))
    ['model', 'model.encoder', 'model.encoder.kernel']
    >>> list(_override_keys("~model.cell"))
    []
    """
    override = OverridesParser.create().parse_override(text)
    if not override.is_delete():
        yield from _keys_at(str(override.package or override.key_or_group), override.value())


def _file_keys(loader: ConfigLoader, default: ResultDefault) -> Iterator[str]:
    """Yield the dotted keys of a config file that belongs to the user.

    Yield nothing for a file of this package or of Hydra.
    """
    path = default.config_path
    source = next((source for source in loader.get_sources() if path and source.is_config(path)), None)
    if source is None or source.provider in ("hydra", "schema") or Path(source.path).resolve() == CONF.resolve():
        return
    content: Any = OmegaConf.to_container(source.load_config(str(path)).config, resolve=False)
    content.pop("defaults", None)
    yield from _keys_at(default.package or "", content)


def _keys_at(path: str, value: Any) -> Iterator[str]:
    """Yield all parents of a key, the key itself, and all keys nested in its value.

    `path`: dotted key, "" for the whole config. `value`: value of the key.
    """
    parts = path.split(".") if path else []
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))
    for name, part in value.items() if isinstance(value, dict) else ():
        yield from _keys_at(f"{path}.{name}".lstrip("."), part)
