"""Scores of a model: what it says about the rows of a data set, as a Parquet file that judging reads.

A file holds one model. Its columns are `split`, `id`, `group`, `group_name`, `length`, `truncated`, `label`, and either
`logits` or `probabilities`, a list of one number for each class. The rows of each split stand together, in the order of
the data set. A key of the schema's metadata, `seqclf`, names the classes in the order of the logits. Files of other
tools need `split`, `id`, `label` and the scores alone, and may leave out the metadata where another file names the
classes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seqclf.data.schema.schema import label_codes, typed_labels
from seqclf.data.storage.store import Split
from seqclf.errors import InputError
from seqclf.evaluation.calibration import softmax
from seqclf.evaluation.ladder import most_probable
from seqclf.evaluation.results import SplitOutputs
from seqclf.evaluation.uncertainty.comparison import RowPredictions
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

METADATA = b"seqclf"
FOLDER = "scores"  # folder of the files in a run folder
NETWORK, BEFORE_REFIT, SHUFFLED, HEAD, ORDER_BLIND = "network", "before_refit", "shuffled", "head", "order_blind"
KEYS = ("role", "name", "model", "positive", "classes", "label_type")  # keys of the metadata
ROLES = (NETWORK, BEFORE_REFIT, SHUFFLED, HEAD, ORDER_BLIND)
MAX_BATCH_SCORES = 2_000_000  # numbers of a row group


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Outputs of a model for the rows of some splits, in the order of a data set.

    `role`: one of `ROLES`. `name`: name of the model in the ladder. `model`: its kind, such as "LSTM". `label_type`:
    type of the labels in the data.
    `positive`: label that matters, None without one. `splits`: dict split → outputs.
    """

    role: str
    name: str
    model: str
    classes: list[str]
    label_type: str
    positive: str | None
    splits: Mapping[str, SplitOutputs]

    def probabilities(self, split: str) -> np.ndarray:
        """Return the probabilities (N, C) of the rows of a split."""
        outputs = self.splits[split]
        return softmax(outputs.logits) if outputs.probabilities is None else outputs.probabilities

    def predictions(self, split: str) -> RowPredictions:
        """Return the most probable classes of the rows of a split, and their probabilities."""
        return most_probable(self.probabilities(split))

    def labelled(self, other: Scores) -> Scores:
        """Return these scores with the label type and the positive label of other scores of the same data."""
        return replace(self, label_type=other.label_type, positive=other.positive)


def split_outputs(rows: Split, logits: np.ndarray | None, probabilities: np.ndarray | None = None) -> SplitOutputs:
    """Return the outputs of a model for the rows of a split: logits (N, C), or probabilities (N, C)."""
    if logits is None:
        assert probabilities is not None, "one of the two"
        logits = np.log(np.maximum(probabilities, np.finfo(probabilities.dtype).tiny))
    lengths = rows.lengths_before_truncation
    truncated = lengths > rows.sequences.lengths
    return SplitOutputs(logits, rows.labels, lengths, truncated, rows.groups, rows.group_names, rows.ids, probabilities)


def write_scores(path: Path, scores: Scores) -> None:
    """Write scores to a Parquet file. The file appears when it is complete. Raises InputError for disk errors."""
    labels = typed_labels(scores.classes, scores.label_type)
    first = next(iter(scores.splits.values()))
    values = first.logits if first.probabilities is None else first.probabilities
    name = "logits" if first.probabilities is None else "probabilities"
    columns = [
        ("split", pa.string()),
        ("id", pa.string()),
        ("group", pa.int64()),
        ("group_name", pa.string()),
        ("length", pa.int64()),
        ("truncated", pa.bool_()),
        ("label", labels.type),
        (name, pa.list_(pa.from_numpy_dtype(values.dtype), len(scores.classes))),
    ]
    facts = {key: getattr(scores, key) for key in KEYS} | {"splits": list(scores.splits)}
    schema = pa.schema(columns, {METADATA: json.dumps(facts, ensure_ascii=False)})
    with (
        explain_disk_errors(path),
        atomic_replace(path) as unfinished,
        pq.ParquetWriter(unfinished, schema, use_dictionary=["split", "group_name", "label"]) as writer,
    ):
        for split, outputs in scores.splits.items():
            for arrays in _row_groups(split, outputs, labels):
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def _row_groups(split: str, outputs: SplitOutputs, labels: pa.Array) -> Iterator[list[pa.Array]]:
    """Yield the columns of each row group."""
    values = outputs.logits if outputs.probabilities is None else outputs.probabilities
    size = max(1, MAX_BATCH_SCORES // values.shape[1])
    for start in range(0, len(outputs.labels), size):
        part = slice(start, start + size)
        count = len(outputs.labels[part])
        flat = pa.array(np.ascontiguousarray(values[part]).reshape(-1))
        numbers = np.arange(start, start + count)
        yield [
            pa.repeat(split, count),
            pa.array(numbers.astype(str)) if outputs.ids is None else outputs.ids[part].cast(pa.string()),
            pa.nulls(count, pa.int64()) if outputs.groups is None else pa.array(outputs.groups[part].astype(np.int64)),
            pa.nulls(count, pa.string()) if outputs.group_names is None else outputs.group_names[part],
            pa.array(outputs.lengths[part].astype(np.int64)),
            pa.array(outputs.truncated[part].astype(bool)),
            labels.take(pa.array(outputs.labels[part].astype(np.int64))),
            pa.FixedSizeListArray.from_arrays(flat, values.shape[1]),
        ]


def read_scores(path: Path, against: Scores | None = None) -> Scores:
    """Read the scores of a Parquet file.

    `against`: scores of another model for the same data, which give what a file of another tool leaves out: the classes
    in the order of its scores, groups and lengths. Raises InputError for a file that is no such file, for scores that
    are not finite, and for a label that is no class.
    """
    try:
        table = pq.read_table(path)
    except (OSError, pa.ArrowException) as error:
        raise InputError(path, f"cannot be read as Parquet ({str(error).splitlines()[0]})") from None
    facts = _facts(path, table, against)
    columns = set(table.column_names)
    name = next((name for name in ("logits", "probabilities") if name in columns), None)
    if name is None or (missing := {"split", "id", "label"} - columns):
        lacks = "logits or probabilities" if name is None else min(missing)
        raise InputError(path, f"has no column {lacks}", "see docs/report.md for the columns of scores")
    values = _matrix(path, table.column(name), facts["classes"])
    labels = label_codes(table.column("label").cast(pa.string()), facts["classes"])
    if (labels < 0).any():
        unknown = table.column("label")[int(np.argmax(labels < 0))].as_py()
        raise InputError(path, f"label '{unknown}' is no class", f"the classes are {', '.join(facts['classes'])}")
    if table.column("split").null_count:
        raise InputError(path, "has rows without a split")
    names = table.column("split").cast(pa.string()).combine_chunks().dictionary_encode()
    numbers, order = np.array(names.indices), names.dictionary.to_pylist()
    splits = {
        split: _outputs(
            table, np.flatnonzero(numbers == (order.index(split) if split in order else -1)), labels, values, name
        )
        for split in facts.pop("splits", None) or order
    }
    if not splits:
        raise InputError(path, "has no rows")
    return Scores(**facts, splits=splits)


def _facts(path: Path, table: pa.Table, against: Scores | None) -> dict[str, Any]:
    try:
        facts = json.loads((table.schema.metadata or {}).get(METADATA, b"{}"))
        facts = {name: facts[name] for name in (*KEYS, "splits") if name in facts}
    except (ValueError, TypeError):
        facts = {}
    if "classes" not in facts and against is None:
        raise InputError(path, "does not name its classes", "give against=SCORES, a file of a run on the same data")
    if against is not None:
        known = {"classes": against.classes, "label_type": against.label_type, "positive": against.positive}
        facts = {"role": NETWORK, "name": NETWORK, "model": path.stem, **known, **facts}
    elif not set(KEYS) <= facts.keys():
        raise InputError(path, "is not as this version writes scores", "train again")
    if facts["role"] not in ROLES or not all(isinstance(label, str) for label in facts["classes"]):
        raise InputError(path, "is not as this version writes scores", "train again")
    return facts


def _matrix(path: Path, column: pa.ChunkedArray, classes: Sequence[str]) -> np.ndarray:
    """Return the scores (N, C) of a list column."""
    array = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    lengths = pc.list_value_length(array)
    if array.null_count or pc.any(pc.not_equal(lengths, len(classes))).as_py():
        raise InputError(path, f"has rows without {len(classes)} scores", f"give one for each of {', '.join(classes)}")
    flat = array.flatten().to_numpy(zero_copy_only=False)
    if not np.isfinite(flat).all():
        row = int(np.argmin(np.isfinite(flat))) // len(classes)
        raise InputError(path, f"row {row + 1} has scores that are not finite")
    return flat.reshape(-1, len(classes))


def _outputs(table: pa.Table, rows: np.ndarray, labels: np.ndarray, values: np.ndarray, name: str) -> SplitOutputs:
    part = table.take(pa.array(rows))

    def column(name: str) -> pa.Array | None:
        if name not in part.column_names or part.column(name).null_count == len(rows):
            return None
        return part.column(name).combine_chunks()

    groups, lengths, truncated = column("group"), column("length"), column("truncated")
    if groups is not None:
        groups = groups if pa.types.is_integer(groups.type) else groups.dictionary_encode().indices
        alone = np.array(groups.is_null())
        groups = np.array(groups.fill_null(0)).astype(np.int64)
        groups[alone] = groups.max() + 1 + np.arange(alone.sum())  # a row without a group is a group of its own
    is_probability = name == "probabilities"
    values = values[rows]
    return SplitOutputs(
        logits=np.log(np.maximum(values, np.finfo(values.dtype).tiny)) if is_probability else values,
        labels=labels[rows],
        lengths=np.ones(len(rows), np.int64) if lengths is None else np.array(lengths),
        truncated=np.zeros(len(rows), bool) if truncated is None else np.array(truncated),
        groups=groups,
        group_names=column("group_name"),
        ids=part.column("id").cast(pa.string()).combine_chunks(),
        probabilities=values if is_probability else None,
    )


def positions_in(part: Scores, whole: Scores, split: str) -> np.ndarray:
    """Return the positions (M,) of the rows of `part` in a split of `whole`, whose rows they are.

    Raises InputError for rows that `whole` lacks, that stand there more than once, or that have another label.
    """
    some, all_rows = part.splits[split], whole.splits[split]
    if some.ids is None or all_rows.ids is None or some.ids.equals(all_rows.ids):
        positions = np.arange(len(some.labels))
    else:
        if pc.count_distinct(all_rows.ids).as_py() < len(all_rows.ids):
            raise InputError(f"split {split}", "has other rows in two files of scores, and ids that repeat")
        positions = np.array(pc.fill_null(pc.index_in(some.ids, value_set=all_rows.ids), -1)).astype(np.int64)
        if (positions < 0).any():
            missing = some.ids[int(np.argmax(positions < 0))].as_py()
            raise InputError(f"split {split}", f"row {missing} is in one file of scores only", "score the same rows")
    if len(positions) > len(all_rows.labels) or (some.labels != all_rows.labels[positions]).any():
        raise InputError(f"split {split}", "has other labels in two files of scores", "score the same rows")
    return positions


def write_contenders(folder: Path, contenders: Sequence[Scores]) -> None:
    """Write the scores of each model to a file. The names of the files sort as the models do."""
    for number, scores in enumerate(contenders):
        name = scores.model if scores.role == ORDER_BLIND else scores.name
        write_scores(folder / f"{number}-{re.sub(r'[^a-z0-9]+', '_', name.lower())}.parquet", scores)


def read_contenders(folder: Path) -> list[Scores]:
    """Read the files that `write_contenders` wrote. Raises InputError for a folder without them."""
    files = sorted(folder.glob("*-*.parquet"), key=lambda path: int(path.name.partition("-")[0]))
    if not any(path.stem.endswith(f"-{NETWORK}") for path in files):
        raise InputError(folder, "holds no scores of a finished run", "name the folder of a run of this version")
    return [read_scores(path) for path in files]
