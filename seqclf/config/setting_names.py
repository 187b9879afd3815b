"""Settings of finished runs: what tells their configs apart, as keys with values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from seqclf.settings.typed_text import hydra_value

# Keys of `train` that change nothing about the trained model.
NOT_OF_FIT = ("checkpoint", "overwrite", "export", "logger", "baseline", "baseline_limit")
CLASS = "._target_"
MAX_VALUE = 30  # characters of a value; a query has more


def setting_names(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a name for each setting, a dict dotted key → value: its keys with other values than in another setting.

    Networks of different classes have different keys, so other keys of a group are named where its classes are equal.

    >>> setting_names([{"model.cell": "lstm", "patience": 3}, {"model.cell": "gru", "patience": 3}])
    ['model.cell=lstm', 'model.cell=gru']
    >>> setting_names([{"model._target_": "mine.Net", "model.depth": 2}, {"model._target_": "mine.Tree"}])
    ['model=Net', 'model=Tree']
    >>> setting_names([{"data.fields": {"x": {"kind": kind}, "y": "number"}} for kind in ("number", "category")])
    ['data.fields.x.kind=number', 'data.fields.x.kind=category']
    """
    settings = [dict(leaf for entry in one.items() for leaf in _leaves(*entry)) for one in settings]
    keys = dict.fromkeys(key for one in settings for key in one)
    classes = [key for key in keys if key.endswith(CLASS)]

    def differs(one: Mapping[str, Any], key: str) -> bool:
        if key in classes:
            return key in one and any(other.get(key) != one[key] for other in settings)
        of_group = [name for name in classes if name.partition(".")[0] == key.partition(".")[0]]
        alike = (other for other in settings if all(other.get(name) == one.get(name) for name in of_group))
        return any(other.get(key) != one.get(key) for other in alike)

    return [" ".join(_text(key, one.get(key)) for key in keys if differs(one, key)) for one in settings]


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(value, Mapping) or not value:
        yield key, value
        return
    for name, part in value.items():
        yield from _leaves(f"{key}.{name}", part)


def _text(key: str, value: Any) -> str:
    if key.endswith(CLASS):
        return f"{key.removesuffix(CLASS)}={value.rpartition('.')[2]}"
    text = f"{value:.4g}" if isinstance(value, float) else hydra_value(value)
    return f"{key}={text[:MAX_VALUE]}{'…' * (len(text) > MAX_VALUE)}"
