"""Writer of predictions.parquet: every evaluated row of a run with its label, prediction and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.bundle.predictions import predictions_schema
from seqclf.data.ragged import output_column
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.scores import ScoredRows
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

GROUP_PROBABILITIES = 2_000_000  # maximum number of probabilities in a row group (16 MB), over all classes
GROUP_ROWS = 200_000  # maximum number of rows in a row group, because ids and group names take memory too
FEW_VALUES = ["group", "split", "label", "prediction"]  # columns that Parquet stores with a dictionary of values


def write_predictions(
    path: Path,
    outputs: Mapping[str, ScoredRows],
    decision: Decision,
    classes: Sequence[str],
    labels: pa.Array,
    strange: Mapping[str, Mapping[str, np.ndarray]],
) -> None:
    """Write the rows of all splits in `outputs` to a Parquet file, one split after the other, or raise InputError.

    The file appears only when it is complete. The first columns are `id`, `group` (null without `data.group`), `split`
    and `label`. The columns of the predict command follow, from `prediction` on. The last columns are `alert` (null
    without a positive label) and `length` (tokens before truncation). `classes`: (C,) labels as strings. `labels`: (C,)
    labels in their original type. `strange`: dict split → dict column → (N,) float32 measures (see `StrangeValues`),
    the same columns for each split.
    """
    measures = list(next(iter(strange.values())))
    extra = next(iter(outputs.values())).extra
    predicted = predictions_schema(list(classes), labels.type, pa.string(), extra=extra, strange=measures)
    columns = [
        ("id", pa.string()),
        ("group", pa.string()),
        ("split", pa.string()),
        ("label", labels.type),
        *((field.name, field.type) for field in predicted if field.name not in ("id", "error")),
        ("alert", pa.bool_()),
        ("length", pa.int64()),
    ]
    schema = pa.schema(columns)
    with (
        explain_disk_errors(path),
        atomic_replace(path) as unfinished,
        pq.ParquetWriter(unfinished, schema, use_dictionary=FEW_VALUES) as writer,
    ):
        for name, rows in outputs.items():
            for arrays in _row_groups(name, rows, decision, classes, labels, strange[name]):
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def _row_groups(
    name: str,
    rows: ScoredRows,
    decision: Decision,
    classes: Sequence[str],
    labels: pa.Array,
    strange: Mapping[str, np.ndarray],
) -> Iterator[list[pa.Array]]:
    """Yield the columns of row groups that fit into memory, however many classes there are."""
    predicted = rows.predicted(decision)
    size = max(1, min(GROUP_ROWS, GROUP_PROBABILITIES // len(classes)))
    for start in range(0, len(rows.labels), size):
        part = slice(start, start + size)
        logits = rows.logits[part]
        chosen, probabilities = predicted[part], decision.probabilities(logits)
        count = len(chosen)
        yield [
            pa.array(np.arange(start, start + count).astype(str)) if rows.ids is None else rows.ids[part],
            pa.nulls(count, pa.string()) if rows.group_names is None else rows.group_names[part],
            pa.repeat(name, count),
            labels.take(pa.array(rows.labels[part])),
            labels.take(pa.array(chosen)),
            pa.array(probabilities[np.arange(count), chosen]),
            *map(pa.array, probabilities.T),
            *(output_column(values[part]) for values in rows.extra.values()),
            *(pa.array(values[part]) for values in strange.values()),
            pa.nulls(count, pa.bool_())
            if decision.positive is None
            else pa.array(chosen == list(classes).index(decision.positive)),
            pa.array(rows.lengths[part].astype(np.int64)),
        ]
