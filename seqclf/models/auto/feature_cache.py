"""Outputs of the front end for the training rows, computed once and kept in files beside the data set."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.batching.batches import SplitRows
from seqclf.models.auto.front_end import FrontEnd
from seqclf.system import progress
from seqclf.system.atomic_files import scratch_folder

VERSION = 2  # part of the name of the files; raise it when the outputs of a front end change
MAX_BYTES = 4 * 2**30  # size of the files; larger outputs are computed anew for each batch
MAX_MEMORY_BYTES = 2**29  # size of the outputs in memory, for a split that is not in files
WINDOWS, MEANS, STATISTICS = "frozen/windows", "frozen/means", "frozen/statistics"  # names beside those of fields
TYPES = {WINDOWS: np.float16, MEANS: np.float16, STATISTICS: np.float32}


class FrozenOutputs:
    """Outputs of a fitted front end for N training rows: windows (ΣN_i, K) end to end, means (N, M), statistics (N, S).

    Windows and means, if a head reads them, are float16, as in training without these files (see `HeadsClassifier`).
    """

    def __init__(self, front: FrontEnd, rows: SplitRows, *, reads_windows: bool, reads_means: bool):
        self.window = front.window
        self.lengths = -(-rows.lengths // front.window)
        self.starts = np.concatenate([[0], np.cumsum(self.lengths)])
        self.shapes = {
            WINDOWS: (int(self.starts[-1]), front.window_size if reads_windows else 0),
            MEANS: (len(rows), front.mean_size if reads_means else 0),
            STATISTICS: (len(rows), front.statistic_size),
        }
        self.arrays: dict[str, np.ndarray] = {}
        self.key = _key(front, rows, self.shapes)

    @property
    def size(self) -> int:
        """Number of bytes of all arrays."""
        return sum(np.dtype(TYPES[name]).itemsize * int(np.prod(shape)) for name, shape in self.shapes.items())

    def open_or_compute(self, front: FrontEnd, rows: SplitRows) -> bool:
        """Open the files, or compute the outputs and keep them. Returns False if they take too much space."""
        parent = rows.folder
        if parent is None:
            if self.size > MAX_MEMORY_BYTES:
                return False
            self.arrays = {name: np.empty(shape, TYPES[name]) for name, shape in self.shapes.items()}
            self._compute(front, rows)
            return True
        folder = parent / f"outputs-{self.key}"
        if not folder.is_dir():
            if self.size > min(MAX_BYTES, shutil.disk_usage(parent).free // 2):
                return False
            try:
                self._write(front, rows, folder)
            except OSError:  # a folder that cannot be written
                return False
        self._open(folder, "r")
        return True

    def _write(self, front: FrontEnd, rows: SplitRows, folder: Path) -> None:
        with scratch_folder(folder.parent, folder.name) as scratch:
            self._open(scratch, "w+")
            self._compute(front, rows)
            for array in self.arrays.values():
                if isinstance(array, np.memmap):
                    array.flush()
            with contextlib.suppress(OSError):  # another run has renamed its folder before
                scratch.rename(folder)

    def _open(self, folder: Path, mode: str) -> None:
        self.arrays = {
            name: np.memmap(folder / name.rpartition("/")[2], TYPES[name], mode, shape=shape)  # type: ignore[call-overload]
            if all(shape)
            else np.empty(shape, TYPES[name])  # an empty file cannot be mapped
            for name, shape in self.shapes.items()
        }

    def _compute(self, front: FrontEnd, rows: SplitRows) -> None:
        with progress.stage("computing the frozen part of the network", total=len(rows), unit="rows") as stage:
            for batch in rows.batches():
                reading = front(batch.fields, batch.lengths)
                self.arrays[MEANS][batch.rows] = reading.means[:, : self.shapes[MEANS][1]].half().cpu().numpy()
                self.arrays[STATISTICS][batch.rows] = reading.statistics.cpu().numpy()
                windows = reading.windows[..., : self.shapes[WINDOWS][1]].half().cpu().numpy()
                for row, values in zip(batch.rows, windows, strict=True):
                    self.arrays[WINDOWS][self.starts[row] : self.starts[row + 1]] = values[: self.lengths[row]]
                stage.completed += len(batch.rows)

    def batch(self, rows: np.ndarray, tokens: int) -> dict[str, Tensor]:
        """Return the outputs of `rows` (B,), with the windows padded to those of `tokens` tokens."""
        count = -(-tokens // self.window)
        positions = np.arange(count)
        inside = positions < self.lengths[rows][:, None]
        index = np.where(inside, self.starts[rows][:, None] + positions, self.starts[rows][:, None])
        at = {MEANS: rows, STATISTICS: rows, WINDOWS: index}
        return {name: torch.from_numpy(self.arrays[name][places]) for name, places in at.items()}


def feature_cache(network: nn.Module, rows: SplitRows) -> FrozenOutputs | None:
    """Return the outputs for training rows of the one front end in a network, None to compute them for each batch."""
    modules = list(network.modules())
    fronts = [module for module in modules if isinstance(module, FrontEnd)]
    if len(fronts) != 1 or not fronts[0].cache or not fronts[0].statistic_size:
        return None
    reads = {name: any(getattr(part, name, False) for part in modules) for name in ("reads_windows", "reads_means")}
    outputs = FrozenOutputs(fronts[0], rows, **reads)
    return outputs if outputs.open_or_compute(fronts[0], rows) else None


def _key(front: FrontEnd, rows: SplitRows, shapes: Mapping[str, object]) -> str:
    content = hashlib.sha256(repr((VERSION, rows.digest, front.window, front.causal, front.names, shapes)).encode())
    content.update(np.ascontiguousarray(rows.lengths).tobytes())
    for name, buffer in front.state_dict().items():
        content.update(name.encode())
        content.update(buffer.detach().cpu().contiguous().numpy().tobytes())
    return content.hexdigest()[:24]
