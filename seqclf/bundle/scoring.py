"""Predictions of a bundle for labelled rows, as input of the evaluation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.drift import FieldDrift, RowSample
from seqclf.bundle.explanation import explain_shown
from seqclf.bundle.predictions import Counts
from seqclf.bundle.runtime import Classifier
from seqclf.bundle.windows import LabelColumns
from seqclf.data.encoding.encoders import encode
from seqclf.data.encoding.token_table import DescribedRow, describe_row
from seqclf.data.ragged import row_inputs
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source, source_of
from seqclf.data.schema.casts import GROUP, GROUP_NAME, TIME, WEIGHT, named_keys
from seqclf.data.schema.rows import as_text, require_weights
from seqclf.data.schema.schema import label_codes
from seqclf.errors import InputError
from seqclf.evaluation.scores import ScoredRows
from seqclf.settings.data_settings import DataOptions

MAX_MISTAKES = 20  # maximum number of misclassified rows that are described


class LabelledPredictions(NamedTuple):
    """Predictions for a labelled source. Rejected rows are left out.

    `mistakes`: dict row index in `outputs` → readable tokens, for the worst misclassified rows (of the lowest
    probability of the true label) if they are explained. `refused`: error text of each rejected row. `unknown`: number
    of rejected rows with a label that is not a class. `drift`: fields that drifted. `times`: (N,) seconds
    since 1970, NaN for a row without a time, None without a column of times.
    """

    outputs: ScoredRows
    mistakes: dict[int, DescribedRow]
    refused: list[str]
    unknown: int
    drift: list[FieldDrift]
    times: np.ndarray | None


class _WorstRow(NamedTuple):
    """`probability`: of the true label. `position`: index of the row, not counting rejected ones."""

    probability: float
    position: int
    columns: pa.RecordBatch


def labelled_sources(classifier: Classifier, options: DataOptions, split: str) -> tuple[Source, LabelTable | None]:
    """Return the source of the rows of a split, and their label table or None. Raises InputError for a wrong name."""
    source = source_of(options, split)
    if source is None:
        raise InputError(f"data.{split}", "not set", f"give the labelled file to score: data.{split}={split}.parquet")
    labels = source_of(options, "labels")
    if labels is None:
        return source, None
    schema = classifier.schema
    keys = named_keys((GROUP, "data.group", options.group), (WEIGHT, "data.weight", options.weight))
    static = [field for field in schema.fields if field.static]
    return source, LabelTable(labels, schema.group_by or (str(options.id),), options.label, keys, static)


def predict_labelled(
    classifier: Classifier,
    source: Source,
    label: str,
    table: LabelTable | None,
    *,
    group: str | None = None,
    time: str | None = None,
    weight: str | None = None,
    explain: bool = False,
) -> LabelledPredictions:
    """Predict the rows of a labelled source, and reject those with an unknown label. Raises InputError without others.

    `table`: label table that is joined by id, None if the source has the column `label`. `group`, `time`, `weight`:
    names of columns. `explain`: True to describe the worst rows, with the contribution of each token.
    """
    logits, labels, lengths = list[np.ndarray](), list[np.ndarray](), list[np.ndarray]()
    extra: dict[str, list[np.ndarray]] = {name: [] for name in classifier.extra}
    ids, group_names, refused = list[str](), list[str | None](), list[str]()
    mistakes: list[_WorstRow] = []
    counts, sample = Counts(), RowSample(classifier.reference)
    times, unknown_labels = list[np.ndarray](), 0
    weights = list[np.ndarray]()
    columns_of = LabelColumns(label if table is None else None, table, group, time, weight)
    for rows, predictions in classifier.predict_source(source, columns_of, sample):
        columns, probabilities = rows.columns, predictions.probabilities
        codes = label_codes(columns.column("label"), classifier.classes)
        is_used = (predictions.lengths > 0) & (codes >= 0)
        for row in np.flatnonzero(~is_used).tolist():
            given = columns.column("label")[row].as_py()
            unknown = f"{label} is '{given}', which the bundle does not know" if given else f"{label} is empty"
            where = f"{rows.file_of(row)}: row {rows.row_numbers[row]}"
            refused.append(f"{where}: {predictions.errors[row] or unknown}")
            unknown_labels += bool(given) and not predictions.errors[row]
        used = np.flatnonzero(is_used)
        id_column = as_text(columns.column("id")) if "id" in columns.schema.names else rows.row_numbers
        predicted, of_label = predictions.predicted[used], probabilities[used, codes[used]]
        # Only the worst rows are kept, so the memory use does not depend on the size of the file.
        wrong = np.flatnonzero(predicted != codes[used])
        for index in wrong[np.argsort(of_label[wrong], kind="stable")[:MAX_MISTAKES]].tolist():
            row = columns.take(pa.array([used[index]]))
            mistakes.append(_WorstRow(float(of_label[index]), len(ids) + index, row))
        mistakes = sorted(mistakes, key=lambda mistake: mistake.probability)[:MAX_MISTAKES]
        ids += [str(id_column[row]) for row in used.tolist()]
        group_names += [] if group is None else columns.column(GROUP_NAME).take(pa.array(used)).to_pylist()
        logits.append(predictions.logits[used])
        labels.append(codes[used])
        lengths.append(predictions.lengths[used])
        for name, values in predictions.extra.items():
            extra[name].append(values[used])
        if weight is not None:
            require_weights(WEIGHT, columns.column(WEIGHT), rows, is_used)
            weights.append(columns.column(WEIGHT).to_numpy(zero_copy_only=False)[used])
        if time is not None:
            times.append(columns.column(TIME).to_numpy(zero_copy_only=False)[used])
        counts = counts.plus(predictions.counts)
    if not ids:
        if refused:
            raise InputError(None, refused[0])
        raise no_rows(source)
    original_lengths, limit = np.concatenate(lengths), classifier.schema.max_length
    truncated = np.zeros(len(ids), bool) if limit is None else original_lengths > limit
    groups, named = (None, None) if group is None else _groups(group_names)
    found = np.concatenate(logits), np.concatenate(labels), original_lengths, truncated, groups, named, pa.array(ids)
    outputs = ScoredRows(*found, weights=np.concatenate(weights) if weights else None)
    outputs = outputs._replace(extra={name: np.concatenate(values) for name, values in extra.items()})
    described = dict[int, DescribedRow]()
    for _, position, columns in mistakes if explain else []:
        described[position] = _explained(classifier, ids[position], outputs.logits[position], columns)
    at = np.concatenate(times) if time is not None else None
    return LabelledPredictions(outputs, described, refused, unknown_labels, sample.drift(), at)


def _groups(names: list[str | None]) -> tuple[np.ndarray, pa.Array]:
    """Return the group number (N,) and the group name of each row. Each row without a name is a group of its own."""
    array = pa.array(names, pa.string())
    codes = np.array(array.dictionary_encode().indices.fill_null(-1))
    missing = codes < 0
    codes[missing] = len(names) + np.arange(int(missing.sum()))
    return codes, array


def _explained(classifier: Classifier, id: str, logits: np.ndarray, columns: pa.RecordBatch) -> DescribedRow:
    encoders = classifier.encoders
    fields = row_inputs(encode(encoders, columns, classifier.schema.truncation).sequences, 0)
    texts = {name: columns.column(name)[0].as_py() for name, encoder in encoders.items() if encoder.holds_text}
    predicted = int(classifier.decision.choose(logits[None])[0])
    return explain_shown(classifier, describe_row(encoders, id, fields, texts), fields, predicted)
