"""New values for keys of a model's config: which keys can change, and to what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.config.instantiate import Config
from seqclf.config.yaml_text import label_text
from seqclf.errors import InputError

CLASSIFIERS = (
    "seqclf.models.classifier.SequenceClassifier",
    "seqclf.models.tree_classifier.TreeClassifier",
    "seqclf.models.adaptive.AdaptiveClassifier",
)
OF_CLASSIFIER = ("pooling", "dropout", "variational", "token_dropout", "number_noise")
OF_RECURRENT = ("layers", "hidden_size", "embedding_size", "cell", "bidirectional", "layout")
# Keys of an encoder that can change, beside those of the classifier.
OF_ENCODER = {
    "seqclf.models.recurrent.Recurrent": OF_RECURRENT,
    "seqclf.models.conv_recurrent.ConvRecurrent": (*OF_RECURRENT, "channels"),
    "seqclf.models.transformer.Transformer": ("layers", "hidden_size", "embedding_size", "heads", "expansion"),
    "seqclf.models.tree_lstm.TreeLSTM": ("hidden_size", "embedding_size"),
}
# Keys with one possible value in a network, whatever its encoder.
FIXED = {"seqclf.models.adaptive.AdaptiveClassifier": ("bidirectional",)}  # it reads a sequence once, from its start
WIDTHS = ("hidden_size", "embedding_size", "channels", "heads", "expansion")


def changeable_keys(model: Config) -> tuple[str, ...]:
    """Return the keys of a model's config that can change in training.

    >>> changeable_keys({"_target_": "acme.Net"})
    ()
    """
    if model.get("_target_") not in CLASSIFIERS:
        return ()
    names = (*OF_ENCODER.get(model["encoder"]["_target_"], ()), *OF_CLASSIFIER)
    present = model.keys() | model["encoder"].keys()
    return tuple(name for name in names if name in present and name not in FIXED.get(model["_target_"], ()))


def changed_config(model: Config, changes: Mapping[str, Any], key: str) -> Config:
    """Return the config of a model with new values. Raises InputError, which begins with `key`, for one that cannot be.

    Layers that are added to a recurrent stack are residual ones, so that they start as the identity.

    >>> model = {"_target_": "seqclf.models.classifier.SequenceClassifier", "layers": 1, "pooling": "max"}
    >>> model["encoder"] = {"_target_": "seqclf.models.recurrent.Recurrent"}
    >>> changed_config(model, {"layers": 3}, "structure[0]")["residual_layers"]
    2
    """
    changed = {**model, "encoder": dict(model["encoder"])} if isinstance(model.get("encoder"), Mapping) else {**model}
    for name, value in changes.items():
        entry = f"{key}.{name}={label_text(value)}"
        block = _block(changed, name, entry)
        if value == block[name]:
            raise InputError(entry, "is the value already", "remove it")
        if name in WIDTHS and value < block[name]:
            raise InputError(entry, f"must be above {block[name]}, its value", "a model grows only")
        if name == "layers" and "cell" in OF_ENCODER[changed["encoder"]["_target_"]]:
            of_stack = {**changed, **changed["encoder"]}
            block["residual_layers"] = max(0, of_stack.get("residual_layers", 0) + value - of_stack["layers"])
            if block is not changed:
                changed.pop("residual_layers", None)
        block[name] = value
    if {"heads", "hidden_size"} & set(changes):
        _check_head_size(model, changed, key)
    return changed


def _block(model: Config, name: str, entry: str) -> Config:
    """Return the part of a model's config that holds a key: its block `encoder`, or itself."""
    known = changeable_keys(model)
    blocks = [block for block in (model.get("encoder"), model) if isinstance(block, dict) and name in block]
    if name not in known or not blocks:
        can = f"of model, it can change {', '.join(known)}; " if known else ""
        is_fixed = name in FIXED.get(model.get("_target_", ""), ())
        target = model["encoder"]["_target_"] if known and not is_fixed else model.get("_target_")
        raise InputError(entry, f"cannot change in {target}", f"{can}freeze and unfreeze work for any model")
    return blocks[0]


def _check_head_size(model: Config, changed: Config, key: str) -> None:
    """Raise InputError unless heads keep their channels. Others would rotate and scale them in another way."""
    before, after = ({**config, **config["encoder"]} for config in (model, changed))
    if "heads" not in after:
        return
    size = before["hidden_size"] // before["heads"]
    if after["hidden_size"] == size * after["heads"]:
        return
    if after["hidden_size"] % size:
        remedy = f"{key}.hidden_size to a multiple of {size}"
    else:
        remedy = f"{key}.heads={after['hidden_size'] // size} beside it"
    raise InputError(
        key,
        f"hidden_size={after['hidden_size']} and heads={after['heads']} change the {size} channels of a head",
        f"set {remedy}",
    )
