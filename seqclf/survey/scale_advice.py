"""Advice to scale each sequence by itself, with the override that does it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from seqclf.data.schema.fields import Field
from seqclf.survey.field_statistics import FieldStatistics

LONGEST_LINE = 400  # characters; the terminal and pages cut longer warnings
SPECIAL = ("\\", "${")  # in names of columns; Hydra would interpret them
TYPED_KEY = re.compile(r"(?!(?:null|true|false|nan|inf)$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)  # without quotes


def scale_advice(
    statistics: Mapping[str, FieldStatistics], fields: Iterable[Field], configured: Mapping[Any, Any] | None
) -> list[str]:
    """Return one line about the number fields that one scale for all sequences flattens, or none.

    `fields`: of the schema. `configured`: data.fields, None if the fields were inferred.
    """
    flattened = {
        name: field.flattened.share
        for name, field in statistics.items()
        if field.flattened is not None and field.flattened.is_notable
    }
    if not flattened:
        return []
    worst = max(flattened, key=lambda name: flattened[name])
    subject = f"field {worst}" if len(flattened) == 1 else f"{len(flattened)} fields (most: {worst})"
    problem = (
        f"{subject}: one scale for all flattens {flattened[worst]:.0%} of the sequences, whose shape the noise of "
        "training (model.number_noise) drowns"
    )
    fields = list(fields)
    line = f"{problem}; set {_overrides(list(flattened), fields, configured)}"
    if len(line) > LONGEST_LINE or not all(map(_is_typed, fields)):
        names = ", ".join(list(flattened)[:3]) + (" …" if len(flattened) > 3 else "")
        line = f"{problem}; set scale: sequence for {names} in data.fields"
    return [line]


def _is_typed(field: Field) -> bool:
    """Return True if Hydra reads an override with the names of a field as they are."""
    return TYPED_KEY.fullmatch(field.name) is not None and not any(text in field.column for text in SPECIAL)


def _overrides(names: list[str], fields: list[Field], configured: Mapping[Any, Any] | None) -> str:
    """Return the overrides as they are typed in a shell."""
    if configured:  # a kind alone or a mapping, into which Hydra merges this one
        overrides = [f"++data.fields.{name}={{kind: number, scale: sequence}}" for name in names]
    else:  # fields are inferred all or none
        specs = [f"{field.name}: {_spec(field, field.name in names)}" for field in fields]
        overrides = [f"data.fields={{{', '.join(specs)}}}"]
    return " ".join(map(shlex.quote, overrides))


def _spec(field: Field, by_sequence: bool) -> str:
    """Return kind, columns and options of an inferred field in the grammar of Hydra's overrides."""
    spec = {"kind": field.kind}
    if field.columns != (field.name,):
        columns = ", ".join(map(_quoted, field.columns))
        spec |= {"column": columns} if len(field.columns) == 1 else {"columns": f"[{columns}]"}
    spec |= {
        key: _quoted(value) if isinstance(value, str) else json.dumps(value) for key, value in field.options.items()
    }
    if by_sequence:
        spec["scale"] = "sequence"
    if list(spec) == ["kind"]:
        return field.kind
    return f"{{{', '.join(f'{key}: {value}' for key, value in spec.items())}}}"


def _quoted(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'
