"""A finished training run: its folder, metrics, report and classifier."""

from __future__ import annotations

import html
import json
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.errors import InputError
from seqclf.evaluation.metrics import MAIN_METRICS, metric_title
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import DEBUG_RESULT, PREDICTIONS

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from seqclf.bundle.runtime import Classifier

REPORT_HEIGHT = 640  # pixels in a notebook


class Run:
    """The folder of a training run, opened.

    ```python
    run = seqclf.Run("runs/fraud/2026-05-01_10-00-00")
    run.metrics["test"]["recall"]   # the content of metrics.json
    run.predictions.to_pandas()     # of the rows of validation and test
    run.predict(frame)              # with the bundle of the run
    ```

    As the last value of a notebook cell it shows the report. Raises InputError if the folder holds no run.
    """

    def __init__(self, folder: str | PathLike[str]):
        self.folder = Path(folder).expanduser()
        if not (self.folder / "config.yaml").is_file():
            raise InputError(self.folder, "holds no run", "give the folder with its config.yaml and metrics.json")

    @property
    def bundle(self) -> Path | None:
        """Folder of the bundle, None without an export."""
        path = self.folder / "bundle"
        return path if path.is_dir() else None

    @property
    def report(self) -> Path:
        """Path of report.html."""
        return self.folder / "report.html"

    @cached_property
    def metrics(self) -> JsonObject:
        """Content of metrics.json: `metrics["test"]["recall"]`. Raises InputError for a run that was not scored."""
        path = self.folder / "metrics.json"
        if (self.folder / DEBUG_RESULT).is_file():
            raise InputError(path, "is missing, as the run was for debugging", f"read {self.folder / DEBUG_RESULT}")
        if not path.is_file():
            raise InputError(path, "missing, so the run did not end", "train again, or resume its last checkpoint")
        return json.loads(path.read_text(encoding="utf-8"))

    @property
    def predictions(self) -> pa.Table:
        """Content of predictions.parquet, a row for each evaluated row. Raises InputError where there is none."""
        import pyarrow.parquet as pq

        path = self.folder / PREDICTIONS
        if not path.is_file():
            raise InputError(path, "is missing, so the run did not end or an older version trained it", "train again")
        return pq.read_table(path, memory_map=True)

    @cached_property
    def classifier(self) -> Classifier:
        """Classifier of the run's bundle, on ONNX Runtime. Raises InputError without a bundle."""
        from seqclf.bundle.runtime import Classifier

        if self.bundle is None:
            checkpoint = self.folder / "checkpoints" / "best.ckpt"
            raise InputError(
                self.folder,
                "has no bundle",
                f"export one: seqclf export checkpoint={checkpoint} bundle={self.folder / 'bundle'}",
            )
        return Classifier(self.bundle)

    def predict(self, data: Any) -> Any:
        """Return predictions of the same kind as the data (see `Classifier.predict`)."""
        return self.classifier.predict(data)

    def predict_proba(self, data: Any) -> np.ndarray:
        """(N, C) probabilities in the order of `classifier.classes_`, NaN in refused rows."""
        return self.classifier.predict_proba(data)

    def __repr__(self) -> str:
        return f"Run('{self.folder}'{self._scores()})"

    def _scores(self) -> str:
        """Return the main metrics of the split that the run is judged by, the last one."""
        from seqclf.evaluation.run_result import RunResult  # the import loads pyarrow

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
        """Return the report in a frame, whose styles stay apart from the styles of the notebook."""
        title = f"<code>{html.escape(repr(self))}</code>"
        if not self.report.is_file():
            return title
        page = self.report.read_text(encoding="utf-8")
        # Links to a heading are relative to the page of the notebook otherwise, which the frame would open.
        page = page.replace("<head>", '<head><base href="about:srcdoc">', 1)
        return (
            f'{title}<iframe srcdoc="{html.escape(page)}" style="width: 100%; height: {REPORT_HEIGHT}px; border: 0" '
            # The page may be of somebody else: its scripts may run, but not as scripts of the notebook.
            'sandbox="allow-scripts" title="Report of the run"></iframe>'
        )
