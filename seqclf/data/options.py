"""Validated options of the config block `data`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, model_validator

from seqclf.config.options import Count, FullText, Options, Share, Text, Texts, parse_options
from seqclf.config.override_text import label_text, shell_word
from seqclf.data.reading.queries import load_query
from seqclf.data.reading.sources import ReaderOptions, Source, cache_folder, fetched
from seqclf.data.schema.casts import is_time_format
from seqclf.data.schema.schema import AS_TEXT
from seqclf.data.splitting.options import SplitOptions
from seqclf.errors import InputError, RefusedValueError

NAME = re.compile(r"\w[\w.-]*")


def require_folder_name(value: str) -> str:
    """Reject a data name that is not a plain folder name, because it names the folder of the prepared data."""
    if not NAME.fullmatch(value):
        raise RefusedValueError("names a folder", "use letters, digits, - and _")
    return value


def require_order_format(value: str) -> str:
    """Reject an `order_format` that is neither a time format nor `AS_TEXT`."""
    if value != AS_TEXT and not is_time_format(value):
        raise RefusedValueError("must be a format of times such as %d.%m.%Y %H:%M, or text")
    return value


def require_label(value: Any) -> Any:
    """Reject a missing label column."""
    if value is None:
        raise InputError("data.label", "not set", "name the column that holds the label: data.label=COLUMN")
    return value


def require_generator(value: dict[str, Any]) -> dict[str, Any]:
    """Reject a generator without the key `_target_`, which names the function that generates the data."""
    if not isinstance(value.get("_target_"), str):
        raise InputError("data.generator", "must name a function: {_target_: mypackage.module.function}")
    return value


def require_fields(value: Any, info: ValidationInfo) -> Any:
    """Reject `fields` or `static` that is no mapping; for a list of names, the error suggests one. Null is inferred."""
    if value is None:
        return None
    if isinstance(value, dict):
        declared = {name: spec for name, spec in value.items() if spec not in (None, {"kind": None})}
        return declared or (None if value else {})
    names = value if isinstance(value, list) else [value]
    named = ", ".join(f"{label_text(name)}: KIND" for name in names if isinstance(name, (str, int)))
    raise RefusedValueError("must be a mapping", f"write {shell_word(f'data.{info.field_name}={{{named}}}')}")


class DataOptions(Options):
    """Options of the config block `data`. conf/data/files.yaml explains each key and holds its default.

    Kinds and options of `fields` are checked when the file is read, because some may be inferred from it.
    """

    name: Annotated[Text, AfterValidator(require_folder_name)]
    generator: Annotated[dict[str, Any], AfterValidator(require_generator)] | None
    train: Text | None
    validation: Text | None
    test: Text | None
    labels: Text | None
    query: Annotated[str, AfterValidator(load_query)] | None
    label: Annotated[Text, BeforeValidator(require_label)]
    positive: Text | None
    classes: Literal["many"] | None
    id: Text | None
    group: Text | None
    group_by: Texts
    order_by: Texts
    order_format: Annotated[Text, AfterValidator(require_order_format)] | None
    rows: Literal["sequences", "events"] | None
    fields: Annotated[dict[Any, Any] | None, BeforeValidator(require_fields)]
    ignore: Texts
    infer: bool
    static: Annotated[dict[Any, Any] | None, BeforeValidator(require_fields)]
    encoders: Text | None
    header: bool
    encoding: Text
    quote: Text | None
    delimiter: Text | None
    list_separator: FullText | None
    max_length: Count | None
    truncate: Literal["error", "keep_first", "keep_last"]
    on_bad_row: Literal["quarantine", "drop", "error"]
    max_bad_share: Share
    split: SplitOptions
    memory_limit: Text | None
    cache_dir: Annotated[Text, BeforeValidator(cache_folder)]

    @classmethod
    def build(cls, **options: Any) -> DataOptions:
        """Return validated options. Each argument is one key of the config block `data`.

        Raises InputError with the name of an invalid key.

        >>> DataOptions.build(name="my/data")
        Traceback (most recent call last):
            ...
        seqclf.errors.InputError: data.name=my/data: names a folder; use letters, digits, - and _
        """
        return parse_options(cls, options, "data")

    @model_validator(mode="after")
    def _check_split(self) -> DataOptions:
        """Check that keys which depend on each other are consistent."""
        if self.labels is not None and not self.group_by and self.id is None:
            raise InputError("data.labels", "is joined by data.id", "name the id that both files have: data.id=COLUMN")
        if self.rows is not None and (self.rows == "events") != bool(self.group_by):
            raise InputError(f"data.rows={self.rows}", "only events have a data.group_by", "change one of the two keys")
        self.split.check(self.group, self.splits_with_file())
        return self

    def splits_with_file(self) -> set[str]:
        """Return the names of the splits that have a file. A generator writes a file for every split."""
        names = ("train", "validation", "test")
        return {name for name in names if self.generator is not None or getattr(self, name) is not None}

    def source(self, split: str) -> Source | None:
        """Return the source of a split or of the label table, or None if its option is not set."""
        path = getattr(self, split)
        if not path:
            return None
        spill = str(Path(self.cache_dir).expanduser())
        reader = self.reader()
        if split == "labels":
            reader["query"] = None
        source = Source(path, f"data.{split}", **reader, memory_limit=self.memory_limit, spill=spill)
        return fetched(source, self.cache_dir)

    def reader(self) -> ReaderOptions:
        """Return the options for reading files, which also apply to new files at prediction."""
        return {
            "header": self.header,
            "encoding": self.encoding,
            "quote": self.quote,
            "delimiter": self.delimiter,
            "query": self.query,
        }
