"""A bundle that is checked on this machine, and the results of the checks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqclf.batching.collate import pad
from seqclf.bundle.manifest import verify_files
from seqclf.bundle.model import BundleModel
from seqclf.bundle.parity import read_cells
from seqclf.data.ragged import Ragged, list_offsets
from seqclf.system.json_result import JsonObject, JsonResult


@dataclass(frozen=True)
class Check(JsonResult):
    """Result of one check. `passed`: None for a warning, and for a check that did not run, as `detail` says.

    `figure`: the number that was measured, in the unit that `detail` names; None if there is none or it is not finite.
    """

    name: str
    passed: bool | None
    figure: float | None
    detail: str


@dataclass(frozen=True)
class Soundness(JsonResult):
    """Results of all checks of the bundle in the folder `bundle`. `passed`: True if none failed."""

    bundle: str
    passed: bool
    checks: list[Check]

    @property
    def exit_code(self) -> int:
        return 0 if self.passed else 1


class Cell(NamedTuple):
    """A batch of the parity grid, as stored (see `parity`), and its `sequences` without the padding."""

    fields: dict[str, np.ndarray]
    lengths: np.ndarray
    logits: np.ndarray
    sequences: Ragged


@dataclass
class Subject:
    """The bundle in `folder`, and what its checks share, read when first used. For the others, see `Classifier`."""

    folder: Path
    device: str = "auto"
    threads: int | None = None

    @cached_property
    def manifest(self) -> JsonObject:
        return verify_files(self.folder)

    @cached_property
    def model(self) -> BundleModel:
        return BundleModel(self.folder, device=self.device, threads=self.threads)

    @cached_property
    def cells(self) -> dict[str, Cell]:
        return {name: self._cell(**arrays) for name, arrays in read_cells(self.folder / "parity.npz").items()}

    def _cell(self, *, lengths: np.ndarray, logits: np.ndarray, **others: np.ndarray) -> Cell:
        fields = {spec["name"]: others[spec["name"]] for spec in self.model.specs}
        static = {spec["name"]: fields[spec["name"]] for spec in self.model.specs if spec.get("static")}
        tokens = {spec["name"]: fields[spec["name"]] for spec in self.model.specs if spec["name"] not in static}
        ragged = {name: values[np.arange(values.shape[1]) < lengths[:, None]] for name, values in tokens.items()}
        return Cell(fields, lengths, logits, Ragged(list_offsets(lengths), ragged, static))

    def logits(self, sequences: Ragged, rows: Any = slice(None), width: int | None = None) -> np.ndarray:
        """Return the logits of one batch: the sequences `rows`, padded with zeros to `width` tokens."""
        return self.model.reader(*pad(sequences, np.arange(len(sequences))[rows], width)).logits
