"""A bundle against labelled rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from seqclf.bundle.runtime import Classifier
from seqclf.data.encoding.encoders import decode, encode
from seqclf.data.reading.label_table import LabelTable
from seqclf.data.reading.sources import Source
from seqclf.errors import InputError
from seqclf.evaluation.results import MOST_MISTAKES, SplitOutputs


class Labelled(NamedTuple):
    """What scoring needs of the rows that could be used; `shown`: the place among them → id and steps of those that are
    wrong and whose label was called the least probable; `refused`: a line for each row that could not be used."""

    scored: SplitOutputs
    shown: dict[int, tuple[str, str]]
    refused: list[str]


def predict_labelled(classifier: Classifier, source: Source, label: str, table: LabelTable | None) -> Labelled:
    """Predict every row whose label, in its column or in a `table`, the bundle knows; raises if there is none."""
    codes = {name: code for code, name in enumerate(classifier.classes)}
    labels: list[int] = []
    logits, lengths, refused = [], [], []
    worst: list[tuple[float, int, str, pa.RecordBatch]] = []
    for batch, found in classifier.predict_source(source, label if table is None else None, table):
        wrong: list[tuple[float, int, int]] = []  # probability of the truth, place, row of the window
        truths = batch.columns.column("label").to_pylist()
        for row, (truth, error) in enumerate(zip(truths, found.errors, strict=True)):
            if error is None and truth not in codes:
                error = f"{label} is '{truth}', which the bundle does not know" if truth else f"{label} is empty"
            if error is not None:
                refused.append(f"{batch.file_of(row)}: row {batch.rows[row]}: {error}")
                continue
            if found.chosen[row] != codes[truth]:
                wrong.append((float(found.probabilities[row, codes[truth]]), len(labels), row))
            labels.append(codes[truth])
            logits.append(found.logits[row])
            lengths.append(found.lengths[row])
        ids = batch.columns.column("id") if "id" in batch.columns.schema.names else batch.rows
        for cost, place, row in sorted(wrong)[:MOST_MISTAKES]:
            worst.append((cost, place, str(ids[row]), batch.columns.take(pa.array([row]))))
        worst = sorted(worst, key=lambda entry: entry[:2])[:MOST_MISTAKES]
    if not labels:
        raise InputError(refused[0] if refused else f"{source}: has no rows; give a file with a row per sequence")
    truncation = classifier.schema.truncation
    shown = {
        place: (known, decode(classifier.encoders, encode(classifier.encoders, own, truncation).sequences.fields))
        for _, place, known, own in worst
    }
    whole, limit = np.array(lengths), classifier.schema.max_length
    truncated = np.zeros(len(whole), bool) if limit is None else whole > limit
    return Labelled(SplitOutputs(np.stack(logits), np.array(labels), whole, truncated), shown, refused)
