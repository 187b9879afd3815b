"""The Ray actor that predicts or explains windows with a bundle. The files of the bundle are sent to the actor."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.bundle.explanations.explanation import explain_batch
from seqclf.bundle.manifest import NAME
from seqclf.bundle.model import BundleModel
from seqclf.bundle.predictions import Result
from seqclf.bundle.runtime import Classifier
from seqclf.errors import InputError
from seqclf.system.atomic_files import scratch_folder
from seqclf.system.version import __version__


class WindowWorker:
    """A Ray actor that predicts or explains windows with a bundle.

    The actor gets the content of the bundle's files, because another machine may have no access to the bundle folder.
    `files`: dict path relative to the bundle folder → bytes of the file. `folder`: bundle folder on the machine where
    the command runs; error texts name this folder. `settings`: arguments of `Classifier`. `by_field`: None to predict;
    True or False to explain (see `explain_batch`).
    """

    def __init__(self, files: Mapping[str, bytes], folder: str, settings: Mapping[str, Any], by_field: bool | None):
        self.by_field = by_field
        with scratch_folder(Path(tempfile.gettempdir()), "bundle-") as copy:
            for name, content in files.items():
                path = copy / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            self.classifier = Classifier(copy, **settings)  # `Classifier` compares the hash of every file
        self.classifier.folder = Path(folder)

    def started(self) -> tuple[str, str]:
        """Return the version of seqclf on this node, and the execution provider that ONNX Runtime uses on this node."""
        return __version__, self.classifier.provider

    def run(self, columns: pa.RecordBatch, first_row: int) -> list[Result]:
        """Predict or explain the rows of one window."""
        if self.by_field is None:
            return [self.classifier.predict_batch(columns, first_row)]
        return list(explain_batch(self.classifier, columns, first_row, by_field=self.by_field))


def bundle_files(classifier: BundleModel) -> dict[str, bytes]:
    """Read all files of a bundle. Raises InputError if the bundle was replaced after `classifier` was opened."""
    names = [NAME, *classifier.manifest["files"]]
    try:
        files = {name: (classifier.folder / name).read_bytes() for name in names}
        same = json.loads(files[NAME])["digest"] == classifier.manifest["digest"]
    except (OSError, ValueError, KeyError):
        same = False
    if not same:
        raise InputError(f"bundle={classifier.folder}", "was replaced while it was read", "start the command again")
    return files
