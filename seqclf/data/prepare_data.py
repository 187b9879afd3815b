"""Prepare data: turn source files into an encoded dataset on disk, once per state of the files and options.

The first pass checks the rows and stages the good ones on disk. Then rows are assigned to splits, and encoders are fit
on the training rows only. The second pass encodes the staged rows and writes the splits.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.encoding.declaration import (
    build_schema,
    columns_of,
    declarations,
    declared_as,
    named_static_field,
    take_columns,
)
from seqclf.data.encoding.encoders import KINDS, FieldEncoder, fit_encoders, make_encoders, save_encoders, take_encoders
from seqclf.data.quantities import MAX_ROWS, as_number, integer_fields, quantities
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source, reader_of, source_of
from seqclf.data.schema.casts import COST, GROUP_NAME, LABEL, WEIGHT, RowKey, named_keys
from seqclf.data.schema.problems import Quarantine
from seqclf.data.schema.schema import INFERENCE_ROWS, Field, Schema, label_type
from seqclf.data.sequence_columns import times_of_sequences, with_static
from seqclf.data.splitting.policies import SPLITS, SplitPolicy
from seqclf.data.stage_rows import ExcludedRows, Staged, check_columns, collect
from seqclf.data.storage.cache import (
    CONTENT,
    CacheEntry,
    DamagedError,
    changed_file,
    fingerprint,
    states_of,
    with_generated,
)
from seqclf.data.storage.dataset import Dataset, open_dataset
from seqclf.data.write_store import StoreWriter
from seqclf.errors import InputError
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.typed_text import hydra_value, shell_word
from seqclf.system import progress

FEW_LABELS = 20  # labels of any form are accepted as classes up to this number of distinct labels
NEARLY_ALL = 0.9  # the label column is rejected as an id above this number of distinct labels per row


Encoders = Mapping[str, FieldEncoder | type[FieldEncoder]]
FieldCheck = Callable[[Encoders], None]  # argument: dict field → encoder (fitted or not) or encoder class


def accept_fields(_: Encoders) -> None:
    pass


def prepare(options: DataOptions, check_fields: FieldCheck = accept_fields) -> Dataset:
    """Read, check, split and encode the data, or open the cached dataset if neither files nor options have changed.

    `check_fields` is called once the fields are known, before rows are read; it raises InputError to reject one.

    >>> import tempfile
    >>> from omegaconf import OmegaConf
    >>> from seqclf.config.command_keys import CONF
    >>> options = OmegaConf.to_container(OmegaConf.load(CONF / "data/files.yaml"), resolve=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = Path(folder, "train.csv")
    ...     _ = table.write_text("tokens,label\\n" + '"[7, 8]",a\\n"[8, 9, 9]",b\\n' * 5)
    ...     options |= {"train": str(table), "label": "label", "cache_dir": folder}
    ...     dataset = prepare(DataOptions.build(**options))
    >>> dataset.classes, {name: len(split.sequences) for name, split in dataset.splits.items()}
    (['a', 'b'], {'train': 8, 'validation': 2})
    """
    cache = Path(options.cache_dir).expanduser()
    if options.generator is not None and (declared := _declared_classes(options.fields)):
        check_fields(declared)  # reject invalid fields early, because a generator may run for a long time
    options = with_generated(options)
    if options.train is None:
        raise InputError("data.train", "not set", "give a file, a glob or a URL: data.train=train.parquet")
    sources = {name: source for name in SPLITS if (source := source_of(options, name)) is not None}
    with progress.stage("listing files"):
        states = states_of(options, sources)
    entry = CacheEntry(cache, f"{options.name}-{fingerprint(options, states)}")

    def build(scratch: Path) -> None:
        build_dataset(options, sources, scratch, check_fields)
        if (changed := changed_file(states, states_of(options, sources))) is not None:
            problem, remedy = "a file of the data changed while it was read", "run again, on a copy if it grows"
            raise InputError(changed or sources["train"], problem, remedy)

    dataset = entry.reuse_or_build(lambda folder: open_dataset(folder, options.positive, True), build)
    if dataset is not None:
        check_fields(dataset.encoders)
        return dataset
    try:
        return open_dataset(entry.folder, options.positive, False)
    except DamagedError as error:
        problem = f"does not keep what is written to it ({error})"
        raise InputError(f"data.cache_dir={cache}", problem, "name another") from None


def _declared_classes(fields: Mapping[str, Any] | None) -> dict[str, type[FieldEncoder]]:
    """Empty if no fields are declared, or if a field kind is unknown."""
    kinds = {
        str(name): spec.get("kind") if isinstance(spec, Mapping) else spec for name, spec in (fields or {}).items()
    }
    if not all(isinstance(kind, str) and kind in KINDS for kind in kinds.values()):
        return {}
    return {name: KINDS[str(kind)] for name, kind in kinds.items()}


def build_dataset(
    options: DataOptions,
    sources: Mapping[str, Source],
    scratch: Path,
    check_fields: FieldCheck = accept_fields,
    notes: Sequence[str] = (),
) -> None:
    """Build a dataset in `scratch`/CONTENT. Raises InputError for data that cannot be used.

    `sources`: dict split → source. `check_fields`: see `prepare`. `notes`: lines to store with the dataset.
    """
    policy = SplitPolicy.from_options(options.split, options.group, sources)
    quarantine = Quarantine(options.on_bad_row, options.max_bad_share)
    excluded = ExcludedRows(options.exclude)
    label_table = _open_label_table(options, [*policy.row_keys, *value_keys(options)])
    with ExitStack() as stack:
        with progress.stage("detecting formats and fields"):
            readers = {
                name: stack.enter_context(SourceReader(source, keep_malformed=True)) for name, source in sources.items()
            }
            schema, inferred = _build_schema(options, readers["train"], label_table)
        notes = [*notes, *inferred]
        encoders = make_encoders(schema.fields, schema.truncation)
        check_fields(encoders)
        tables = (policy, label_table, excluded)
        staged = _collect_all(options, readers, schema, encoders, quarantine, scratch, *tables)
        excluded.require_found()

    inputs = {name: rows.split_inputs for name, rows in staged.items()}
    labels_from = sources["train"] if label_table is None else label_table.source
    where = f"{labels_from}: column '{schema.label}' (data.label)"
    _require_classes(inputs["train"].labels, where, are_many=options.classes == "many")
    splits = {name: np.full(len(rows), SPLITS.index(name)) for name, rows in inputs.items()}
    # The rows of a validation or test file stay in their split.
    splits["train"] = policy.assign(inputs["train"], str(sources["train"]))
    # Group keys, the default ids of events, never repeat, so such ids are compared only if `data.id` names a column.
    compare_ids = len(sources) > 1 or not schema.group_by or schema.id is not None
    with progress.stage("looking for sequences that splits share"):
        leaks, splits = policy.check_leaks(inputs, splits, compare_ids=compare_ids)
    groups = {name: policy.groups(rows) for name, rows in inputs.items()}

    declared = {str(name): spec for name, spec in (options.fields or {}).items()}
    is_open = options.infer and options.encoders is None
    if fields := integer_fields(encoders, declared) if is_open else {}:
        with progress.stage("codes or quantities"):
            found, note = quantities(fields, _some_rows(staged["train"], splits["train"], (LABEL, *fields)))
        if found:  # again, because other cells of a number are rejected than of a category
            decided = [as_number(fields[name].field) if name in found else fields[name].field for name in fields]
            again = options.model_copy(update={"fields": declared | declarations(decided)})
            build_dataset(again, sources, scratch, check_fields, [note])
            return
        notes.append(note)

    # Only labels of training rows become classes, because a model cannot learn to predict any other class.
    classes = _classes(inputs["train"].labels, splits["train"])
    if len(classes) < 2:
        problem = f"one class only ('{classes[0]}') in the training rows"
        remedy = f"a classifier needs two or more: {_only_group(staged['train'], classes[0]) or 'check data.label'}"
        raise InputError(f"{sources['train']}: column '{schema.label}'", problem, remedy)
    # Encoders read the staged rows several times.
    with progress.stage("learning vocabularies and scales", unit="rows") as fitting:

        def read(*columns: str) -> Iterator[pa.RecordBatch]:
            for record_batch in _training_rows(staged["train"], splits["train"], columns):
                yield record_batch
                fitting.advance(record_batch.num_rows)

        if options.encoders is None:
            fit_encoders(encoders, read)
        else:
            take_encoders(encoders, Path(options.encoders).expanduser())

    folder = scratch / CONTENT
    save_encoders(encoders, folder / "encoders")
    writer = StoreWriter(schema, classes, encoders, quarantine, folder)
    digests, report = writer.run(staged, splits, groups)
    quarantine.write(folder / "quarantine.jsonl")
    # The digest covers the inputs and labels of a model, not paths, ids and counts, so equal data has one digest.
    content = [classes, digests, {name: encoder.state() for name, encoder in encoders.items()}]
    state = {
        "schema": schema.to_dict(),
        "classes": classes,
        "splits": list(digests),
        "report": {name: counts.to_dict() for name, counts in report.items()},
        "leaks": leaks.to_dict(),
        "digest": hashlib.sha256(json.dumps(content).encode()).hexdigest(),
        "reader": reader_of(options),
        "notes": notes,
    }
    (folder / "dataset.json").write_text(json.dumps(state, ensure_ascii=False), encoding="utf-8")


def _collect_all(
    options: DataOptions,
    readers: Mapping[str, SourceReader],
    schema: Schema,
    encoders: Mapping[str, FieldEncoder],
    quarantine: Quarantine,
    scratch: Path,
    policy: SplitPolicy,
    label_table: LabelTable | None,
    excluded: ExcludedRows,
) -> dict[str, Staged]:
    """Check that no source lacks a column. Stage the rows of each source in a file in the folder `scratch`."""
    of_labels = [] if label_table is None else label_table.row_keys
    values = [key for key in value_keys(options) if key not in of_labels]
    row_keys = [*(key for key in policy.row_keys if key not in of_labels), *values]
    for name, reader in readers.items():
        types = reader.column_types
        source_schema = schema if label_table is None else label_table.without_joined(schema, types.keys())
        needed = row_keys if name == "train" else values
        check_columns(reader, source_schema, [(key.option, key.column) for key in needed])
    staged = {}
    for name, reader in readers.items():
        # If a validation or test file lacks the group column or the time column, its rows have null in this column.
        keys = {column: sql for key in row_keys for column, sql in key.sql(reader.column_types).items()}
        path = scratch / f"{name}.arrow"
        # Original texts are kept for evaluation rows only, because reports do not show training rows.
        keep_texts = name != "train" or policy.divides_train
        staged[name] = collect(
            reader, schema, encoders, quarantine, path, keys, label_table, excluded, keep_texts=keep_texts
        )
        reader.close()  # closing frees the memory and the spill files of DuckDB before the next source is read
    return staged


def value_keys(options: DataOptions) -> list[RowKey]:
    """Return the columns of numbers of rows that are no fields: weights and costs."""
    return named_keys((WEIGHT, "data.weight", options.weight), (COST, "data.cost", options.cost))


def _open_label_table(options: DataOptions, row_keys: Sequence[RowKey]) -> LabelTable | None:
    """The table may also hold static fields, and the columns of `row_keys`."""
    source = source_of(options, "labels")
    if source is None:
        return None
    id_columns = options.group_by or (str(options.id),)
    declared, static = options.static or {}, []
    columns = {
        name: take_columns(f"data.static.{name}", name, dict(spec) if isinstance(spec, Mapping) else {})
        for name, spec in declared.items()
    }
    with SourceReader(source) as reader:
        if held := [name for name, given in columns.items() if reader.column_types.keys() >= set(given)]:
            sample = reader.sample(INFERENCE_ROWS)
            static = [
                named_static_field(str(name), declared[name], sample, str(source), options.infer) for name in held
            ]
    return LabelTable(source, id_columns, options.label, row_keys, static)


def _build_schema(
    options: DataOptions, reader: SourceReader, label_table: LabelTable | None
) -> tuple[Schema, list[str]]:
    """Return the schema of the training source, and notes on what its first rows decided."""
    sample = reader.sample(INFERENCE_ROWS)
    reasons = {  # dict column → why it is no field
        **dict.fromkeys(_split_columns(options), "it splits the rows"),
        **dict.fromkeys(times_of_sequences(reader, sample, options), "a time of the sequence"),
        **{key.column: f"{key.option}, the {key.kind}" for key in value_keys(options)},
        **dict.fromkeys(reader.partitions, "a folder of the files"),
        **dict.fromkeys(options.ignore, "data.ignore"),
    }
    skip = [str(options.label), *reasons]
    of_labels = [] if label_table is None else label_table.static
    joined = [field for field in of_labels if not set(sample.column_names) >= set(field.columns)]
    schema = build_schema(sample, str(reader.source), options, skip, joined)
    notes: list[str] = []
    if options.infer:
        declared = {*map(str, options.fields or {}), *map(str, options.static or {})}
        kept = columns_of(field for field in schema.fields if field.name in declared)
        if options.static != {}:
            schema, others = with_static(schema, reader, sample, {*skip, *kept, *filter(None, [options.id])})
            reasons = others | reasons
        static = [field for field in schema.fields if field.static and field.name not in declared]
        notes += _static_notes(static, schema)
    notes += _ignored_notes(schema, sample, options, reasons)
    column_type = reader.column_types[options.label] if label_table is None else label_table.label_column_type
    return replace(schema, label=options.label, label_type=label_type(column_type)), notes


def _static_notes(static: Sequence[Field], schema: Schema) -> list[str]:
    if not static:
        return []
    shown = ", ".join(f"{field.name} ({field.kind})" for field in static)
    of_tokens = f"{declared_as(static[0], static[0].kind)} reads one value per token, " if schema.group_by else ""
    ignored = shell_word(f"data.ignore=[{hydra_value(static[0].column)}]")
    return [f"static fields, of one value per sequence: {shown}; {of_tokens}{ignored} leaves one out"]


def _ignored_notes(schema: Schema, sample: pa.Table, options: DataOptions, reasons: Mapping[str, str]) -> list[str]:
    def reason(name: str) -> str:
        cells = sample.column(name)
        if name in reasons:
            return reasons[name]
        if name in schema.order_by:
            return "it only sorts the events"
        if not options.infer:
            return "data.infer=false"
        if cells.null_count == len(cells):
            return "no value in the first rows"
        return "lists" if pa.types.is_nested(cells.type) else "data.static={}"

    unused = {*schema.ignored, *schema.order_by} - columns_of(schema.fields)
    shown = ", ".join(f"{name} ({reason(name)})" for name in sample.column_names if name in unused)
    return [f"ignored columns: {shown}"] if shown else []


def _split_columns(options: DataOptions) -> list[str]:
    """Return columns that become no inferred fields: group and time, unless they are in `order_by`."""
    columns = (options.group, options.split.column)
    return [column for column in columns if column is not None and column not in options.order_by]


def _require_classes(labels: pa.ChunkedArray, where: str, *, are_many: bool) -> None:
    """Raise InputError if labels look like quantities or ids. `are_many`: True if many numbers are classes."""
    distinct = pc.unique(labels)
    if len(distinct) <= FEW_LABELS:
        return
    counts = f"{len(distinct):,} different values in {len(labels):,} rows"
    if (are_whole := _are_whole(distinct)) is not None and not (are_whole and are_many):
        remedy = "; if the numbers are codes of classes, set data.classes=many" if are_whole else ""
        problem = f"{counts}, which are numbers: regression is not done here"
        raise InputError(where, problem, f"name another column, or bin it in data.query{remedy}")
    if len(distinct) > NEARLY_ALL * len(labels):
        problem = f"{counts}, nearly one for each row"
        raise InputError(where, problem, "name the column of the classes: data.label=COLUMN")


def _are_whole(labels: pa.Array) -> bool | None:
    """None if a label is no number."""
    try:
        values = labels.cast(pa.float64()).to_numpy()
    except pa.ArrowInvalid:
        return None
    return bool((np.floor(values) == values).all())


def _only_group(staged: Staged, label: str) -> str | None:
    """Return what to do if all rows of other labels are of one group, which was not drawn for training, or None."""
    if GROUP_NAME not in next(staged.batches()).schema.names:
        return None
    rows = pa.Table.from_batches(staged.batches(LABEL, GROUP_NAME))
    names = pc.unique(rows.filter(pc.not_equal(rows.column(LABEL), label)).column(GROUP_NAME)).to_pylist()
    is_one = len(names) == 1
    return f"all other rows are of the group '{names[0]}' (data.group), give rows of more groups" if is_one else None


def _classes(labels: pa.ChunkedArray, splits: np.ndarray) -> list[str]:
    """Return the sorted labels of the training rows, integers as numbers. `splits`: (N,) position in SPLITS."""
    classes = pc.unique(labels.filter(pa.array(splits == SPLITS.index("train")))).to_pylist()
    try:
        # If integers were sorted as text, 10 would come before 2.
        return sorted(classes, key=lambda label: (int(label), label))
    except ValueError:
        return sorted(classes)


def _some_rows(staged: Staged, splits: np.ndarray, columns: tuple[str, ...]) -> pa.Table:
    training = np.flatnonzero(splits == SPLITS.index("train"))
    drawn = np.full(len(splits), -1)
    drawn[np.random.default_rng(0).permutation(training)[:MAX_ROWS]] = SPLITS.index("train")
    return pa.Table.from_batches(_training_rows(staged, drawn, columns))


def _training_rows(staged: Staged, splits: np.ndarray, columns: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    """`splits`: (N,) position of each staged row's split in SPLITS."""
    start = 0
    for record_batch in staged.batches(*columns):
        is_training = splits[start : start + record_batch.num_rows] == SPLITS.index("train")
        start += record_batch.num_rows
        if is_training.all():
            yield record_batch
        elif is_training.any():
            yield record_batch.filter(pa.array(is_training))
