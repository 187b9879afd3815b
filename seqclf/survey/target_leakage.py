"""Target leakage: unused columns that reveal the label, such as outcomes and ratings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seqclf.data.ragged import is_list
from seqclf.data.reading.reader import SourceReader
from seqclf.data.reading.sources import Source, source_of
from seqclf.data.schema.casts import quote_identifier
from seqclf.data.storage.dataset import Dataset
from seqclf.settings.data_settings import DataOptions
from seqclf.system import progress
from seqclf.system.json_result import JsonResult

SAMPLED_ROWS = 50_000
MAX_CELLS = 50 * SAMPLED_ROWS  # maximum number of cells to read; if there are many columns, fewer rows are sampled
MIN_CLASS_ROWS = 20  # the AUROC of a single class with fewer rows is ignored, because it may be high by chance
LARGEST = 1e30  # scikit-learn trees reject infinity and values whose sum exceeds float32
MIN_ROWS_PER_CLASS = 4
MAX_FOLDS = 4
LEAKING_AUROC = 0.95


@dataclass(frozen=True)
class ColumnLeakage(JsonResult):
    """Score of one column as a predictor of the label.

    `auroc`: cross-validated area under the ROC curve of a small decision tree on this column; chance level is 0.5.
    `revealing`: True if the column reveals the label.
    """

    column: str
    auroc: float
    revealing: bool


def find_target_leakage(dataset: Dataset, options: DataOptions) -> list[ColumnLeakage]:
    """Score the columns of the file with the labels that no field reads, by falling AUROC.

    Return [] for event tables without a label table, whose columns have several values for each sequence.
    """
    label_table = source_of(options, "labels")
    source = label_table or source_of(options, "train")
    if source is None or (dataset.schema.group_by and label_table is None):
        return []
    used_columns = {column for _, column in dataset.schema.columns}
    id_columns = [options.id] if options.id else []
    return score_column_leakage(source, options.label, {*used_columns, *dataset.schema.group_by, *id_columns})


def find_static_leakage(dataset: Dataset) -> list[ColumnLeakage]:
    """Score the static fields, by the training rows. The model gets their values, so one that reveals the label counts.

    The list is sorted by falling AUROC, and empty if fewer than two classes have enough rows for cross-validation.
    """
    split = dataset.splits["train"]
    rows = np.random.default_rng(0).permutation(len(split.labels))[:SAMPLED_ROWS]
    features = {
        name: np.asarray(values[rows]).reshape(len(rows), -1) for name, values in split.sequences.static.items()
    }
    return _ranked(features, split.labels[rows])


def score_column_leakage(source: Source, label: str, skip: set[str]) -> list[ColumnLeakage]:
    """Score each column, and each part of a struct, as a predictor of the column `label`, by falling AUROC.

    `skip`: columns to leave out, such as ids. Return [] if fewer than two classes have enough rows for
    cross-validation.
    """
    rows = _sample_rows(source, label, skip)
    if rows is None:
        return []
    rows = rows.filter(pc.is_valid(rows.column(label)))
    codes = rows.column(label).combine_chunks().dictionary_encode().indices.to_numpy(zero_copy_only=False)
    features = {}
    for name in rows.column_names:
        values = None if name == label else _as_feature(rows.column(name).combine_chunks())
        if values is not None:
            features[name] = values
    return _ranked(features, codes)


def _ranked(features: Mapping[str, np.ndarray], codes: np.ndarray) -> list[ColumnLeakage]:
    """Score features, a dict name → (N, F), as predictors of the class codes (N,), the best one first."""
    usable = np.bincount(codes)[codes] >= MIN_ROWS_PER_CLASS
    codes = codes[usable]
    if not features or len(np.unique(codes)) < 2:
        return []
    columns = progress.track(
        features.items(), "looking for columns that reveal the label", total=len(features), unit="columns"
    )
    aurocs = {name: round(_cross_validated_auroc(values[usable], codes), 4) for name, values in columns}
    ranked = sorted(aurocs.items(), key=lambda entry: -entry[1])
    return [ColumnLeakage(name, auroc, revealing=auroc >= LEAKING_AUROC) for name, auroc in ranked]


def _sample_rows(source: Source, label: str, skip: Iterable[str]) -> pa.Table | None:
    """Read a sample of `label` and the columns not in `skip`, or return `None` if there are none.

    Labels and maps are read as text. Each part of a struct becomes a column.
    """
    with SourceReader(source) as reader:
        types = reader.column_types
        columns = [name for name in types if name not in {label, *skip}]
        if not columns or label not in types:
            return None
        as_texts = {label, *(name for name in columns if types[name].startswith("MAP"))}
        names = {name: quote_identifier(name) for name in [label, *columns]}
        selected = {name: f"CAST({sql} AS VARCHAR)" if name in as_texts else sql for name, sql in names.items()}
        rows = reader.select(selected, most_rows=min(SAMPLED_ROWS, MAX_CELLS // len(columns)))
    while any(pa.types.is_struct(kind) for kind in rows.schema.types):
        rows = rows.flatten()
    return rows


def _as_feature(cells: pa.Array) -> np.ndarray | None:
    """Return (N, F): numbers, lengths of lists, and 1 for each cell with a value, or `None` for ids or notes."""
    is_present = cells.is_valid().to_numpy(zero_copy_only=False).astype(np.float64)
    columns = [] if is_present.all() or not is_present.any() else [is_present]
    if is_list(cells.type):
        columns.append(pc.fill_null(pc.list_value_length(cells), -1).to_numpy(zero_copy_only=False).astype(np.float64))
        cells = pa.array([None if values is None else str(values) for values in cells.to_pylist()], pa.string())
    values = _values(cells)
    if values is not None:
        columns.append(np.clip(values, -LARGEST, LARGEST))
    return np.stack(columns, axis=1) if columns else None


def _values(cells: pa.Array) -> np.ndarray | None:
    """Return (N,) numbers, or category codes of texts, or `None` for ids and times."""
    if pa.types.is_boolean(cells.type) or pa.types.is_integer(cells.type) or pa.types.is_floating(cells.type):
        return cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    if pa.types.is_decimal(cells.type):
        return cells.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_temporal(cells.type):
        return None  # the date of a row is assumed to be known at prediction time
    try:
        texts = cells.cast(pa.string())
    except pa.ArrowException:
        return None
    numbers = _parse_numbers(texts)
    if numbers is not None:
        return numbers
    encoded = texts.dictionary_encode()
    if len(encoded.dictionary) > len(cells) / 4:
        return None  # texts that are mostly unique are ids or notes
    return pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.float64)


def _parse_numbers(texts: pa.Array) -> np.ndarray | None:
    try:
        return pc.if_else(pc.equal(texts, ""), None, texts).cast(pa.float64()).to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        return None


def _cross_validated_auroc(features: np.ndarray, codes: np.ndarray) -> float:
    """Return the cross-validated AUROC of a small decision tree on the features (N, F).

    The mean of the one-against-rest AUROCs, or that of a single class if it is at least `LEAKING_AUROC`.
    """
    from sklearn.metrics import roc_auc_score
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.tree import DecisionTreeClassifier

    tree = DecisionTreeClassifier(
        # Leaves with a single row would memorise ids and times.
        min_samples_leaf=max(2, min(10, len(codes) // 100)),
        max_leaf_nodes=64,
        random_state=0,
    )
    # The AUROC is undefined on a fold without a row of some class.
    rarest = int(np.bincount(codes)[np.unique(codes)].min())
    folds = StratifiedKFold(min(MAX_FOLDS, rarest), shuffle=True, random_state=0)
    classes, targets = np.unique(codes, return_inverse=True)
    # The tree predicts held-out rows only, because a column of unique values identifies every training row.
    probabilities = cross_val_predict(tree, features, targets, cv=folds, method="predict_proba")
    scores = [roc_auc_score(targets == code, probabilities[:, code]) for code in range(len(classes))]
    # A column may reveal a single class of many. The mean over all classes hides such a leak.
    has_enough = np.bincount(targets) >= MIN_CLASS_ROWS
    single = max(np.array(scores)[has_enough], default=0.0)
    return float(single if single >= LEAKING_AUROC else np.mean(scores))
