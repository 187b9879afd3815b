"""Check that a model which reads trees has a field of trees, before its data is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from seqclf.config.documentation import CONF
from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees


def check_tree_fields(
    model: Mapping[str, Any], encoders: Mapping[str, FieldEncoder | type[FieldEncoder]], dataset: str | None = None
) -> None:
    """Raise InputError if a model reads trees and no field is one.

    `model`: the config of the model. `encoders`: the encoders of the data by field, or their classes. `dataset`: the
    name of the data. A choice of conf/data of the same name with `_trees` at its end has the same rows as trees.
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
    """Return the choice of conf/model with the encoder of a model, as an argument, or "model" where none has it.

    >>> _as_written({"encoder": {"_target_": "seqclf.models.tree_lstm.TreeLSTM"}})
    'model=tree_lstm'
    """
    for path in sorted((CONF / "model").glob("*.yaml")):
        choice = yaml.safe_load(path.read_text(encoding="utf-8"))
        if choice.get("encoder", {}).get("_target_") == model["encoder"]["_target_"]:
            return f"model={path.stem}"
    return "model"
