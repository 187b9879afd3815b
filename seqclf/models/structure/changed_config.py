"""The settings of a model after a change of its structure (key `structure`). This module imports no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.config.build import Config
from seqclf.errors import InputError
from seqclf.settings.override_text import label_text

CLASSIFIER = "seqclf.models.classifier.SequenceClassifier"
RECURRENT = "seqclf.models.rnn.recurrent.Recurrent"
HEADS = "seqclf.models.heads.network.HeadsClassifier"


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
