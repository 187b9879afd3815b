"""Modes: layouts and paddings of the same batches that the benchmark compares."""

from __future__ import annotations

from typing import NamedTuple

from seqclf.config.instantiate import Config


class Mode(NamedTuple):
    """`layout`: of the recurrent layers. `static`: every batch is padded to the longest sequence of the workload,
    instead of to its own longest. `compiled`: by torch.compile with fixed shapes."""

    name: str
    layout: str
    static: bool
    compiled: bool = False


MODES = {
    mode.name: mode
    for mode in (
        Mode("dynamic", "padded", static=False),  # the default of training
        Mode("packed", "packed", static=False),  # PyTorch's answer to unequal lengths
        Mode("static", "padded", static=True),  # the reference of all ratios
        Mode("compiled", "padded", static=True, compiled=True),  # static graphs at their best
    )
}


class BenchmarkSettings(NamedTuple):
    """Settings that all modes share. `model`: arguments of `SequenceClassifier`, except `layout`."""

    model: Config
    learning_rate: float
    device: str
    precision: str
    seed: int
