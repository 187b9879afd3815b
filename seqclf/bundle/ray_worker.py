"""The actor of Ray that predicts windows with a bundle, and the bundle on its way there."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.bundle.explanation import explain_batch
from seqclf.bundle.manifest import NAME
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError
from seqclf.system.version import __version__


class WindowWorker:
    """An actor: the classifier of a bundle, whose files came as bytes, because nodes may share no folder.

    `files`: path in the bundle → content. `folder`: the bundle of the driver, for errors. `settings`: arguments of the
    classifier. `by_field`: None to predict, else see `explain_batch`.
    """

    def __init__(self, files: Mapping[str, bytes], folder: str, settings: Mapping[str, Any], by_field: bool | None):
        self.by_field = by_field
        with tempfile.TemporaryDirectory(prefix="seqclf-bundle-") as copy:
            for name, content in files.items():
                path = Path(copy, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.classifier = Classifier(copy, **settings)  # compares the hash of every file
        self.classifier.folder = Path(folder)

    def started(self) -> tuple[str, str]:
        """Return the version of the package on this node, and the provider of ONNX Runtime."""
        return __version__, self.classifier.provider

    def run(self, columns: pa.RecordBatch, first_row: int) -> list[Result]:
        """Predict or explain one window."""
        if self.by_field is None:
            return [self.classifier.predict_batch(columns, first_row)]
        return list(explain_batch(self.classifier, columns, first_row, by_field=self.by_field))


def bundle_files(classifier: BundleModel) -> dict[str, bytes]:
    """Return path in the bundle → content of all files of the bundle. Raises InputError if it was replaced."""
    names = [NAME, *classifier.manifest["files"]]
    try:
        files = {name: (classifier.folder / name).read_bytes() for name in names}
        same = json.loads(files[NAME])["digest"] == classifier.manifest["digest"]
    except (OSError, ValueError, KeyError):
        same = False
    if not same:
        raise InputError(f"bundle={classifier.folder}", "was replaced while it was read", "start the command again")
    return files
