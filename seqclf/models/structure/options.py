"""The key `structure` of a training config, which schedules changes of the model during training.

This module does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BeforeValidator, Field

from seqclf.config.hints import did_you_mean
from seqclf.config.options import Count, NonNegative, Options, Texts, parse_options
from seqclf.config.override_text import label_text
from seqclf.config.targets import Config
from seqclf.errors import InputError
from seqclf.models.options import DropoutShare

NOT_OF_MODEL = {"epoch", "freeze", "unfreeze"}
MAX_LAYERS = 1000  # a network with more layers takes minutes to build, and does not learn
LEFT_OUT: Any = None  # default for a key that is missing from the config; a config cannot set a key to None


class ModelChange(Options):
    """A change of the model: new values for keys of the model config, and modules to freeze or unfreeze.

    A key that is missing from the change keeps its value in the model config.
    """

    layers: Annotated[int, Field(ge=1, le=MAX_LAYERS)] = LEFT_OUT
    hidden_size: Count = LEFT_OUT
    embedding_size: Count = LEFT_OUT
    dropout: DropoutShare = LEFT_OUT
    token_dropout: DropoutShare = LEFT_OUT
    number_noise: NonNegative = LEFT_OUT
    freeze: Texts = ()
    unfreeze: Texts = ()

    def of_model(self) -> dict[str, Any]:
        """Return a dict key of the model config → new value."""
        return {name: getattr(self, name) for name in CHANGEABLE if name in self.model_fields_set}


CHANGEABLE = [name for name in ModelChange.model_fields if name not in NOT_OF_MODEL]
KEYS = f"freeze, unfreeze, or a key of model: {', '.join(CHANGEABLE)}"


class ScheduleEntry(ModelChange):
    """One entry of the list `structure` in a training config.

    `epoch`: the model changes at the start of this epoch. Epochs are counted from 1.
    """

    epoch: Count


Change = TypeVar("Change", bound=ModelChange)


class ScheduledChange(NamedTuple):
    """A validated change of the model, which is made at the start of an epoch.

    `key`: config key of the change, which error messages contain. `epoch`: number of the epoch, counted from 1.
    """

    key: str
    epoch: int
    change: ModelChange


def read_schedule(entries: Any) -> list[ScheduledChange]:
    """Validate the entries of a schedule, and return the changes sorted by epoch.

    >>> [change.epoch for change in read_schedule([{"epoch": 5, "hidden_size": 192}, {"epoch": 3, "layers": 2}])]
    [3, 5]
    >>> read_schedule([{"epoch": 3, "layer": 2}])
    Traceback (most recent call last):
        ...
    seqclf.errors.InputError: structure[0].layer: no such key; did you mean 'structure[0].layers'?
    """
    are_mappings = isinstance(entries, (list, tuple)) and all(isinstance(entry, Mapping) for entry in entries)
    if not are_mappings or not all("epoch" in entry for entry in entries):
        raise InputError("structure", "must be a list of changes with an epoch each, such as [{epoch: 3, layers: 2}]")
    changes = []
    for index, entry in enumerate(entries):
        key = f"structure[{index}]"
        change = read_change(ScheduleEntry, entry, key)
        changes.append(ScheduledChange(key, change.epoch, change))
    return sorted(changes, key=lambda change: change.epoch)


def read_change(kind: type[Change], values: Mapping[str, Any], key: str) -> Change:
    """Validate a change, and return the change as an instance of `kind`.

    `key`: config key of the change, which error messages contain. Raises InputError if a value is invalid or the change
    is empty.

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


def check_schedule(entries: Any) -> Any:
    """Return the entries of a schedule unchanged. Raises InputError if an entry is invalid (see `read_schedule`)."""
    read_schedule(entries)
    return entries


Schedule = Annotated[list[dict[str, Any]], BeforeValidator(check_schedule)]


# The keys of a model config whose values can change during training. The classes of the classifier and the encoder
# determine these keys.

CLASSIFIERS = (
    "seqclf.models.classifier.SequenceClassifier",
    "seqclf.models.trees.tree_classifier.TreeClassifier",
    "seqclf.models.adaptive.AdaptiveClassifier",
)
OF_CLASSIFIER = ("dropout", "token_dropout", "number_noise")
# dict encoder class → keys that can change. The keys in OF_CLASSIFIER can change with any encoder.
OF_ENCODER = {
    "seqclf.models.rnn.recurrent.Recurrent": ("layers", "hidden_size", "embedding_size"),
    "seqclf.extend.CellEncoder": ("layers",),
    "seqclf.models.transformer.Transformer": ("layers", "embedding_size"),
    "seqclf.models.trees.tree_lstm.TreeLSTM": ("embedding_size",),
}
# Encoders whose added layers are residual.
RESIDUAL = ("seqclf.models.rnn.recurrent.Recurrent", "seqclf.extend.CellEncoder")
OF_HEADS = "seqclf.models.heads.network.HeadsClassifier"
KEYS_OF_HEADS = ("layers", "hidden_size", *OF_CLASSIFIER)
WIDTHS = ("hidden_size", "embedding_size")


def changeable_keys(model: Config) -> tuple[str, ...]:
    """Return the keys of a model config whose values can change during training.

    >>> changeable_keys({"_target_": "acme.Net"})
    ()
    """
    if model.get("_target_") == OF_HEADS:
        return KEYS_OF_HEADS if model["heads"] == "auto" or "recurrent" in model["heads"] else ()
    if model.get("_target_") not in CLASSIFIERS:
        return ()
    names = (*OF_ENCODER.get(model["encoder"]["_target_"], ()), *OF_CLASSIFIER)
    present = model.keys() | model["encoder"].keys()
    return tuple(name for name in names if name in present)


def changed_config(model: Config, changes: Mapping[str, Any], key: str) -> Config:
    """Return a copy of a model config with new values.

    If a recurrent stack gets more layers, the added layers are residual, because a residual layer is initially the
    identity. `key`: config key of the change. Raises an InputError that begins with `key` if a value is not possible.

    >>> model = {"_target_": "seqclf.models.classifier.SequenceClassifier", "layers": 1}
    >>> model["encoder"] = {"_target_": "seqclf.models.rnn.recurrent.Recurrent"}
    >>> changed_config(model, {"layers": 3}, "structure[0]")["residual_layers"]
    2
    """
    changed = {**model, "encoder": dict(model["encoder"])} if isinstance(model.get("encoder"), Mapping) else {**model}
    known, encoder = changeable_keys(model), changed.get("encoder", {})
    for name, value in changes.items():
        entry = f"{key}.{name}={label_text(value)}"
        if name not in known:
            target = (encoder or model)["_target_"] if known else model.get("_target_")
            can = f"of model, it can change {', '.join(known)}; " if known else ""
            raise InputError(entry, f"cannot change in {target}", f"{can}freeze and unfreeze work for any model")
        block = encoder if name in encoder else changed
        if value == block[name]:
            raise InputError(entry, "is the value already", "remove it")
        # A network of heads learns its widths from the data, so "auto" is compared later.
        if name in WIDTHS and block[name] != "auto" and value < block[name]:
            raise InputError(entry, f"must be above {block[name]}, its value", "a model grows only")
        if name == "layers" and (encoder.get("_target_") in RESIDUAL or changed["_target_"] == OF_HEADS):
            of_stack = {**changed, **encoder}
            block["residual_layers"] = max(0, of_stack.get("residual_layers", 0) + value - of_stack["layers"])
            if block is encoder:
                changed.pop("residual_layers", None)
        block[name] = value
    return changed
