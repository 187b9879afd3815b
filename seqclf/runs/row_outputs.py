"""Outputs of a trained model for each row: the logits that become its scores, and predictions.parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from seqclf.batching.batches import Batch
from seqclf.batching.datamodule import SequenceDataModule
from seqclf.bundle.predictions import predictions_schema
from seqclf.bundle.session import require_shape
from seqclf.data.ragged import output_column
from seqclf.data.storage.dataset import Dataset
from seqclf.errors import InputError
from seqclf.evaluation.baseline_scores import score_baseline
from seqclf.evaluation.decision import Decision
from seqclf.evaluation.scores import HEAD, NETWORK, ScoredRows, Scores
from seqclf.report.model_card import network_kind
from seqclf.system import progress
from seqclf.system.atomic_files import atomic_replace, explain_disk_errors
from seqclf.training.task import SequenceTask

SUBJECT = "the network"  # in errors
NOT_FINITE = "lower optimizer.lr, and train again; trainer.detect_anomaly=true names the operation"
GROUP_PROBABILITIES = 2_000_000  # maximum number of probabilities in a row group (16 MB), over all classes
GROUP_ROWS = 200_000  # maximum number of rows in a row group, because ids and group names take memory too
FEW_VALUES = ["group", "split", "label", "prediction"]  # columns that Parquet stores with a dictionary of values


def score_models(task: SequenceTask, batches: SequenceDataModule, dataset: Dataset, *, baseline: bool) -> list[Scores]:
    """Return the scores of a task, of each part of its network alone (on the last split), and of models beside it.

    They begin with the weakest. `baseline`: True for order-blind models too.
    """
    about: Any = {"classes": dataset.classes, "label_type": dataset.schema.label_type, "positive": dataset.positive}
    splits, outputs = {}, dict[str, np.ndarray]()
    models = score_baseline(dataset) if baseline else []
    for split, rows in batches.splits.items():
        is_last = split == list(dataset.splits)[-1]
        if len(rows.sequences):
            with progress.stage(f"evaluating on {split}", total=len(rows.labels), unit="rows"):
                outputs = predict_outputs(task, batches.evaluation_loader(split), parts=is_last)
        else:  # there are no held-out rows if every class has too few validation rows
            outputs = {name: values[:0] for name, values in outputs.items()}
        extra = {name: outputs[name] for name in task.model.extra_outputs}
        splits[split] = ScoredRows.of_split(rows, outputs["logits"], extra=extra)
        if is_last:
            for name in (name for name in outputs if name not in ("logits", *extra)):
                alone = {split: ScoredRows.of_split(rows, outputs[name])}
                models.append(Scores(role=HEAD, name=name, model="head alone", splits=alone, **about))
    model = network_kind(task.hparams["model"])
    return [*models, Scores(role=NETWORK, name=NETWORK, model=model, splits=splits, **about)]


@torch.inference_mode()
def predict_outputs(task: SequenceTask, batches: Iterable[Batch], *, parts: bool = False) -> dict[str, np.ndarray]:
    """Return dict output → (N, …) in the order of the split (see `SequenceNetwork.outputs`).

    `parts`: True for the logits of parts of the network too. Raises InputError for logits of another shape, and for
    logits that are not finite.
    """
    task = task.eval()
    ids, found = list[np.ndarray](), dict[str, list[np.ndarray]]()
    for batch in batches:
        fields = {name: values.to(task.device) for name, values in batch.fields.items()}
        outputs = task.model.outputs(fields, batch.lengths.to(task.device), batch.host_lengths)
        require_shape(SUBJECT, outputs["logits"], len(batch.ids), len(task.classes))
        ids.append(batch.ids)
        names = outputs if parts else ("logits", *task.model.extra_outputs)
        for name in names:
            values = outputs[name]
            numbers = values.float() if values.is_floating_point() else values
            found.setdefault(name, []).append(numbers.cpu().numpy())
        progress.advance("rows", len(batch.ids))
    order = np.argsort(np.concatenate(ids), kind="stable")  # evaluation batches are sorted by length
    ordered = {name: np.concatenate(values)[order] for name, values in found.items()}
    if broken := int((~np.isfinite(ordered["logits"])).any(axis=1).sum()):
        raise InputError(SUBJECT, f"gives logits that are not finite for {broken} of {len(order)} rows", NOT_FINITE)
    return ordered


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
