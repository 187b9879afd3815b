"""Predictions of a bundle for labelled rows, as input of the evaluation."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.explanations.explanation import explain_shown
from seqclf.bundle.predictions import Counts
from seqclf.bundle.runtime import Classifier
from seqclf.data.encoding.encoders import encode
from seqclf.data.encoding.token_table import DescribedRow, describe_row
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.source_errors import no_rows
from seqclf.data.reading.sources import Source
from seqclf.data.schema.casts import GROUP_NAME
from seqclf.data.schema.schema import label_codes
from seqclf.errors import InputError
from seqclf.evaluation.results import MAX_MISTAKES, SplitOutputs


class LabelledPredictions(NamedTuple):
    """Predictions for a labelled source. Rejected rows are left out.

    `mistakes`: dict row index in `outputs` → readable tokens, for the worst misclassified rows. The worst rows have the
    lowest predicted probability of the true label. `refused`: error text of each rejected row. `share_read`: fraction
    of all tokens that the model read, None for a model that always reads whole sequences.
    """

    outputs: SplitOutputs
    mistakes: dict[int, DescribedRow]
    refused: list[str]
    share_read: float | None


class _Mistake(NamedTuple):
    """A misclassified row.

    `probability`: predicted probability of the true label. `position`: index of the row, counted without rejected rows.
    `predicted`: index of the predicted class.
    """

    probability: float
    position: int
    id: str
    predicted: int
    columns: pa.RecordBatch


def predict_labelled(
    classifier: Classifier,
    source: Source,
    label: str,
    table: LabelTable | None,
    *,
    group: str | None = None,
    explain: bool = False,
) -> LabelledPredictions:
    """Predict the rows of a labelled source. A row is rejected if its label is not a label of the bundle.

    `label`: name of the label column. `table`: label table that is joined by id, None if the source has the label
    column. `group`: name of the group column. `explain`: True to explain the misclassified rows (contribution of each
    token). Raises InputError if all rows are rejected.
    """
    labels: list[int] = []
    row_ids: list[str] = []
    logits, lengths, refused = [], [], []
    mistakes: list[_Mistake] = []
    group_names: list[str | None] = []
    counts = Counts()
    for batch, predictions in classifier.predict_source(source, label if table is None else None, table, group):
        wrong: list[tuple[float, int, int]] = []  # (probability of the true label, `position`, row of window)
        names = None if group is None else batch.columns.column(GROUP_NAME)
        ids = batch.columns.column("id") if "id" in batch.columns.schema.names else batch.row_numbers
        row_labels = batch.columns.column("label").to_pylist()
        codes = label_codes(batch.columns.column("label"), classifier.classes).tolist()
        for row, (row_label, code, error) in enumerate(zip(row_labels, codes, predictions.errors, strict=True)):
            if error is None and code < 0:
                error = (
                    f"{label} is '{row_label}', which the bundle does not know" if row_label else f"{label} is empty"
                )
            if error is not None:
                refused.append(f"{batch.file_of(row)}: row {batch.row_numbers[row]}: {error}")
                continue
            if predictions.predicted[row] != code:
                wrong.append((float(predictions.probabilities[row, code]), len(labels), row))
            labels.append(code)
            row_ids.append(str(ids[row]))
            logits.append(predictions.logits[row])
            lengths.append(predictions.lengths[row])
            if names is not None:
                group_names.append(names[row].as_py())
        counts = counts.plus(classifier.counts(predictions))
        # Only the worst rows of each window are kept, so the memory use does not depend on the size of the file.
        for probability, index, row in sorted(wrong)[:MAX_MISTAKES]:
            columns = batch.columns.take(pa.array([row]))
            mistakes.append(_Mistake(probability, index, str(ids[row]), int(predictions.predicted[row]), columns))
        # Rows are sorted by probability and position, because record batches cannot be compared.
        mistakes = sorted(mistakes, key=lambda mistake: mistake[:2])[:MAX_MISTAKES]
    if not labels:
        if refused:
            raise InputError(None, refused[0])
        raise no_rows(source)
    original_lengths, limit = np.array(lengths), classifier.schema.max_length
    truncated = np.zeros(len(original_lengths), bool) if limit is None else original_lengths > limit
    groups, named = (None, None) if group is None else _groups(group_names)
    outputs = SplitOutputs(
        np.stack(logits),
        np.array(labels),
        original_lengths,
        truncated,
        groups,
        named,
        pa.array(row_ids),
    )
    described = {mistake.position: _described(classifier, mistake, explain) for mistake in mistakes}
    share_read = counts.tokens_read / counts.tokens if classifier.may_halt else None
    return LabelledPredictions(outputs, described, refused, share_read)


def _groups(names: list[str | None]) -> tuple[np.ndarray, pa.Array]:
    """Return the group number (N,) and the group name of each row. Each row without a name is a group of its own."""
    array = pa.array(names, pa.string())
    codes = np.array(array.dictionary_encode().indices.fill_null(-1))
    missing = codes < 0
    codes[missing] = len(names) + np.arange(int(missing.sum()))
    return codes, array


def _described(classifier: Classifier, mistake: _Mistake, explain: bool) -> DescribedRow:
    columns, encoders = mistake.columns, classifier.encoders
    fields = encode(encoders, columns, classifier.schema.truncation).sequences.fields
    texts = {name: columns.column(name)[0].as_py() for name, encoder in encoders.items() if encoder.holds_text}
    described = describe_row(encoders, mistake.id, fields, texts)
    if not explain:
        return described
    contributions = explain_shown(classifier, fields, mistake.predicted, described.table.positions)
    return described._replace(contributions=contributions)
