"""Record of the steps of a run that are finished, so that the same command does not repeat them after a kill."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from seqclf.config.setting_names import NOT_OF_FIT
from seqclf.config.targets import is_foreign, package_of, targets
from seqclf.data.storage.dataset import Dataset
from seqclf.data.storage.store import Split
from seqclf.system.atomic_files import write_output
from seqclf.system.json_result import JsonObject
from seqclf.system.run_folder import STEPS
from seqclf.system.state_validation import read_json
from seqclf.system.version import __version__
from seqclf.training.options import TrainConfig

LIBRARIES = ("torch", "lightning", "torchmetrics")  # a class of these does not change under a run


class FinishedSteps:
    """The finished steps of a run folder: a dict step → hash of its inputs, and what the step returned besides files.

    A step is recorded when its files are complete, and is finished for a later command only if its inputs are the same.
    """

    def __init__(self, run: Path):
        self.path = run / STEPS
        self.steps: dict[str, JsonObject] = {}
        with suppress(OSError, ValueError):  # an unreadable file means that no step is finished
            content = read_json(self.path)
            content = content if isinstance(content, dict) else {}
            self.steps = {name: step for name, step in content.items() if isinstance(step, dict)}

    def find(self, step: str, inputs: str) -> JsonObject | None:
        """Return what a step returned if it is finished with these inputs, else None."""
        found = self.steps.get(step, {})
        return found.get("result") if found.get("inputs") == inputs else None

    def forget(self, *steps: str) -> None:
        """Forget steps before their files change."""
        self.steps = {name: step for name, step in self.steps.items() if name not in steps}
        self._write()

    def record(self, step: str, inputs: str, result: JsonObject) -> None:
        """Record that a step is finished. `result`: plain values that a later command needs beside the files."""
        self.steps[step] = {"inputs": inputs, "result": result}
        self._write()

    def _write(self) -> None:
        write_output(self.path, json.dumps(self.steps, indent=1) + "\n")


def fit_inputs(config: TrainConfig, dataset: Dataset) -> str:
    """Return the hash of what a training depends on: settings, data, and the files of classes of other packages."""
    settings = {key: value for key, value in config.model_dump().items() if key not in NOT_OF_FIT}
    rows = {name: rows_hash(split) for name, split in dataset.all_splits.items()}
    foreign = {package_of(target) for _, target in targets(settings, "") if is_foreign(target)}
    code = {package: _code_hashes(package) for package in foreign - set(LIBRARIES)}
    return hash_of({"config": settings, "data": dataset.digest, "rows": rows, "version": __version__, "code": code})


def _code_hashes(package: str) -> list[str | None]:
    modules = (module for name, module in sorted(sys.modules.items()) if package_of(name) == package)
    paths = (str(getattr(module, "__file__", None) or "") for module in modules)
    return [file_hash(Path(path)) for path in paths if path and "site-packages" not in path]


def rows_hash(split: Split) -> str:
    """Return the hash of what scores hold of rows: labels, ids, groups, lengths. A data set's digest has tokens."""
    columns = {"label": pa.array(split.labels), "id": split.ids, "length": pa.array(split.lengths_before_truncation)}
    if split.groups is not None:
        columns["group"] = pa.array(split.groups)
    if split.group_names is not None:
        columns["group_name"] = split.group_names
    batch = pa.record_batch(list(columns.values()), names=list(columns))
    return hashlib.sha256(batch.serialize()).hexdigest()


def hash_of(content: Mapping[str, Any]) -> str:
    """Return the SHA-256 hash of plain values."""
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=str).encode()).hexdigest()


def file_hash(path: Path) -> str | None:
    """Return the SHA-256 hash of a file, None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
