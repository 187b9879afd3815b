"""Suspected wrong labels: rows whose label a model contradicts (confident learning, Northcutt et al. 2021)."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows

ABOUT = b"seqclf"  # key of the metadata of the table, a JSON object with `rows` and `by_chance`


def unseen_rows(result: RunResult) -> dict[str, ScoredRows]:
    """Return dict split → rows that no scoring model was trained on: of folds, the last split holds all rows."""
    of_folds = result.judged.fold is not None
    return {name: rows for name, rows in result.rows.items() if (name == result.split if of_folds else name != "train")}


def suspects_of(splits: Mapping[str, ScoredRows], decision: Decision, labels: pa.Array) -> pa.Table:
    """Return the rows whose label the model contradicts, the largest margin of probability first.

    `splits`: dict split → rows that the model was not trained on, of which at least one is not empty. `decision`: its
    temperature counts. `labels`: (C,) labels. Columns: id, group, split, label, proposed (label), probability (of
    that), and label_probability. The metadata `ABOUT` has the number of scored rows, and the expected number of
    suspects among them if all labels were right and the probabilities calibrated.
    """
    probabilities = np.concatenate([rows.probabilities(decision) for rows in splits.values()]).astype(np.float64)
    given = np.concatenate([rows.labels for rows in splits.values()])
    proposed = confident_labels(probabilities, given)
    places = np.arange(len(given))
    of_given, of_proposed = probabilities[places, given], probabilities[places, proposed]
    found = np.flatnonzero((proposed != given) & (proposed >= 0))
    found = found[np.argsort((of_given - of_proposed)[found], kind="stable")]
    columns = {
        "id": pa.concat_arrays([_texts(rows.ids, len(rows.labels)) for rows in splits.values()]),
        "group": pa.concat_arrays([_texts(rows.group_names, len(rows.labels)) for rows in splits.values()]),
        "split": pa.array(np.repeat(list(splits), [len(rows.labels) for rows in splits.values()]), pa.string()),
        "label": labels.take(pa.array(given)),
        "proposed": labels.take(pa.array(np.maximum(proposed, 0))),
        "probability": pa.array(of_proposed),
        "label_probability": pa.array(of_given),
    }
    about = {"rows": len(given), "by_chance": float((1 - of_proposed)[proposed >= 0].sum())}
    return pa.table(columns).take(pa.array(found)).replace_schema_metadata({ABOUT: json.dumps(about)})


def confident_labels(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the class (N,) that a model is confident of in each row, -1 if it is of none.

    It is the most probable of the classes whose probability is at least its mean over the rows with this label.
    `probabilities`: (N, C). `labels`: (N,) class numbers. A class without rows is never returned.
    """
    classes = probabilities.shape[1]
    sums = np.bincount(labels, probabilities[np.arange(len(labels)), labels], minlength=classes)
    counts = np.bincount(labels, minlength=classes)
    thresholds = np.divide(sums, counts, out=np.full(classes, np.inf), where=counts > 0)
    confident = np.where(probabilities >= thresholds, probabilities, -1.0)
    chosen = confident.argmax(axis=1)
    return np.where(confident.max(axis=1, initial=-1.0) < 0, -1, chosen)


def _texts(values: pa.Array | None, rows: int) -> pa.Array:
    return pa.nulls(rows, pa.string()) if values is None else values.cast(pa.string())
