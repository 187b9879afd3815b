"""Files of scores: the Parquet file of a model, and the folder of those of a run.

The columns are `split`, `id`, `group`, `group_name`, `fold`, `length`, `truncated`, `weight`, `cost`, `label`, either
`logits` or `probabilities`, lists of one number for each class, in the order of the data set, and the network's extra
outputs. The metadata key `seqclf` names the classes, the splits whose `fold` counts, the extra outputs and the basis of
thresholds.
Files of other tools need `split`, `id`, `label` and the scores alone, and no metadata where another file names the
classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seqclf.data.ragged import output_column
from seqclf.data.schema.rows import as_text
from seqclf.data.schema.schema import ARROW_TYPES, label_codes, typed_labels
from seqclf.data.storage.dataset import THRESHOLD
from seqclf.errors import InputError, first_line
from seqclf.evaluation.decision import BASES
from seqclf.evaluation.scores import FILE_SPLITS, NETWORK, ORDER_BLIND, ROLES, ScoredRows, Scores, completed, log
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors
from seqclf.system.state_validation import error_context, one_of, parse_json, require

METADATA = b"seqclf"
FOLDER = "scores"  # folder of the files in a run folder
FILE_NAME = re.compile(r"(\d{1,3})-[a-z0-9_]+\.parquet")
ROUNDING = 1e-3  # largest distance of a sum of probabilities from 1
KEYS = ("role", "name", "model", "positive", "classes", "label_type")  # keys of the metadata
FACTS_SHAPE = {
    "role": one_of(*ROLES),
    "name": str,
    "model": str,
    "positive": (str, None),
    "classes": [str],
    "label_type": one_of(*ARROW_TYPES),
}
# `folds`: names of the splits with folds. `extra`: names of the columns of extra outputs.
OPTIONAL = {"basis": one_of(*BASES), "splits": [str], "folds": [str], "extra": [str]}
MAX_BATCH_SCORES = 2_000_000  # numbers of a row group


def write_scores(path: Path, scores: Scores) -> None:
    """Write scores to a Parquet file, which appears when it is complete. Raises InputError for disk errors."""
    labels = typed_labels(scores.classes, scores.label_type)
    first = next(iter(scores.splits.values()))
    values = first.logits if first.only_probabilities is None else first.only_probabilities
    name = "logits" if first.only_probabilities is None else "probabilities"
    columns = [
        ("split", pa.string()),
        ("row", pa.int64()),
        ("id", pa.string()),
        ("group", pa.int64()),
        ("group_name", pa.string()),
        ("fold", pa.int64()),
        ("length", pa.int64()),
        ("truncated", pa.bool_()),
        ("weight", pa.float64()),
        ("cost", pa.float64()),
        ("label", labels.type),
        (name, pa.list_(pa.from_numpy_dtype(values.dtype), len(scores.classes))),
        *((name, output_column(values[:0]).type) for name, values in first.extra.items()),
    ]
    facts = {key: getattr(scores, key) for key in (*KEYS, "basis")} | {"splits": list(scores.splits)}
    facts["extra"] = list(first.extra)
    facts["folds"] = [split for split, outputs in scores.splits.items() if outputs.fold is not None]
    schema = pa.schema(columns, {METADATA: json.dumps(facts, ensure_ascii=False)})
    with (
        explain_disk_errors(path),
        atomic_replace(path) as unfinished,
        pq.ParquetWriter(unfinished, schema, use_dictionary=["split", "group_name", "label"]) as writer,
    ):
        for split, outputs in scores.splits.items():
            for arrays in _row_groups(split, outputs, labels):
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def _row_groups(split: str, outputs: ScoredRows, labels: pa.Array) -> Iterator[list[pa.Array]]:
    values = outputs.logits if outputs.only_probabilities is None else outputs.only_probabilities
    size = max(1, MAX_BATCH_SCORES // values.shape[1])
    for start in range(0, len(outputs.labels), size):
        part = slice(start, start + size)
        count = len(outputs.labels[part])
        flat = pa.array(np.ascontiguousarray(values[part]).reshape(-1))
        numbers = np.arange(start, start + count)
        yield [
            pa.repeat(split, count),
            pa.nulls(count, pa.int64()) if outputs.positions is None else pa.array(outputs.positions[part]),
            pa.array(numbers.astype(str)) if outputs.ids is None else outputs.ids[part].cast(pa.string()),
            pa.nulls(count, pa.int64()) if outputs.groups is None else pa.array(outputs.groups[part].astype(np.int64)),
            pa.nulls(count, pa.string()) if outputs.group_names is None else outputs.group_names[part],
            pa.nulls(count, pa.int64()) if outputs.fold is None else pa.array(outputs.fold[part].astype(np.int64)),
            pa.array(outputs.lengths[part].astype(np.int64)),
            pa.array(outputs.truncated[part].astype(bool)),
            *(
                pa.nulls(count, pa.float64()) if values is None else pa.array(values[part], pa.float64())
                for values in (outputs.weights, outputs.costs)
            ),
            labels.take(pa.array(outputs.labels[part].astype(np.int64))),
            pa.FixedSizeListArray.from_arrays(flat, values.shape[1]),
            *(output_column(values[part]) for values in outputs.extra.values()),
        ]


def read_scores(path: Path, against: Scores | None = None) -> Scores:
    """Read the scores of a Parquet file.

    `against`: scores of another model for the same rows, which give what a file of another tool leaves out: classes,
    groups, lengths and truncation. Raises InputError for a file that is no such file, scores that are not finite,
    probabilities that do not sum to 1, a label that is no class and a split of another name.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(path, f"cannot be read as Parquet ({first_line(error)})") from None
    with error_context(path, "see docs/report.md for the content of such files"):
        scores = _scores_of(table, _facts(table, path.stem, against))
        return scores if against is None else completed(scores, against)


def _facts(table: pa.Table, name: str, against: Scores | None) -> dict[str, Any]:
    """Return the metadata of a file, which those of `against` complete."""
    stored = (table.schema.metadata or {}).get(METADATA, b"{}")
    facts = parse_json(stored)
    require(facts, dict, "the metadata")
    if "classes" not in facts and against is None:
        raise InputError(None, "does not name its classes", "give against=SCORES, a file of a run on the same data")
    if against is not None:
        known = {"classes": against.classes, "label_type": against.label_type, "positive": against.positive}
        facts = {"role": NETWORK, "name": NETWORK, "model": name, **known, **facts}
    require(facts, FACTS_SHAPE | {key: shape for key, shape in OPTIONAL.items() if key in facts})
    classes, positive = facts["classes"], facts["positive"]
    if len(set(classes)) != len(classes) or len(classes) < 2 or (positive is not None and positive not in classes):
        raise InputError(None, "names no classes, or a positive label that is none of them")
    return {key: facts[key] for key in (*KEYS, *OPTIONAL) if key in facts}


def _scores_of(table: pa.Table, facts: dict[str, Any]) -> Scores:
    name = next((name for name in ("logits", "probabilities") if name in table.column_names), None)
    if name is None:
        raise InputError(None, "has no column logits or probabilities")
    classes, listed, folds = facts["classes"], facts.pop("splits", ()), facts.pop("folds", ())
    extra = {name: _output(table, name) for name in facts.pop("extra", ())}
    values = _matrix(table.column(name), classes)
    if name == "probabilities" and ((values < 0).any() or (abs(values.sum(axis=1) - 1) > ROUNDING).any()):
        raise InputError(None, "has probabilities that are not shares of 1")
    texts = {key: _column(table, key, pa.string()) for key in ("split", "id", "label")}
    labels = label_codes(texts["label"], classes)
    if (labels < 0).any():
        unknown = texts["label"][int(np.argmax(labels < 0))].as_py()
        raise InputError(None, f"label '{unknown}' is no class", f"the classes are {', '.join(classes)}")
    names = texts["split"].dictionary_encode()
    order, numbers = names.dictionary.to_pylist(), np.array(names.indices)
    if other := next((split for split in order if split not in FILE_SPLITS), None):
        raise InputError(None, f"has a split '{other[:40]}'", f"name it one of {', '.join(FILE_SPLITS)}")
    found = {split: np.flatnonzero(numbers == order.index(split)) for split in FILE_SPLITS if split in order}
    if not found.keys() - {THRESHOLD}:
        raise InputError(None, "has no rows to judge by")
    if THRESHOLD in listed:
        found.setdefault(THRESHOLD, np.empty(0, np.int64))  # a run may have held out no row
    outputs = _outputs(table, labels, values, texts["id"], is_probability=name == "probabilities")
    outputs = outputs._replace(extra=extra)
    if folds:  # a column `fold` of another tool may mean anything
        column = _column(table, "fold", pa.int64(), required=False)
        if column.filter(pc.is_in(texts["split"], pa.array(folds))).null_count:
            raise InputError(None, "column fold has rows without a value")
        outputs = outputs._replace(fold=np.array(column.fill_null(-1)))
    parts = {split: outputs.take(rows) for split, rows in found.items()}
    parts = {split: part if split in folds else part._replace(fold=None) for split, part in parts.items()}
    return Scores(**facts, splits=parts)


def _column(table: pa.Table, name: str, kind: pa.DataType, *, required: bool = True) -> pa.Array:
    """Raises InputError if it is missing or does not fit."""
    if name not in table.column_names:
        raise InputError(None, f"has no column {name}")
    try:
        array = table.column(name).combine_chunks()
        array = as_text(array) if pa.types.is_floating(array.type) and pa.types.is_string(kind) else array.cast(kind)
        array.validate(full=True)
    except pa.ArrowException as error:
        raise InputError(None, f"column {name} is not of type {kind} ({first_line(error)[:80]})") from None
    if required and array.null_count:
        raise InputError(None, f"column {name} has rows without a value")
    return array


def _optional(table: pa.Table, name: str, kind: pa.DataType, *, partly: bool = False) -> pa.Array | None:
    """Return a column, None if it is missing or has no values. `partly`: True if some rows may lack a value."""
    if name not in table.column_names or table.column(name).null_count == len(table):
        return None
    return _column(table, name, kind, required=not partly)


def _output(table: pa.Table, name: str) -> np.ndarray:
    """Return the numbers (N,) or the vectors (N, D) of an extra output."""
    if name not in table.column_names or table.column(name).null_count:
        raise InputError(None, f"has no column {name}, or rows without a value")
    column = table.column(name).combine_chunks()
    if not pa.types.is_fixed_size_list(column.type):
        return column.to_numpy(zero_copy_only=False)
    return column.flatten().to_numpy(zero_copy_only=False).reshape(len(column), column.type.list_size)


def _matrix(column: pa.ChunkedArray, classes: Sequence[str]) -> np.ndarray:
    """Return the scores (N, C) of a list column."""
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    if not is_list or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        raise InputError(None, "has scores that are no lists of numbers")
    array = column.combine_chunks()
    if array.null_count or pc.any(pc.not_equal(pc.list_value_length(array), len(classes))).as_py():
        raise InputError(None, f"has rows without {len(classes)} scores", f"give one for each of {', '.join(classes)}")
    flat = array.flatten().to_numpy(zero_copy_only=False)
    flat = flat if flat.dtype in (np.float32, np.float64) else flat.astype(np.float64)
    if not np.isfinite(flat).all():
        row = int(np.argmin(np.isfinite(flat))) // len(classes)
        raise InputError(None, f"row {row + 1} has scores that are not finite")
    return flat.reshape(-1, len(classes))


def _outputs(
    table: pa.Table, labels: np.ndarray, values: np.ndarray, ids: pa.Array, *, is_probability: bool
) -> ScoredRows:
    """A length that is unknown is 0."""
    named, rows = _optional(table, "group_name", pa.string(), partly=True), _optional(table, "row", pa.int64())
    lengths, truncated = _optional(table, "length", pa.int64()), _optional(table, "truncated", pa.bool_())
    weights, costs = (_numbers(_optional(table, name, pa.float64()), name) for name in ("weight", "cost"))
    kind = (
        pa.int64() if "group" in table.column_names and pa.types.is_integer(table.schema.field("group").type) else None
    )
    groups = _optional(table, "group", kind or pa.string(), partly=True)
    groups = named if groups is None else groups
    return ScoredRows(
        logits=log(values) if is_probability else values,
        labels=labels,
        lengths=np.zeros(len(labels), np.int64) if lengths is None else np.array(lengths),
        truncated=np.zeros(len(labels), bool) if truncated is None else np.array(truncated),
        groups=None if groups is None else _group_codes(groups),
        group_names=named,
        ids=ids,
        only_probabilities=values if is_probability else None,
        positions=None if rows is None else np.array(rows),
        weights=weights,
        costs=costs,
    )


def _numbers(column: pa.Array | None, name: str) -> np.ndarray | None:
    values = None if column is None else np.array(column)
    if values is not None and not (np.isfinite(values) & (values >= 0)).all():
        raise InputError(None, f"column {name} has negative or infinite numbers")
    return values


def _group_codes(groups: pa.Array) -> np.ndarray:
    """A row without a group is a group of its own."""
    codes = groups if pa.types.is_integer(groups.type) else groups.dictionary_encode().indices
    alone = np.array(codes.is_null())
    numbers = np.array(codes.fill_null(0)).astype(np.int64)
    numbers[alone] = numbers.max(initial=0) + 1 + np.arange(alone.sum())
    return numbers


def write_run_scores(folder: Path, models: Sequence[Scores]) -> None:
    """Write the scores of each model to a file. Names of files sort as the models do."""
    for number, scores in enumerate(models):
        name = scores.model if scores.role == ORDER_BLIND else scores.name
        write_scores(folder / f"{number}-{re.sub(r'[^a-z0-9]+', '_', name.lower())}.parquet", scores)


def read_run_scores(folder: Path) -> list[Scores]:
    """Read the files that `write_run_scores` wrote. Raises InputError for a folder without them."""
    files = {int(name[1]): path for path in folder.glob("*.parquet") if (name := FILE_NAME.fullmatch(path.name))}
    if sorted(files) != list(range(len(files))) or not files or not files[len(files) - 1].stem.endswith(f"-{NETWORK}"):
        raise InputError(folder, "holds no scores of a finished run", "name the folder of a run of this version")
    return [read_scores(files[number]) for number in sorted(files)]
