"""Columns beside the fields that give the label away: outcomes and ratings that nobody should add as an input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.reading.casts import quote_identifier
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source

MOST_ROWS = 50_000
MOST_COLUMNS = 50
REVEALING = 0.95  # area under the ROC curve, averaged over classes, from which a column counts as the label in disguise
ADDS = 0.7  # a second column counts if it leaves less than this share of the error


def revealing_columns(source: Source, label: str, skip: set[str]) -> list[dict[str, Any]]:
    """Columns of single values that predict the label, the best first: `column`, `auroc` (cross-validated, alone) and
    `revealing`; a column that is only revealing next to the first one has `beside` and their common `auroc_together`.

    `skip`: columns not to look at, such as ids.
    """
    with SourceReader(source) as reader:
        types = reader.column_types
        columns = [
            name
            for name, kind in types.items()
            if name not in {label, *skip} and not kind.endswith("]") and not kind.startswith(("STRUCT", "MAP"))
        ][:MOST_COLUMNS]
        if not columns or label not in types:
            return []
        label_sql = f"CAST({quote_identifier(label)} AS VARCHAR) AS {quote_identifier(label)}"
        rows = reader.select([label_sql, *map(quote_identifier, columns)], most_rows=MOST_ROWS)
    rows = rows.filter(pc.is_valid(rows.column(label)))
    codes = rows.column(label).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    counts = np.bincount(codes) if len(codes) else np.zeros(0, int)
    if (counts >= 4).sum() < 2:
        return []
    keep = counts[codes] >= 4
    features = {name: _feature(rows.column(name).combine_chunks()) for name in columns}
    usable = {name: values[keep] for name, values in features.items() if values is not None}
    return _ranked(usable, codes[keep])


def _ranked(features: dict[str, np.ndarray], codes: np.ndarray) -> list[dict[str, Any]]:
    alone = {name: _auroc(values[:, None], codes) for name, values in features.items()}
    found: list[dict[str, Any]] = [
        {"column": name, "auroc": round(alone[name], 4), "revealing": alone[name] >= REVEALING}
        for name in sorted(alone, key=lambda name: -alone[name])
    ]
    if found and found[0]["revealing"]:
        best = found[0]["column"]
        for entry in found[1:]:
            pair = np.stack([features[best], features[entry["column"]]], axis=1)
            together = _auroc(pair, codes)
            if not entry["revealing"] and 1 - together < ADDS * (1 - alone[best]):
                entry |= {"revealing": True, "beside": best, "auroc_together": round(together, 4)}
    return found


def _feature(cells: pa.Array) -> np.ndarray | None:
    """(N,) numbers: of numeric columns the values, of texts the codes of values that come up again; None for ids."""
    if pa.types.is_boolean(cells.type) or pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        return cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(cells.type):
        return cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(cells.type):
        return None  # when something happened is no outcome
    try:
        texts = cells.cast(pa.string())
    except pa.ArrowException:
        return None
    numbers = _as_numbers(texts)
    if numbers is not None:
        return numbers
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) > len(cells) / 4:
        return None
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.float64)


def _as_numbers(texts: pa.Array) -> np.ndarray | None:
    try:
        return pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return None


def _auroc(features: np.ndarray, codes: np.ndarray) -> float:
    """Of a small tree, cross-validated; over several classes the mean of each against the rest."""
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(
        min_samples_leaf=max(2, min(10, len(codes) // 100)), max_leaf_nodes=64, random_state=0
    )
    folds = StratifiedKFold(min(4, int(np.bincount(codes)[np.unique(codes)].min())), shuffle=True, random_state=0)
    classes, own = np.unique(codes, return_inverse=True)
    found = cross_val_predict(tree, features, own, cv=folds, method="predict_proba")
    scores = [roc_auc_score(own == code, found[:, code]) for code in range(len(classes))]
    return float(np.mean(scores))
