"""Suspected wrong labels: rows whose label a model contradicts (confident learning, Northcutt et al. 2021)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from seqclf.evaluation.decision import Decision
from seqclf.evaluation.result import RunResult
from seqclf.evaluation.scores import ScoredRows

COLUMNS = ["id", "group", "split", "label", "proposed", "probability", "label_probability"]


def unseen_rows(result: RunResult) -> dict[str, ScoredRows]:
    """Return dict split → rows on which no model that scored them was trained. With folds, the last split has all."""
    names = {*result.rows} - {"train"} if result.judged.fold is None else {result.split}
    return {split: rows for split, rows in result.rows.items() if split in names}


def suspects_of(splits: Mapping[str, ScoredRows], decision: Decision, labels: pa.Array) -> pa.Table:
    """Return the rows whose label the model contradicts, the largest difference of the two probabilities first.

    `splits`: dict split → rows on which the model was not trained. `decision`: of the model. `labels`: (C,) labels.
    The two probabilities of `COLUMNS` are of the proposed label and of the label. Metadata: `rows`, `by_chance`, the
    suspects to expect if all labels were draws from the probabilities, and `same`, those that would be drawn again.
    """

    def texts(name: str) -> pa.Array:
        parts = [(getattr(rows, name), len(rows.labels)) for rows in splits.values()]
        return pa.concat_arrays([pa.nulls(size, pa.string()) if part is None else part for part, size in parts])

    probabilities = np.concatenate([rows.probabilities(decision) for rows in splits.values()]).astype(np.float64)
    given, places = np.concatenate([rows.labels for rows in splits.values()]), np.arange(len(probabilities))
    proposed = confident_classes(probabilities, given)
    of_given, of_proposed = probabilities[places, given], probabilities[places, proposed]
    split = np.repeat([*splits], [len(rows.labels) for rows in splits.values()])
    typed = [labels.take(pa.array(np.maximum(numbers, 0))) for numbers in (given, proposed)]
    columns = [texts("ids"), texts("group_names"), split, *typed, of_proposed, of_given]
    found, by_chance = np.flatnonzero((proposed != given) & (proposed >= 0)), (1 - of_proposed)[proposed >= 0].sum()
    ranked = found[np.argsort((of_given - of_proposed)[found], kind="stable")]
    about = {"rows": str(len(given)), "by_chance": f"{by_chance:.6g}", "same": f"{of_given[ranked].sum():.6g}"}
    return pa.table([*map(pa.array, columns)], COLUMNS, metadata=about).take(ranked)


def confident_classes(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the class (N,) that a model is confident of, -1 for none.

    It is the most probable one whose probability is at least its mean over the rows with this label. `probabilities`:
    (N, C). `labels`: (N,) class numbers.
    """
    counts = np.bincount(labels, minlength=probabilities.shape[1])
    sums = np.bincount(labels, probabilities[np.arange(len(labels)), labels], minlength=len(counts))
    means = np.divide(sums, counts, out=np.full(len(counts), np.inf), where=counts > 0)
    confident = np.where(probabilities >= means, probabilities, -1.0)
    return np.where(confident.max(axis=1) < 0, -1, confident.argmax(axis=1))
