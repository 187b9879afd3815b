"""A classifier of sequences that works with scikit-learn."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from seqclf.api.fit import check_overrides, fit
from seqclf.api.run import Run
from seqclf.bundle.runtime import Classifier
from seqclf.data.ragged import unmasked
from seqclf.data.reading.tables import cells_to_arrow, is_table, to_arrow
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.system import progress
from seqclf.system.atomic_files import scratch_folder

COLUMN = "sequence"  # name of the column if `X` is a list
# Dict config key → default override of that key.
USUAL = {"logger": "logger=none", "baseline": "baseline=false", "data.classes": "data.classes=many"}
TIME_FIRST, TIME_LAST = "time-first", "time-last"


class SequenceClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of sequences with scikit-learn's interface.

    The estimator works in `cross_val_score`, `GridSearchCV` and `Pipeline`.

    ```python
    classifier = SequenceClassifier(overrides=["model=gru", "trainer.max_epochs=10"])
    cross_val_score(classifier, sequences, labels, cv=5)
    GridSearchCV(classifier, {"overrides": [["model=lstm"], ["model=gru"]]}).fit(frame, labels)
    ```

    `X`: a data frame or Arrow table with one row per sequence, or a list or array of sequences. In a list, a sequence
    is a text, a list of tokens, or a 2-D array (tokens, channels). With `axis="time-last"`, as in aeon, sktime and
    tsai, it is (channels, tokens). A list becomes a column with the name `sequence`.
    Overrides can name the column `sequence`, as in `data.fields={sequence: category}`. `y`: one label per row. The
    labels may have any type that can be sorted.

    `overrides`: settings of the training, written as on the command line. Unless the overrides set these keys, the
    estimator uses `logger=none` and `baseline=false`. `folder`: each call of `fit` creates a run folder in this folder.
    With `folder=None`, the run folder is deleted after the training, and only the bundle is kept in memory. `verbose`:
    True to print the output of the train command.

    `fit` uses a part of `X` as the validation split. After `fit`, `classes_` holds the labels, and `metrics_` holds the
    content of metrics.json. The attribute `run_` is a `Run`, or None if `folder` is None. In `fit`, the setting
    `data.on_bad_row` decides what happens to an invalid row. `predict` raises InputError for an invalid row. A fitted
    estimator can be pickled.
    """

    def __init__(
        self,
        overrides: Sequence[str] = (),
        *,
        axis: Literal["time-first", "time-last"] | None = None,
        folder: str | PathLike[str] | None = None,
        verbose: bool = False,
    ):
        self.overrides = overrides
        self.axis = axis
        self.folder = folder
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> SequenceClassifier:  # noqa: N803 (scikit-learn's name)
        """Train a model on the sequences `X` with the labels `y`. Raises InputError for wrong data or settings.

        `sample_weight`: (N,) finite numbers of at least 0, by which rows count (see the key `data.weight`).
        """
        # `np.unique` sorts the labels, like scikit-learn.
        classes, codes = np.unique(_labels(y), return_inverse=True)
        _check_axes(X, self.axis)
        table = _table(X, self.axis)
        if len(codes) != table.num_rows:
            raise InputError("y", f"has {len(codes)} labels for the {table.num_rows} rows of X", "give one per row")
        texts = _texts(classes)
        label = _free_name(table.column_names)
        labelled = table.append_column(label, pa.array(texts).take(pa.array(codes)))
        overrides = []
        if sample_weight is not None:
            weights = np.asarray(sample_weight)
            weights = weights.astype(np.float64) if weights.dtype.kind in "biuf" else np.full(1, np.nan)
            if weights.shape != codes.shape or not (np.isfinite(weights) & (weights >= 0)).all() or not weights.any():
                remedy = "give a finite number of at least 0 for each row, not all of them 0"
                raise InputError("sample_weight", f"does not weigh the {len(codes)} rows", remedy)
            name = _free_name(labelled.column_names, "weight")
            labelled = labelled.append_column(name, pa.array(weights))
            overrides = [f"data.weight={name}"]
        with self._folder() as (folder, cache), _console(self.verbose):
            try:
                run = fit(labelled, label=label, overrides=[*self._overrides(cache), *overrides], folder=folder)
            except KeyboardInterrupt:
                if self.folder is not None:
                    raise
                raise KeyboardInterrupt("stopped; set folder to keep checkpoints that can be resumed") from None
            if run.bundle is None:
                raise InputError("overrides", "export=false leaves no classifier to predict with", "remove it")
            self.metrics_ = run.metrics
            self.bundle_ = {
                path.relative_to(run.bundle).as_posix(): path.read_bytes()
                for path in sorted(run.bundle.rglob("*"))
                if path.is_file()
            }
        self.run_: Run | None = None if self.folder is None else run
        self.classes_ = classes
        self._texts = texts
        self._loaded: Classifier | None = None
        return self

    def predict(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the predicted label of each row (N,), of the type of `y`. Raises InputError for a rejected row."""
        check_is_fitted(self)
        predictions = self._predictions(X)
        class_of = {text: index for index, text in enumerate(self._texts)}
        return self.classes_[[class_of[text] for text in predictions.column("prediction").to_pylist()]]

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """Return the probability (N, C) of each class in `classes_`. Raises InputError for a rejected row."""
        check_is_fitted(self)
        predictions = self._predictions(X)
        probabilities = np.zeros((predictions.num_rows, len(self.classes_)))
        for index, text in enumerate(self._texts):
            if f"probability_{text}" in predictions.column_names:  # missing for a class without training rows
                probabilities[:, index] = predictions.column(f"probability_{text}").to_numpy()
        return probabilities

    @property
    def classifier_(self) -> Classifier:
        """The fitted classifier as a `seqclf.Classifier`."""
        check_is_fitted(self)
        if self._loaded is None:
            with scratch_folder(Path(tempfile.gettempdir()), "bundle-") as folder:
                for name, content in self.bundle_.items():
                    path = folder / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                self._loaded = Classifier(folder)
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        # `_loaded` is left out, because an ONNX Runtime session cannot be pickled. The bundle is pickled instead.
        state = dict(super().__getstate__())
        return {**state, "_loaded": None} if "_loaded" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def _predictions(self, X: Any) -> pa.Table:  # noqa: N803
        table = _table(X, self.axis)
        predictions = self.classifier_.predict(table)
        if predictions.num_rows != table.num_rows:
            problem = f"its {table.num_rows} rows gave {predictions.num_rows} sequences (data.group_by, data.query)"
            raise InputError("X", problem, "use seqclf.fit and Run.predict for such data")
        errors = predictions.column("error").to_pylist()
        refused = [row for row, error in enumerate(errors) if error is not None]
        if refused:
            problem = f"{errors[refused[0]]} ({len(refused)} of {len(errors)} rows are refused)"
            raise InputError(f"X: row {refused[0]}", problem, "remove such rows")
        return predictions

    def _overrides(self, cache: Path | None) -> list[str]:
        check_overrides(self.overrides)
        keys = {text.lstrip("+~").partition("=")[0] for text in self.overrides}
        if "data.group_by" in keys:
            raise InputError("data.group_by", "a row of X is a sequence here", "use seqclf.fit for tables of events")
        usual = USUAL if cache is None else {**USUAL, "data.cache_dir": f"data.cache_dir='{cache}'"}
        return [*(text for key, text in usual.items() if key not in keys), *self.overrides]

    @contextmanager
    def _folder(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the folder of a new run, and its cache, None for the default; both temporary without a folder."""
        if self.folder is not None:
            # In a cross-validation, all clones of the estimator have the same `folder`.
            yield Path(self.folder) / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}", None
            return
        with scratch_folder(Path(tempfile.gettempdir()), "fit-") as folder:
            yield folder / "run", folder / "cache"


def _labels(y: Any) -> np.ndarray:
    """Raises InputError if a label is missing or blank, or if `y` has several columns."""
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        y = y.to_pylist()
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y.tolist() if np.ma.is_masked(y) else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError("y", f"has the shape {labels.shape}", "give one label per row")
    if missing := [row for row, label in enumerate(labels.tolist()) if _is_missing(label)]:
        raise InputError("y", f"the label of row {missing[0]} is missing", "remove such rows")
    if blank := [row for row, label in enumerate(labels.tolist()) if isinstance(label, str) and not label.strip()]:
        raise InputError(f"y: row {blank[0]}", f"the label is blank ({len(blank)} such rows)", "name it or remove them")
    return labels


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas' NA cannot be converted to a boolean
        return True


def _texts(classes: np.ndarray) -> list[str]:
    """A run has labels of type string, as in `data.positive=True`."""
    texts = [str(label) for label in classes.tolist()]
    if len(set(texts)) < len(texts):
        raise InputError("y", f"two labels are alike as texts: {', '.join(texts)}", "rename one")
    return texts


def _check_axes(X: Any, axis: str | None) -> None:  # noqa: N803
    """Warn of 2-D rows that have more channels than tokens. Raises InputError if their axes may be the other way."""
    if axis not in (None, TIME_FIRST, TIME_LAST):
        raise InputError(f"axis={axis}", f"must be {TIME_FIRST} or {TIME_LAST}")
    shapes = {row.shape for row in ([] if axis is not None or is_table(X) else X) if getattr(row, "ndim", 0) == 2}
    if not shapes:
        return
    lengths, widths = ({shape[place] for shape in shapes} for place in (0, 1))
    remedy = f'say which axis is time, axis="{TIME_FIRST}" or axis="{TIME_LAST}"'
    if len(widths) > len(lengths) or lengths == {1} != widths:
        shape = max(shapes)
        raise InputError("X", f"rows of the shape {shape} may be {shape[0]} tokens or {shape[0]} channels", remedy)
    if max(lengths) < max(widths):
        warnings.warn(f"X has rows of {max(lengths)} tokens and {max(widths)} channels; {remedy}", stacklevel=3)


def _table(X: Any, axis: str | None) -> pa.Table:  # noqa: N803
    if is_table(X):
        table = to_arrow(X, "X")
        return table.read_all() if isinstance(table, pa.RecordBatchReader) else table
    if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__"):
        raise InputError("X", f"is of type {type(X).__name__}", "give a data frame or a list of sequences")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUT":  # scikit-learn converts a frame to this
        if X.shape[1] > 1 and any(isinstance(cell, (list, np.ndarray)) for cell in X[:1].flat):
            raise InputError("X", f"is an array of {X.shape[1]} columns without names", "give one column of dicts")
        X = X[:, 0] if X.shape[1] == 1 else X  # noqa: N806
    rows = X.to_list() if hasattr(X, "to_list") else list(X)
    if rows and all(isinstance(row, Mapping) for row in rows):
        return pa.Table.from_pylist([{name: unmasked(cell) for name, cell in row.items()} for row in rows])
    if axis == TIME_LAST:
        rows = [np.ma.asanyarray(row).T if np.ma.isMaskedArray(row) else np.asarray(row).T for row in rows]
    return pa.table({COLUMN: cells_to_arrow(rows, COLUMN, "X")})


def _free_name(names: list[str], name: str = "label") -> str:
    taken = {column.casefold() for column in names}
    while name in taken:
        name += "_"
    return name


@contextmanager
def _console(shown: bool) -> Iterator[None]:
    """An estimator of scikit-learn prints nothing."""
    quiet = console.quiet
    console.quiet = quiet or not shown
    progress.DISPLAY.hidden += not shown  # a counter, because estimators may be fitted in several threads
    try:
        yield
    finally:
        progress.DISPLAY.hidden -= not shown
        console.quiet = quiet
