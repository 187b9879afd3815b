"""Check that the data has a tree field if the model reads trees. The check runs before the data is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from seqclf.config.documentation import CONF
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees

Encoders = Mapping[str, FieldEncoder | type[FieldEncoder]]  # dict field → its encoder, or the class of the encoder


def check_order_of_fields(encoders: Encoders) -> None:
    """Raise InputError if a field of trees is to be shuffled: its nodes name one another by their positions."""
    trees = [name for name, encoder in encoders.items() if encoder.tags is not None]
    if trees:
        raise InputError(
            "order_ablation=true",
            f"shuffles tokens, and the field {trees[0]} holds trees, whose nodes have no free order",
            "set order_ablation=false",
        )


def check_tree_fields(model: Mapping[str, Any], encoders: Encoders, dataset: str | None = None) -> None:
    """Raise InputError if a model reads trees, but the data has no field of kind tree.

    `model`: config of the model. `encoders`: dict field → encoder or encoder class of the field. `dataset`: name of the
    dataset. If conf/data has a choice `{dataset}_trees`, this choice has the same rows in the form of trees, and the
    error suggests it.
    """
    if not reads_trees(model) or any(encoder.tags is not None for encoder in encoders.values()):
        return
    columns = [encoder.field.columns[0] for encoder in encoders.values() if isinstance(encoder, FieldEncoder)]
    column, as_trees = columns[0] if len(columns) == 1 else "COLUMN", f"{dataset}_trees"
    has_choice = (CONF / "data" / f"{as_trees}.yaml").is_file()
    setting = f"data={as_trees}" if has_choice else f"'data.fields={{{column}: tree}}'"
    raise InputError(
        _as_written(model),
        f"reads trees, and the data has none (fields: {', '.join(encoders)})",
        f"set {setting} or choose another model, such as model=lstm",
    )


def _as_written(model: Mapping[str, Any]) -> str:
    """Return the argument that selects a model on the command line, such as "model=lstm".

    Return "model" if no choice of conf/model has the encoder of this model.

    >>> _as_written({"encoder": {"_target_": "seqclf.models.trees.tree_lstm.TreeLSTM"}})
    'model=tree_lstm'
    """
    for path in sorted((CONF / "model").glob("*.yaml")):
        choice = yaml.safe_load(path.read_text(encoding="utf-8"))
        if choice.get("encoder", {}).get("_target_") == model["encoder"]["_target_"]:
            return f"model={path.stem}"
    return "model"
