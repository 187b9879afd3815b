"""Fields: kind, columns and options of one value of every token."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# Names of the model's other inputs and outputs, and of columns that the reader adds.
RESERVED_NAMES = {"lengths", "parents", "node_labels", "logits", "label", "id"}


@dataclass(frozen=True)
class Field:
    """One value of every token: what a schema stores of it. Its encoder knows everything else (see `Encoder`).

    `kind`: name of the encoder's class (see `encoding.registry`). `columns`: one, or several that are the channels of
    one field. `values`: `integer` or `string`, the type of a category's values. `width`: channels of a number field as
    the file has them. `separator`: between the elements of a list in a text cell. `options`: those that were set.

    >>> Field("amount", "number", ("amount", "fee"), width=2, options={"log": True}).column
    'amount, fee'
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    values: str = "string"
    width: int | None = None
    separator: str | None = None
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def column(self) -> str:
        """The names of the columns, for messages."""
        return ", ".join(self.columns)
