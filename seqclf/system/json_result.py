"""Base class of results that travel between modules and are written as JSON: metrics, counts, scores, summaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, Self

from seqclf.errors import InputError

JsonObject = dict[str, Any]  # plain values by key, as `json.dumps` takes them and `json.loads` returns them


class JsonResult:
    """A dataclass with a JSON form.

    Fields named in `OMIT_NONE` are left out of the JSON when they are None. All other fields are always written, so
    that a reader can tell "not defined" (null) from "not computed" (absent).

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counts(JsonResult):
    ...     rows: int
    ...     share: float | None = None
    >>> Counts(3).to_dict(), Counts.from_dict({"rows": 3})
    ({'rows': 3, 'share': None}, Counts(rows=3, share=None))
    """

    OMIT_NONE: ClassVar[frozenset[str]] = frozenset()

    def to_dict(self) -> JsonObject:
        """Plain values for `json.dumps`. Lists of plain values are shared, not copied."""
        # Not `dataclasses.asdict`, which copies every list: a confusion matrix of 1,000 classes has a million numbers.
        values = {field.name: getattr(self, field.name) for field in fields(self)}  # type: ignore[arg-type]
        return {
            name: _to_json(value) for name, value in values.items() if value is not None or name not in self.OMIT_NONE
        }

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Self:
        """Inverse of `to_dict`. Unknown keys are ignored. Raises InputError that names the first wrong key."""
        # Imported here: prediction uses these classes but never reads them back, and pydantic takes 0.1 s.
        from pydantic import TypeAdapter, ValidationError

        try:
            return TypeAdapter(cls).validate_python(dict(state))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(map(str, first["loc"])) or cls.__name__
            raise InputError(key, first["msg"]) from None


def _to_json(value: Any) -> Any:
    if isinstance(value, JsonResult):
        return value.to_dict()
    if isinstance(value, Mapping):
        # A label may be a date, which is no key of a JSON object.
        return {key if isinstance(key, (str, int, float)) else str(key): _to_json(part) for key, part in value.items()}
    # A confusion matrix is a list of lists of ints, so only lists that begin with a result are walked through.
    if isinstance(value, (list, tuple)) and value and isinstance(value[0], JsonResult):
        return [entry.to_dict() for entry in value]
    return list(value) if isinstance(value, tuple) else value
