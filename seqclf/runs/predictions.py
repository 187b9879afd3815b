"""predictions.parquet of a run: every evaluated row with its label, prediction and probabilities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from seqclf.bundle.predictions import predictions_schema
from seqclf.data.storage.store import Split
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.results import SplitOutputs
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors

GROUP_PROBABILITIES = 2_000_000  # of a row group, over all classes: 16 MB
GROUP_ROWS = 200_000  # at most, since ids and groups take memory too
FEW_VALUES = ["group", "split", "label", "prediction"]  # columns that Parquet stores as a dictionary


def write_predictions(
    path: Path,
    splits: Mapping[str, Split],
    outputs: Mapping[str, SplitOutputs],
    decision: Decision,
    classes: Sequence[str],
    labels: pa.Array,
) -> None:
    """Write the rows of the splits in `outputs`, in order, to a Parquet file that appears when it is complete.

    The columns are `id`, `group` (null without `data.group`), `split`, `label`, and those of the predict command from
    `prediction` on, then `alert` (null without a positive label) and `length`, the tokens before truncation. `classes`
    and `labels`: (C,) as texts, and in their type. Raises InputError where the disk fails.
    """
    predicted = predictions_schema(list(classes), labels.type, pa.string())
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
            for arrays in _row_groups(name, splits[name], rows, decision, classes, labels):
                writer.write_batch(pa.record_batch(arrays, schema=schema))


def _row_groups(
    name: str, split: Split, rows: SplitOutputs, decision: Decision, classes: Sequence[str], labels: pa.Array
) -> Iterator[list[pa.Array]]:
    """Yield the columns of consecutive rows, few enough to fit in memory at any number of classes."""
    size = max(1, min(GROUP_ROWS, GROUP_PROBABILITIES // len(classes)))
    for start in range(0, len(rows.labels), size):
        part = slice(start, start + size)
        logits = rows.logits[part]
        chosen, probabilities = decision.choose(logits), decision.probabilities(logits)
        count = len(chosen)
        yield [
            split.ids[part],
            pa.nulls(count, pa.string()) if split.group_names is None else split.group_names[part],
            pa.repeat(name, count),
            labels.take(pa.array(rows.labels[part])),
            labels.take(pa.array(chosen)),
            pa.array(probabilities[np.arange(count), chosen]),
            *map(pa.array, probabilities.T),
            pa.nulls(count, pa.bool_())
            if decision.positive is None
            else pa.array(chosen == list(classes).index(decision.positive)),
            pa.array(rows.lengths[part].astype(np.int64)),
        ]
