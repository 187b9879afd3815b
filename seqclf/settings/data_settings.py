"""Keys of the config block `data`."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, model_validator

from seqclf.errors import InputError, RefusedValueError
from seqclf.settings.base import (
    NOT_SET,
    Count,
    FullText,
    Options,
    Share,
    Text,
    Texts,
    ZeroOrMore,
    elsewhere,
    parse_options,
)
from seqclf.settings.typed_text import label_text, shell_word

NAME = re.compile(r"\w[\w.-]*")
ALL_FOLDS = "all"
OrderFormat = Annotated[Text, AfterValidator(elsewhere("seqclf.data.schema.casts.require_order_format"))]


def require_folder_name(value: str) -> str:
    """Reject a data name that is not a plain folder name, because it names the folder of the prepared data."""
    if not NAME.fullmatch(value):
        raise RefusedValueError("names a folder", "use letters, digits, - and _")
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


class SplitOptions(Options):
    """The division of train where a file is not given."""

    by: Literal["random", "distinct", "group", "time", "fold"] = "random"
    """random (stratified by label), distinct (equal sequences stay together), group (rows of one data.group stay
    together), time (the latest rows are the test, equal times stay together), or fold (cross-validation; rows of
    one data.group stay together)"""
    column: Text | None = None
    """by=time: column of the times"""
    validation: Share = 0.2
    """fraction of train; with fold, fraction of the rows outside the test"""
    test: Share = 0.0
    """fraction of train"""
    folds: Annotated[int, Field(ge=2)] = 5
    """by=fold: number of stratified folds"""
    fold: ZeroOrMore | Literal["all"] = 0
    """by=fold: the fold that is the test, from 0; all: a model of each fold, judged together, and a model of all
    rows as the bundle"""
    seed: ZeroOrMore = 0
    """seed of the division; another one gives other rows to each split"""
    on_leak: Literal["warn", "error", "drop", "drop_earlier"] = "warn"
    """rows of validation or test whose sequence, id or group an earlier split holds too: warn, error, drop (them,
    to score only on what training has not seen) or drop_earlier (their copies in the earlier split, so that a
    published test stays whole). Sequences are compared as the model gets them: cut, texts by their tokens (so in
    lower case), numbers to ten digits. With tokenizer=bpe and truncate they are compared by their first or last
    max_length words"""

    def shares(self, splits_with_file: set[str]) -> dict[str, float]:
        """Return dict split → fraction of the training source, for validation and test without a file."""
        shares = {"validation": self.validation, "test": self.test}
        return {name: share for name, share in shares.items() if name not in splits_with_file}

    def check(self, group: str | None, splits_with_file: set[str]) -> None:
        """Raise InputError if the options contradict each other, `data.group` or the splits that have a file."""
        shares = self.shares(splits_with_file)
        if self.by == "time" and self.column is None:
            raise InputError("data.split.by=time", "needs data.split.column=COLUMN")
        if self.by != "time" and self.column is not None:
            raise InputError(
                f"data.split.column={self.column}", "holds the times of data.split.by=time", "set data.group"
            )
        if self.by == "group" and group is None:
            raise InputError("data.split.by=group", "needs data.group=COLUMN")
        if sum(shares.values()) >= 1:
            settings = " and ".join(f"data.split.{name}={share}" for name, share in shares.items())
            raise InputError(settings, "nothing is left for train", "their sum must be below 1")
        if self.by == "fold" and isinstance(self.fold, int) and self.fold >= self.folds:
            raise InputError(f"data.split.fold={self.fold}", f"must be all, or a number from 0 to {self.folds - 1}")
        if self.by != "fold" and self.fold == ALL_FOLDS:
            raise InputError("data.split.fold=all", "is for folds", "set data.split.by=fold")
        if self.by == "fold" and "test" in splits_with_file:
            raise InputError("data.split.by=fold", "makes the test of a fold of train", "leave out data.test, or fold")
        if shares.get("validation") == 0:
            raise InputError("data.split.validation=0", "no validation rows", "give data.validation=FILE or a share")


class DataOptions(Options):
    """Your own files: one row per sequence or, with group_by, one row per event. Anything DuckDB reads.

    Kinds and options of `fields` are checked when the file is read, because some may be inferred from it.
    """

    name: Annotated[Text, AfterValidator(require_folder_name)] = "files"
    """the prepared data is cached under this name"""
    generator: Annotated[dict[str, Any], AfterValidator(require_generator)] | None = None
    """a function that writes the files that are not named below, with its arguments: {_target_:
    mypackage.module.function, …} (see data=toy). It runs again when its arguments or its Python file change; code
    that it imports does not count"""
    train: Text | None = None
    """training rows

    Sources: a path, glob, folder or URL. Objects of stores (s3://, gs://; one, a glob or a folder) are fetched into the
      cache folder. Credentials come from the environment, not the URL.
      Formats: CSV, TSV, TXT, JSON lines, Parquet, Arrow, and .ts of the time series archives; text also as .gz.
      Folders: one file per class (.txt, a sequence per line) or one folder of texts per class, at any depth. The
        columns are text and label. Other files are rejected by name; hidden ones (.DS_Store) are counted and left out.
    """
    validation: Text | None = None
    """validation rows; null: a part of train (split.validation)"""
    test: Text | None = None
    """test rows; null: a part of train (split.test), or no test at all"""
    labels: Text | None = None
    """a separate table that holds the labels, joined by group_by or id"""
    query: Annotated[str, AfterValidator(elsewhere("seqclf.data.reading.queries.load_query"))] | None = None
    """a SELECT over the table input, which is applied to the rows of train, validation and test, is stored in the
    bundle, and is applied again to each file that is predicted or evaluated. It can read nothing but input. A
    PIVOT lists its columns. Columns of CSV and TSV are text: CAST numbers. A file to predict may lack the column
    data.label. Without data.id, rows are numbered in the result of the query. Samples, random() and the time of
    day are rejected: they give other rows each time"""
    label: Annotated[Text, BeforeValidator(require_label)] = NOT_SET
    """column of the label"""
    positive: Text | None = None
    """with two classes, the label whose recall matters; null: the rarer one in train"""
    classes: Literal["many"] | None = None
    """many: labels of more than 20 different whole numbers are codes of classes; null: they are quantities, which
    stop the run"""
    id: Text | None = None
    """column that is carried through to predictions; null: the row number, from 1"""
    exclude: Text | None = None
    """text file of ids of rows to leave out, one a line, such as suspected wrong labels: values of data.id, or of
    group_by, as in predictions.parquet. An id that no row has stops the run"""
    group: Text | None = None
    """column of the group of a row, such as a patient, card or speaker: intervals and guarantees count groups,
    split.by=group keeps them in one split, and groups that several splits share are warned of. A row without a
    value is a group of its own"""
    weight: Text | None = None
    """column of the weight of a row, such as the amount at risk: a finite number from 0 on. It weighs the row in the
    losses, in the weighted metrics, in comparisons and in a recall target on average, and is no field"""
    cost: Text | None = None
    """column of the cost of missing a row, in false alarms. decision.cost=COLUMN sets it; it is no field"""
    group_by: Texts = ()
    """event tables: the column, or columns, that identify a sequence"""
    order_by: Texts = ()
    """event tables: the column, or columns, that sort the events of a sequence. Ties, and null, keep the order of
    the file"""
    order_format: OrderFormat | None = None
    """form of text in order_by that is neither a number nor a time such as 2023-11-20 15:30: a format of
    strptime, such as %d.%m.%Y or '%m/%d/%Y %I:%M %p', or text, for the order of its letters"""
    rows: Literal["sequences", "events"] | None = None
    """sequences: each row is a sequence, although rows look like events; events: the events of a sequence are in
    the order of the file, although their times are not; null: such rows stop the run, which prints the missing
    group_by or order_by"""
    fields: Annotated[dict[Any, Any] | None, BeforeValidator(require_fields)] = None
    """name: kind of declared fields; data.fields.NAME=null infers it again

    Fields: the values of each token. Columns that are not named are inferred, and printed.
    data.fields.amount=number, or data.fields={amount: number, code: {kind: …, column: …, options}}, declares what
    it names; without a kind, as in data.fields.amount.log=true, the kind is inferred. The kinds, and their options
    with their defaults:
      category: integers or strings. min_count=1, max_size (no limit), missing=refuse (or value: a category of its own),
        hash_size (ids by hash instead of a vocabulary).
      number: numbers or vectors. scale=standard (robust, sequence: each sequence by its mean and deviation, whose
        logarithms become two more channels per channel, none), log=false, clip (limit of the scaled values, on both
        sides of 0), missing=refuse (mean, last, zero), missing_values=[] (numbers that mean a missing value, such
        as [-999]), mask=true (add a channel that marks what was observed), since (tokens, or a time field: add the
        time since the last observation). columns: [a, b] makes several columns the channels of one field.
      set: lists of integers or strings, several values per token: the codes of a visit. combine=mean (sum, max),
        min_count=1, max_size (no limit), hash_size, max_values=64 (rows with more in a token are rejected),
        missing=refuse (empty: a token without values), separator (of the values of a token, where it is a text;
        list_separator separates tokens).
      time: times or numbers. unit=second (nanosecond to day, for numbers), format=null (of strptime, for text such as
        20.11.2023), cycles=[] (hour, weekday), clock (zoned or local: whether times have a time zone, inferred;
        times of the other kind are rejected; any: both are read as UTC). Becomes the logarithm of the gap to the
        previous token.
      text: running text. tokenizer=word (bpe, character, byte), lowercase=true, min_count=2, max_size=50000, vectors (a
        .vec or .txt file of pretrained word vectors).
      tree: bracketed text, or columns=[tokens,parents] of lists. tags=labels (as in treebanks; tokens: as in
        expressions), binarize=false (true: a node of more than two children becomes a chain of nodes of two),
        lowercase=false, min_count=1, max_size (no limit).
    Fields whose cells hold lists as text also take separator, by default list_separator.
    """
    ignore: Texts = ()
    """columns to leave out, such as [row, note]"""
    infer: bool = True
    """false: no other fields than those that fields and static declare"""
    static: Annotated[dict[Any, Any] | None, BeforeValidator(require_fields)] = None
    """name: kind of declared static fields. Inferred are columns of numbers and of few categories that never vary
    within a sequence; data.fields.NAME=KIND makes a token field of one, {} of all

    Static fields: a value of each sequence, such as age or country, as {name: kind}. Kinds: category, and number with
      missing=refuse (mean, zero). An event table repeats the value in each event of a sequence, or `labels` holds it.
    """
    encoders: Text | None = None
    """folder BUNDLE/encoders, whose vocabularies and scales are taken instead of those of the training rows;
    null: those of the training rows"""
    header: bool = True
    """false: the columns are called column0, column1, …

    Text formats (CSV, TSV, TXT)
    """
    encoding: Text = "utf-8"
    """or latin-1, utf-16"""
    quote: Text | None = None
    """quote character; null: "; '': quoting is off"""
    delimiter: Text | None = None
    """column delimiter; null: tab for .tsv, .tab and .txt, detected for .csv"""
    list_separator: FullText | None = None
    """separator of lists in text cells: ' ' reads "5 9 11" as three tokens; null: '[5, 9, 11]'"""
    max_length: Count | None = None
    """longest sequence, in tokens; null: no limit"""
    truncate: Literal["error", "keep_first", "keep_last"] = "error"
    """longer sequences: error (stop), keep_first or keep_last tokens. They are cut before anything is learned or
    computed from them: vocabularies, scales, time gaps, fills, duplicates"""
    on_bad_row: Literal["quarantine", "drop", "error"] = "quarantine"
    """bad rows: quarantine (leave out, list in quarantine.jsonl), drop (leave out) or error (stop). Malformed
    lines of a text file count too; in an event table only the event is left out. Too many lines with surplus
    cells, which would not fit in memory, always stop the run"""
    max_bad_share: Share = 0.1
    """maximum fraction of bad rows; more stop the run"""
    split: SplitOptions = Field(default_factory=SplitOptions)
    """how train is divided where a file is not given"""
    memory_limit: Text | None = "1GB"
    """memory of DuckDB while it reads and sorts; beyond it, data goes to disk"""
    cache_dir: Annotated[Text, BeforeValidator(elsewhere("seqclf.data.reading.sources.cache_folder"))] = NOT_SET
    """folder of the prepared data; null: that of the environment variable SEQCLF_CACHE, otherwise
    ~/.cache/seqclf, or where no home folder can be written to a folder in TMPDIR"""

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
        if self.exclude is not None and not self.group_by and self.id is None:
            raise InputError("data.exclude", "lists ids of data.id", "name their column: data.id=COLUMN")
        if self.rows is not None and (self.rows == "events") != bool(self.group_by):
            raise InputError(f"data.rows={self.rows}", "only events have a data.group_by", "change one of the two keys")
        self.split.check(self.group, self.splits_with_file())
        return self

    def splits_with_file(self) -> set[str]:
        """Return the names of the splits that have a file. A generator writes a file for every split."""
        names = ("train", "validation", "test")
        return {name for name in names if self.generator is not None or getattr(self, name) is not None}
