"""Check that the data has a tree field if the model reads trees. The check runs before the data is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from seqclf.data.encoding.encoder import FieldEncoder
from seqclf.errors import InputError
from seqclf.models.encoder import reads_trees

Encoders = Mapping[str, FieldEncoder | type[FieldEncoder]]  # dict field → its encoder, or the class of the encoder


def check_tree_fields(model: Mapping[str, Any], encoders: Encoders) -> None:
    """Raise InputError if a model reads trees, but the data has no field of kind tree.

    `model`: config of the model. `encoders`: dict field name → encoder or encoder class of the field.
    """
    if reads_trees(model) and not any(encoder.tags is not None for encoder in encoders.values()):
        raise InputError(
            f"model.encoder._target_={model['encoder']['_target_']}",
            f"reads trees, and the data has none (fields: {', '.join(encoders)})",
            "set 'data.fields={COLUMN: tree}', or choose another model, such as model=lstm",
        )
