"""Validation of the benchmark config. This module does not import PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from seqclf.bench.modes import LENGTH_DISTRIBUTIONS, MODES
from seqclf.command_options import Device
from seqclf.config.options import CommandOptions, Count, Seed, one_of
from seqclf.data.options import DataOptions
from seqclf.errors import InputError
from seqclf.models.options import ModelArguments
from seqclf.training.options import OptimizerArguments, RuntimeOptions


def require_both_graphs(modes: list[str]) -> list[str]:
    """Return `modes` unchanged.

    Raises InputError if `dynamic` or `static` is missing, because the benchmark compares these two modes.
    """
    if not {"dynamic", "static"} <= set(modes):
        raise InputError("modes", "must hold dynamic and static, which are compared")
    return modes


class BenchConfig(CommandOptions):
    """Options of the benchmark. The file conf/bench.yaml explains each key and holds the defaults.

    A config may have further keys, because experiment configs also set keys for training. This class does not check the
    keys for training.
    """

    data: DataOptions | None = None  # the key is missing from the config if no config group `data` is chosen
    model: ModelArguments
    optimizer: OptimizerArguments
    lengths: Annotated[list[Annotated[str, one_of(*LENGTH_DISTRIBUTIONS)]], Field(min_length=1)]
    modes: Annotated[list[Annotated[str, one_of(*MODES)]], AfterValidator(require_both_graphs)]
    sequences: Count
    batch_size: Count
    updates: Count
    rounds: Count
    precision: Literal["32-true", "bf16-mixed", "16-mixed"]
    device: Device
    seed: Seed
    runtime: RuntimeOptions
