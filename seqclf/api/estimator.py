"""Classifier of sequences with the conventions of scikit-learn."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from seqclf.api.fit import fit
from seqclf.api.run import Run
from seqclf.bundle.runtime import Classifier
from seqclf.data.reading.tables import cells_to_arrow, is_table, to_arrow
from seqclf.documents.terminal import console
from seqclf.errors import InputError
from seqclf.system import progress

COLUMN = "sequence"  # of a list of sequences
USUAL = {"logger": "logger=none", "baseline": "baseline=false"}  # unless the user sets them


class SequenceClassifier(ClassifierMixin, BaseEstimator):
    """Classifier of sequences for scikit-learn: `cross_val_score`, `GridSearchCV`, a step of a `Pipeline`.

    ```python
    classifier = SequenceClassifier(overrides=["model=gru", "trainer.max_epochs=10"])
    cross_val_score(classifier, sequences, labels, cv=5)
    GridSearchCV(classifier, {"overrides": [["model=lstm"], ["model=gru"]]}).fit(frame, labels)
    ```

    `X` is a data frame or an Arrow table with a row per sequence, or a list or array of sequences: texts, lists of
    tokens, or 2-D arrays of tokens by channels. Such a list is the column `sequence`, for overrides such as
    `data.fields={sequence: category}`. `y`: a label per row, of any type that sorts.

    `overrides`: settings of the training, as on the command line. There is no logger and no order-blind baseline unless
    they are set. `folder`: keeps the folder of each fit as a sub-folder; None keeps the bundle in memory alone.
    `verbose`: print what the train command prints.

    After `fit` there are `classes_`, `metrics_` (the content of metrics.json, of which `validation` is a part of `X`)
    and `run_`, the `Run` or None without a folder. Rows that cannot be used are left out in `fit`, as `data.on_bad_row`
    says, and raise InputError in `predict`. A fitted estimator can be pickled.
    """

    def __init__(
        self,
        overrides: Sequence[str] = (),
        *,
        folder: str | PathLike[str] | None = None,
        verbose: bool = False,
    ):
        self.overrides = overrides
        self.folder = folder
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> SequenceClassifier:  # noqa: N803 (scikit-learn's name)
        """Train on the rows of `X` and their labels `y`. Raises InputError for data or settings that cannot be used."""
        # Unless the labels sort, scikit-learn could not either.
        classes, codes = np.unique(_labels(y), return_inverse=True)
        table = _table(X)
        if len(codes) != table.num_rows:
            raise InputError("y", f"has {len(codes)} labels for the {table.num_rows} rows of X", "give one per row")
        texts = _texts(classes)
        label = _free_name(table.column_names)
        labelled = table.append_column(label, pa.array(texts).take(pa.array(codes)))
        with self._folder() as (folder, cache), _console(self.verbose):
            try:
                run = fit(labelled, label=label, overrides=self._overrides(cache), folder=folder)
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
        """(N,) labels, of the type that `y` had. Raises InputError for a row that is refused."""
        check_is_fitted(self)
        predictions = self._predictions(X)
        class_of = {text: index for index, text in enumerate(self._texts)}
        return self.classes_[[class_of[text] for text in predictions.column("prediction").to_pylist()]]

    def predict_proba(self, X: Any) -> np.ndarray:  # noqa: N803
        """(N, C) probabilities in the order of `classes_`. Raises InputError for a row that is refused."""
        check_is_fitted(self)
        predictions = self._predictions(X)
        probabilities = np.zeros((predictions.num_rows, len(self.classes_)))
        for index, text in enumerate(self._texts):
            if f"probability_{text}" in predictions.column_names:  # a class may have no row that trained
                probabilities[:, index] = predictions.column(f"probability_{text}").to_numpy()
        return probabilities

    @property
    def classifier_(self) -> Classifier:
        """The fitted model as a `seqclf.Classifier`."""
        check_is_fitted(self)
        if self._loaded is None:
            with tempfile.TemporaryDirectory(prefix="seqclf-bundle-") as folder:
                for name, content in self.bundle_.items():
                    path = Path(folder, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
                self._loaded = Classifier(folder)
        return self._loaded

    def __getstate__(self) -> dict[str, Any]:
        # A session of ONNX Runtime cannot be pickled. The bundle's files can.
        state = dict(super().__getstate__())
        return {**state, "_loaded": None} if "_loaded" in state else state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        tags.target_tags.required = True
        return tags

    def _predictions(self, X: Any) -> pa.Table:  # noqa: N803
        table = _table(X)
        predictions = self.classifier_.predict(table)
        if predictions.num_rows != table.num_rows:
            raise InputError(
                "X",
                f"its {table.num_rows} rows gave {predictions.num_rows} sequences (data.group_by, data.query)",
                "use seqclf.fit and Run.predict for such data",
            )
        errors = predictions.column("error").to_pylist()
        refused = [row for row, error in enumerate(errors) if error is not None]
        if refused:
            raise InputError(
                f"X: row {refused[0]}",
                f"{errors[refused[0]]} ({len(refused)} of {len(errors)} rows are refused)",
                "remove such rows",
            )
        return predictions

    def _overrides(self, cache: Path | None) -> list[str]:
        if isinstance(self.overrides, str):
            raise InputError(
                f"overrides={self.overrides!r}", 'must be a list of texts, such as ["model=gru", "seed=1"]'
            )
        keys = {text.lstrip("+~").partition("=")[0] for text in self.overrides}
        if "data.group_by" in keys:
            raise InputError("data.group_by", "a row of X is a sequence here", "use seqclf.fit for tables of events")
        usual = USUAL if cache is None else {**USUAL, "data.cache_dir": f"data.cache_dir='{cache}'"}
        return [*(text for key, text in usual.items() if key not in keys), *self.overrides]

    @contextmanager
    def _folder(self) -> Iterator[tuple[Path, Path | None]]:
        """Yield the folders of a run and of its prepared data: temporary ones, or a new one in `folder` and None."""
        if self.folder is not None:
            # Clones share the parameter, as those of a cross-validation do.
            yield Path(self.folder) / f"{datetime.now():%Y-%m-%d_%H-%M-%S-%f}", None
            return
        with tempfile.TemporaryDirectory(prefix="seqclf-fit-") as folder:
            yield Path(folder) / "run", Path(folder) / "cache"


def _labels(y: Any) -> np.ndarray:
    """(N,) labels. Raises InputError for a missing one, and for several columns."""
    if isinstance(y, (pa.Array, pa.ChunkedArray)):
        y = y.to_pylist()
    labels = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InputError("y", f"has the shape {labels.shape}", "give one label per row")
    missing = [row for row, label in enumerate(labels.tolist()) if _is_missing(label)]
    if missing:
        raise InputError("y", f"the label of row {missing[0]} is missing", "remove such rows")
    blank = [row for row, label in enumerate(labels.tolist()) if isinstance(label, str) and not label.strip()]
    if blank:
        raise InputError(f"y: row {blank[0]}", f"the label is blank ({len(blank)} such rows)", "name it or remove them")
    return labels


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # the truth of pandas' NA is not defined
        return True


def _texts(classes: np.ndarray) -> list[str]:
    """Return each class as the text that the run calls it: `data.positive=True`."""
    texts = [str(label) for label in classes.tolist()]
    if len(set(texts)) < len(texts):
        raise InputError("y", f"two labels are alike as texts: {', '.join(texts)}", "rename one")
    return texts


def _table(X: Any) -> pa.Table:  # noqa: N803
    """Return the rows as an Arrow table."""
    if is_table(X):
        table = to_arrow(X, "X")
        return table.read_all() if isinstance(table, pa.RecordBatchReader) else table
    if isinstance(X, (str, bytes, Mapping)) or not hasattr(X, "__len__"):
        raise InputError("X", f"is of type {type(X).__name__}", "give a data frame or a list of sequences")
    rows = X.to_list() if hasattr(X, "to_list") else list(X)
    if rows and all(isinstance(row, Mapping) for row in rows):
        return pa.Table.from_pylist([dict(row) for row in rows])
    return pa.table({COLUMN: cells_to_arrow(rows, COLUMN, "X")})


def _free_name(names: list[str]) -> str:
    """Return a name for the label that no column has."""
    name, taken = "label", {column.casefold() for column in names}
    while name in taken:
        name += "_"
    return name


@contextmanager
def _console(shown: bool) -> Iterator[None]:
    """Print nothing inside the block unless `shown`, as scikit-learn does not."""
    quiet = console.quiet
    console.quiet = quiet or not shown
    try:
        with nullcontext() if shown else progress.hidden():
            yield
    finally:
        console.quiet = quiet
