"""The key `structure` of a training config, which schedules changes of the model. This module imports no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from seqclf.config.options import Count, Options, Texts, parse_options
from seqclf.config.override_text import label_text
from seqclf.config.targets import Config
from seqclf.errors import InputError
from seqclf.models.options import DropoutShare

CHANGEABLE = ("layers", "hidden_size", "dropout")  # keys of the model config
KEYS = f"freeze, unfreeze, or a key of model: {', '.join(CHANGEABLE)}"
LEFT_OUT: Any = None  # default for a key that is missing from the config; a config cannot set a key to None
CLASSIFIER = "seqclf.models.classifier.SequenceClassifier"
RECURRENT = "seqclf.models.rnn.recurrent.Recurrent"
HEADS = "seqclf.models.heads.network.HeadsClassifier"


class ModelChange(Options):
    """A change of the model: new values for keys of the model config, where others stay, and modules to (un)freeze."""

    layers: Count = LEFT_OUT
    hidden_size: Count = LEFT_OUT
    dropout: DropoutShare = LEFT_OUT
    freeze: Texts = ()
    unfreeze: Texts = ()

    def of_model(self) -> dict[str, Any]:
        """Return a dict key of the model config → new value."""
        return {name: getattr(self, name) for name in CHANGEABLE if name in self.model_fields_set}


class ScheduleEntry(ModelChange):
    """One entry of the list `structure`: the model changes at the start of `epoch`, counted from 1."""

    epoch: Count


Change = TypeVar("Change", bound=ModelChange)


def read_schedule(entries: Any) -> list[tuple[str, ScheduleEntry]]:
    """Validate the entries of a schedule, and return the changes sorted by epoch, each with its config key.

    >>> [change.epoch for _, change in read_schedule([{"epoch": 5, "hidden_size": 192}, {"epoch": 3, "layers": 2}])]
    [3, 5]
    """
    are_mappings = isinstance(entries, (list, tuple)) and all(isinstance(entry, Mapping) for entry in entries)
    if not are_mappings or not all("epoch" in entry for entry in entries):
        raise InputError("structure", "must be a list of changes with an epoch each, such as [{epoch: 3, layers: 2}]")
    keys = [f"structure[{index}]" for index in range(len(entries))]
    changes = [(key, read_change(ScheduleEntry, entry, key)) for key, entry in zip(keys, entries, strict=True)]
    return sorted(changes, key=lambda change: change[1].epoch)


def read_change(kind: type[Change], values: Mapping[str, Any], key: str) -> Change:
    """Return a change as an instance of `kind`. Raises InputError, with the config `key`, if it is invalid or empty.

    >>> read_change(ModelChange, {"freeze": "embedding"}, "change_structure").freeze
    ('embedding',)
    """
    if unknown := [name for name in values if name not in kind.model_fields]:
        raise InputError(f"{key}.{unknown[0]}", "no such key", f"write {KEYS}")
    change = parse_options(kind, dict(values), key)
    if not (change.of_model() or change.freeze or change.unfreeze):
        raise InputError(key, "changes nothing", f"add {KEYS}")
    return change


def check_schedule(entries: Any) -> Any:
    """Return the entries of a schedule unchanged. Raises InputError if an entry is invalid (see `read_schedule`)."""
    read_schedule(entries)
    return entries


Schedule = Annotated[list[dict[str, Any]], BeforeValidator(check_schedule)]


def changed_config(model: Config, changes: Mapping[str, Any], key: str) -> Config:
    """Return a copy of a model config with new values, or raise an InputError that begins with `key`.

    Added layers are residual, because a residual layer is initially the identity.

    >>> model = {"_target_": CLASSIFIER, "encoder": {"_target_": RECURRENT}, "layers": 1}
    >>> changed_config(model, {"layers": 3}, "structure[0]")["residual_layers"]
    2
    """
    encoder = dict(model.get("encoder", {}))
    changed = {**model, "encoder": encoder} if encoder else dict(model)
    before, new = {**model, **encoder}, dict(changes)
    for name, value in changes.items():
        entry = f"{key}.{name}={label_text(value)}"
        if not _is_recurrent(model):
            target = (encoder if model["_target_"] == CLASSIFIER else model)["_target_"]
            remedy = "choose model=lstm, gru, rnn or auto with its recurrent head, or freeze and unfreeze alone"
            raise InputError(entry, f"cannot change in {target}", remedy)
        if value == before[name]:
            raise InputError(entry, "is the value already", "remove it")
        # A network of heads learns its width from the data, so "auto" is compared later.
        if name == "hidden_size" and before[name] != "auto" and value < before[name]:
            raise InputError(entry, f"must be above {before[name]}, its value", "a model grows only")
        if name == "layers":
            new["residual_layers"] = max(0, before.get("residual_layers", 0) + value - before["layers"])
    for name, value in new.items():
        (encoder if name in encoder else changed)[name] = value
    return changed


def _is_recurrent(model: Config) -> bool:
    if model["_target_"] == HEADS:
        return model["heads"] == "auto" or "recurrent" in model["heads"]
    return model["_target_"] == CLASSIFIER and model["encoder"]["_target_"] == RECURRENT
