"""`Run`: access to the metrics, report, predictions and classifier of a training run."""

from __future__ import annotations

import html
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.errors import InputError
from seqclf.evaluation.metrics import MAIN_METRICS, metric_title
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import MODEL, PREDICTIONS, SUSPECTS
from seqclf.system.state_validation import read_json

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from seqclf.bundle.runtime import Classifier

REPORT_HEIGHT = 640  # height of the report in a notebook cell, in pixels


class Run:
    """A training run, opened from its folder.

    ```python
    run = seqclf.Run("runs/fraud/2026-05-01_10-00-00")
    run.metrics["test"]["recall"]   # the content of metrics.json
    run.predictions.to_pandas()     # predictions for the rows of validation and test
    run.predict(frame)              # predictions of the run's bundle
    ```

    `folder`: path of the run folder. If the last value of a notebook cell is a run, the notebook shows the report of
    the run. Raises InputError if the folder is not a run folder.
    """

    def __init__(self, folder: str | PathLike[str]):
        self.folder = Path(folder).expanduser()
        if not (self.folder / "config.yaml").is_file():
            raise InputError(self.folder, "holds no run", "give the folder with its config.yaml and metrics.json")

    @property
    def bundle(self) -> Path | None:
        """Path of the bundle in the run folder, or None if the run has no bundle."""
        path = self.folder / "bundle"
        return path if path.is_dir() else None

    @property
    def report(self) -> Path:
        """Path of report.html in the run folder."""
        return self.folder / "report.html"

    @cached_property
    def metrics(self) -> JsonObject:
        """Content of metrics.json, such as the recall on the test split. Raises InputError if the file is missing."""
        path = self.folder / "metrics.json"
        if not path.is_file():
            raise InputError(path, "missing, so the run did not end", "train again, or resume its last checkpoint")
        return read_json(path)

    @property
    def predictions(self) -> pa.Table:
        """Content of predictions.parquet: one prediction per evaluated row. Raises InputError if it is missing."""
        return self._table(PREDICTIONS)

    @property
    def suspects(self) -> pa.Table:
        """Content of suspects.parquet: rows whose label the model contradicts. Raises InputError if it is missing."""
        return self._table(SUSPECTS)

    def _table(self, name: str) -> pa.Table:
        import pyarrow.parquet as pq

        path = self.folder / name
        if not path.is_file():
            raise InputError(path, "is missing, so the run did not end or an older version trained it", "train again")
        return pq.read_table(path, memory_map=True)

    @cached_property
    def classifier(self) -> Classifier:
        """The classifier in the run's bundle. Raises InputError if the run has no bundle."""
        from seqclf.bundle.runtime import Classifier

        if self.bundle is None:
            remedy = f"export one: seqclf export checkpoint={self.folder / MODEL} bundle={self.folder / 'bundle'}"
            raise InputError(self.folder, "has no bundle", remedy)
        return Classifier(self.bundle)

    def predict(self, data: Any, **limits: float | None) -> Any:
        """Predict the rows of `data` with the run's bundle (see `Classifier.predict`)."""
        return self.classifier.predict(data, **limits)

    def predict_proba(self, data: Any) -> np.ndarray:
        """Return the probability (N, C) of each class in `classifier.classes_`, NaN for rejected rows."""
        return self.classifier.predict_proba(data)

    def __repr__(self) -> str:
        return f"Run('{self.folder}'{self._scores()})"

    def _scores(self) -> str:
        """Return the main metrics of the test split, or else of validation, as text."""
        from seqclf.evaluation.result import RunResult  # imported here, because the import loads pyarrow

        if not (self.folder / "metrics.json").is_file():
            return ": not scored"
        try:
            result = RunResult.from_dict(self.metrics)
        except InputError:
            return ": scored by another version"
        if not result.splits:
            return ": not scored"
        scores = (f"{metric_title(name)} {getattr(result.metrics, name):.4g}" for name in MAIN_METRICS)
        return f": {result.split} {', '.join(scores)}"

    def _repr_html_(self) -> str:
        """The report is in a frame, so that its styles do not change the notebook."""
        title = f"<code>{html.escape(repr(self))}</code>"
        if not self.report.is_file():
            return title
        page = self.report.read_text(encoding="utf-8")
        # Without this base URL, a link to a heading of the report would open the notebook inside the frame.
        page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
        # The report may come from an untrusted source, so its scripts must have no access to the notebook.
        return (
            f'{title}<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {REPORT_HEIGHT}px; border: 0" '
            'sandbox="allow-scripts" title="Report of the run"></iframe>'
        )
