"""A bundle against labelled rows."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqclf.bundle.runtime import Classifier
from seqclf.data.labels import LabelTable
from seqclf.data.sources import Source
from seqclf.errors import InputError


class Labelled(NamedTuple):
    """What scoring needs: `labels` (N,) int64 and `probabilities` (N, C) of the rows that could be used, and a line
    for each that could not."""

    labels: np.ndarray
    probabilities: np.ndarray
    refused: list[str]


def predict_labelled(classifier: Classifier, source: Source, label: str, table: LabelTable | None) -> Labelled:
    """Predict every row whose label, in its column or in a `table`, the bundle knows; raises if there is none."""
    codes = {name: code for code, name in enumerate(classifier.classes)}
    labels, probabilities, refused = [], [], []
    for batch, found in classifier.predict_source(source, label if table is None else None, table):
        truths = batch.columns.column("label").to_pylist()
        for row, (truth, error) in enumerate(zip(truths, found.errors, strict=True)):
            if error is None and truth not in codes:
                error = f"{label} is '{truth}', which the bundle does not know" if truth else f"{label} is empty"
            if error is not None:
                refused.append(f"{batch.file}: row {batch.rows[row]}: {error}")
            else:
                labels.append(codes[truth])
                probabilities.append(found.probabilities[row])
    if not labels:
        raise InputError(refused[0] if refused else f"{source}: has no rows; give a file with a row per sequence")
    return Labelled(np.array(labels), np.stack(probabilities), refused)
