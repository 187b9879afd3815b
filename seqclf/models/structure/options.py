"""The key `structure` of a training config: changes of the model at epochs, checked without PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from seqclf.config.options import Count, NonNegative, Options, Texts, parse_options
from seqclf.config.override_text import is_plain, quoted
from seqclf.config.suggestions import did_you_mean
from seqclf.config.yaml_text import label_text
from seqclf.errors import InputError
from seqclf.models.options import DropoutShare, check_pooling

NOT_OF_MODEL = {"epoch", "freeze", "unfreeze"}
MOST_LAYERS = 1000  # each is a module, so that more take minutes to make, and no network learns with so many
LEFT_OUT: Any = None  # of a key without a new value; it cannot be written


class ModelChange(Options):
    """New values of keys of `model`, and modules to freeze or unfreeze. A key that is left out stays as it is."""

    layers: Annotated[int, Field(ge=1, le=MOST_LAYERS)] = LEFT_OUT
    hidden_size: Count = LEFT_OUT
    embedding_size: Count = LEFT_OUT
    channels: Count = LEFT_OUT
    heads: Count = LEFT_OUT
    expansion: Count = LEFT_OUT
    cell: Literal["lstm", "gru", "rnn"] = LEFT_OUT
    bidirectional: bool = LEFT_OUT
    pooling: Annotated[str, AfterValidator(check_pooling)] = LEFT_OUT
    layout: Literal["auto", "padded", "packed"] = LEFT_OUT
    dropout: DropoutShare = LEFT_OUT
    variational: bool = LEFT_OUT
    token_dropout: DropoutShare = LEFT_OUT
    number_noise: NonNegative = LEFT_OUT
    freeze: Texts = ()
    unfreeze: Texts = ()

    def of_model(self) -> dict[str, Any]:
        """Return the new values by key of `model`."""
        return self.model_dump(exclude=NOT_OF_MODEL, exclude_unset=True)


CHANGEABLE = [name for name in ModelChange.model_fields if name not in NOT_OF_MODEL]
KEYS = f"freeze, unfreeze, or a key of model: {', '.join(CHANGEABLE)}"


class ScheduleEntry(ModelChange):
    """An entry of `structure`. `epoch`: counts from 1."""

    epoch: Count


Change = TypeVar("Change", bound=ModelChange)


class ScheduledChange(NamedTuple):
    """A change at the start of the epoch `epoch`, which counts from 1. `key`: its place in the config, for errors."""

    key: str
    epoch: int
    change: ModelChange


def read_schedule(entries: Any) -> list[ScheduledChange]:
    """Return the changes of a schedule in the order in which they are made.

    >>> [change.epoch for change in read_schedule([{"epoch": 5, "hidden_size": 192}, {"epoch": 3, "layers": 2}])]
    [3, 5]
    >>> read_schedule([{"epoch": 3, "layer": 2}])
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: structure[0].layer: no such key; did you mean 'structure[0].layers'?
    """
    if not isinstance(entries, (list, tuple)):
        example = _written(entries) if isinstance(entries, Mapping) else "{epoch: 3, layers: 2}"
        raise InputError("structure", f"must be a list of changes, such as [{example}]")
    changes = []
    for index, entry in enumerate(entries):
        key = f"structure[{index}]"
        if not isinstance(entry, Mapping):
            raise InputError(f"{key}={entry}", "must be a mapping, such as {epoch: 3, layers: 2}")
        if "epoch" not in entry:
            written = _written({"epoch": 3, **entry})
            raise InputError(f"{key}.epoch", "missing", f"write {written} for the start of the third epoch")
        if isinstance(entry.get("model"), Mapping):
            flat = {name: value for name, value in entry.items() if name != "model"} | dict(entry["model"])
            raise InputError(f"{key}.model", "keys of model stand in the entry itself", f"write {_written(flat)}")
        change = read_change(ScheduleEntry, entry, key)
        changes.append(ScheduledChange(key, change.epoch, change))
    return sorted(changes, key=lambda change: change.epoch)


def read_change(kind: type[Change], values: Mapping[str, Any], key: str) -> Change:
    """Return a checked change. `key`: where it stands, for errors. Raises InputError for one that changes nothing.

    >>> read_change(ModelChange, {"freeze": "embedding"}, "change_structure").freeze
    ('embedding',)
    """
    for name in values:
        if name not in kind.model_fields:
            hint = did_you_mean(f"{key}.{name}", [f"{key}.{known}" for known in kind.model_fields], f"{key}.")
            raise InputError(f"{key}.{name}", "no such key", hint or f"write {KEYS}")
    change = parse_options(kind, dict(values), key)
    if not (change.of_model() or change.freeze or change.unfreeze):
        raise InputError(key, "changes nothing", f"add {KEYS}")
    return change


def _written(value: Any) -> str:
    """Return a value as Hydra reads it.

    >>> print(_written({"epoch": 3, "freeze": ["embedding"], "bidirectional": True}))
    {epoch: 3, freeze: [embedding], bidirectional: true}
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {_written(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_written, value))}]"
    return quoted(value) if isinstance(value, str) and not is_plain(value) else label_text(value)


def check_schedule(entries: Any) -> Any:
    """Refuse a schedule that `read_schedule` refuses."""
    read_schedule(entries)
    return entries


Schedule = Annotated[list[dict[str, Any]], BeforeValidator(check_schedule)]
