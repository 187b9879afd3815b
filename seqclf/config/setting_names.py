"""Settings of finished runs: what tells their configs apart, as overrides of the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from seqclf.config.documentation import Command, flat_keys
from seqclf.config.override_text import hydra_value

# Keys of conf/train.yaml that change nothing about the trained model.
NOT_OF_FIT = ("checkpoint", "overwrite", "export", "logger", "baseline", "baseline_limit", "order_ablation")


def settings_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a training depends on, except for its seed, as a dict dotted key → value.

    Of a group such as `model`, a config holds the keys but not the name of its choice. The name is that of the choice
    in conf/ that differs in the fewest keys, or a class that conf/ lacks. `config`: the content of config.yaml.
    """
    command, kept = Command("train"), {key: part for key, part in config.items() if key not in (*NOT_OF_FIT, "seed")}
    keys, names = flat_keys(kept), {}
    for group in filter(kept.__contains__, command.groups):
        own = {(key, str(value)) for key, value in keys.items() if key.startswith(f"{group}.")}
        choices = {name: command.choice_keys(group, name) for name in command.choices(group)}
        target = f"{group}._target_"
        # A run replaces the value auto by one that follows from its data.
        distance = {
            name: len({(key, str(value)) for key, value in found.items() if value != "auto"} ^ own)
            for name, found in choices.items()
            if found.get(target) == keys.get(target)
        }
        names[group] = min(distance, key=distance.__getitem__, default=keys.get(target))
    return names | keys


def setting_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each setting (see `settings_of`): the overrides in which it differs from the others.

    A key of a group is named where it differs between settings of the same choice.

    >>> setting_names([{"model": "lstm", "model.layers": 1}, {"model": "gru", "model.layers": 2}])
    ['model=lstm', 'model=gru']
    >>> setting_names([{"model": "lstm", "model.layers": layers, "patience": None} for layers in (1, 2)])
    ['model.layers=1', 'model.layers=2']
    """

    def differs(one: Mapping[str, Any], key: str) -> bool:
        group = key.partition(".")[0]
        alike = (other for other in settings if key == group or other.get(group) == one.get(group))
        return any(other.get(key) != one.get(key) for other in alike)

    keys = dict.fromkeys(key for one in settings for key in one)
    return [" ".join(f"{key}={_text(one.get(key))}" for key in keys if differs(one, key)) for one in settings]


def _text(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else hydra_value(value)
