"""The keys of data.*, as the library takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from pathlib import Path
from typing import Any

from seqclf.config.checks import label_text
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError


@dataclass(frozen=True)
class DataOptions:
    """The keys of conf/data/files.yaml, which explains each and holds the defaults."""

    name: str
    generator: Mapping[str, Any] | None
    train: str | None
    validation: str | None
    test: str | None
    labels: str | None
    label: str
    positive: str | None
    id: str | None
    group_by: tuple[str, ...]
    order_by: tuple[str, ...]
    fields: Mapping[str, Any] | None
    header: bool
    encoding: str
    quote: str | None
    delimiter: str | None
    list_separator: str | None
    max_length: int | None
    truncate: str
    on_bad_row: str
    max_bad_share: float
    split: Mapping[str, Any]
    memory_limit: str | None
    cache_dir: str
    verify_cache: bool

    @classmethod
    def build(cls, **options: Any) -> DataOptions:
        unknown = sorted(set(options) - {entry.name for entry in dataclass_fields(cls)})
        if unknown:
            raise InputError(f"data.{unknown[0]}: no such key; conf/data/files.yaml explains those there are")
        if not re.fullmatch(r"\w[\w.-]*", str(options["name"])):
            raise InputError(f"data.name={options['name']}: names a folder; use letters, digits, - and _")
        generator = options["generator"]
        target = generator.get("_target_") if isinstance(generator, Mapping) else None
        if generator is not None and not isinstance(target, str):
            raise InputError("data.generator: must name a function: {_target_: mypackage.module.function}")
        if options["label"] is None:
            raise InputError("data.label is not set; name the column that holds the label: data.label=COLUMN")
        if not isinstance(options["verify_cache"], bool):
            raise InputError(f"data.verify_cache={options['verify_cache']}: must be true or false")
        # Hydra reads a name such as 3 as a number.
        texts = {key: None if options[key] is None else label_text(options[key]) for key in ("label", "positive", "id")}
        lists = {key: _listed(options[key]) for key in ("group_by", "order_by")}
        if options["labels"] is not None and not lists["group_by"] and texts["id"] is None:
            raise InputError("data.labels: is joined by data.id; name the id that both files have: data.id=COLUMN")
        return cls(**{**options, **texts, **lists})

    def source(self, split: str) -> Source | None:
        path = getattr(self, split)
        key = f"data.{split}"
        quote, delimiter = (None if mark is None else str(mark) for mark in (self.quote, self.delimiter))
        limit = None if self.memory_limit is None else str(self.memory_limit)
        spill = str(Path(self.cache_dir).expanduser() / ".spill")
        return path and Source(str(path), key, self.header, str(self.encoding), quote, delimiter, limit, spill)


def _listed(value: Any) -> tuple[str, ...]:
    """One column or a list of them."""
    values = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return tuple(str(entry) for entry in values)
