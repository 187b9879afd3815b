"""Modes: layouts and paddings of the same batches that the benchmark compares."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from seqclf.config.arguments import arguments_of
from seqclf.config.instantiate import Config, locate
from seqclf.models.encoder import reads_trees


class Mode(NamedTuple):
    """A way to run the same batches.

    `layout`: that of recurrent layers. Other encoders are padded. `static`: every batch is padded to the longest
    sequence of the workload, instead of to its own longest. `compiled`: by torch.compile with fixed shapes.
    """

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
    """Settings that all modes share. `model`: `_target_` dict of the network, without `layout`."""

    model: Config
    learning_rate: float
    device: str
    precision: str
    seed: int


def has_layouts(model: Config) -> bool:
    """Return True if the encoder of a model takes a layout, as recurrent ones do.

    >>> has_layouts({"encoder": {"_target_": "seqclf.models.transformer.Transformer"}})
    False
    """
    return arguments_of(locate(model["encoder"]["_target_"], "model.encoder._target_")).accepts("layout")


LEFT_OUT = {  # why a mode may be missing
    "packed": "it is a layout of recurrent layers, which this model does not have",
    "compiled": "the levels of trees have no fixed shapes",
}


def modes_of(model: Config, names: Iterable[str]) -> list[str]:
    """Return the names of the modes in which a model can run.

    Packed ones need layouts. Compiled ones need shapes that follow from those of the batch; the levels of trees do not.
    """
    modes = [MODES[name] for name in names]
    if not has_layouts(model):
        modes = [mode for mode in modes if mode.layout != "packed"]
    return [mode.name for mode in modes if not (mode.compiled and reads_trees(model))]
