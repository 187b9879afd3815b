"""The keys of data.*, as the library takes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

from seqclf.checks import label_text
from seqclf.data.sources import Source
from seqclf.errors import InputError


@dataclass(frozen=True)
class DataOptions:
    """The keys of conf/data/files.yaml, which explains each and holds the defaults."""

    name: str
    generator: Mapping[str, Any] | None
    train: str | None
    validation: str | None
    test: str | None
    label: str
    positive: str | None
    id: str | None
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
    cache_dir: str

    @classmethod
    def build(cls, **options: Any) -> DataOptions:
        unknown = sorted(set(options) - {entry.name for entry in dataclass_fields(cls)})
        if unknown:
            raise InputError(f"data.{unknown[0]}: no such key; conf/data/files.yaml explains those there are")
        if not re.fullmatch(r"\w[\w.-]*", str(options["name"])):
            raise InputError(f"data.name={options['name']}: names a folder; use letters, digits, - and _")
        if options["label"] is None:
            raise InputError("data.label is not set; name the column that holds the label: data.label=COLUMN")
        # Hydra reads a name such as 3 as a number.
        texts = {key: None if options[key] is None else label_text(options[key]) for key in ("label", "positive", "id")}
        return cls(**{**options, **texts})

    def source(self, split: str) -> Source | None:
        path = getattr(self, split)
        key = f"data.{split}"
        quote, delimiter = (None if mark is None else str(mark) for mark in (self.quote, self.delimiter))
        return path and Source(str(path), key, self.header, str(self.encoding), quote, delimiter)
