"""The config of `bench`, checked without PyTorch."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from seqclf.command_options import Device
from seqclf.config.options import CommandOptions, Count, Seed, Text, one_of
from seqclf.data.options import DataOptions
from seqclf.errors import InputError
from seqclf.models.options import ModelArguments
from seqclf.training.options import OptimizerArguments, RuntimeOptions

# Names of workload.py and mode_trainer.py, which load PyTorch; a test compares them.
LENGTHS_NAMES = ("equal", "uniform", "log_normal", "heavy_tailed")
MODE_NAMES = ("dynamic", "packed", "static", "compiled")
ALL_MODELS = "all"


def require_both_graphs(modes: list[str]) -> list[str]:
    """Refuse modes that leave nothing to compare."""
    if not {"dynamic", "static"} <= set(modes):
        raise InputError("modes", "must hold dynamic and static, which are compared")
    return modes


def check_models(models: object) -> object:
    """Refuse what is neither `all` nor a list of several names, nor null."""
    if models is None or models == ALL_MODELS:
        return models
    if not isinstance(models, list) or len(models) < 2 or not all(isinstance(name, str) for name in models):
        raise ValueError("must be a list of at least two models, such as [lstm,transformer], all, or null")
    return models


class BenchConfig(CommandOptions):
    """conf/bench.yaml, which explains each key and holds its default.

    The keys that experiments set for training only are not checked here.
    """

    data: DataOptions | None = None  # absent, not null, where no data group is chosen
    model: ModelArguments
    optimizer: OptimizerArguments
    models: Annotated[list[str] | str | None, BeforeValidator(check_models)]
    lengths: Annotated[list[Annotated[str, one_of(*LENGTHS_NAMES)]], Field(min_length=1)]
    modes: Annotated[list[Annotated[str, one_of(*MODE_NAMES)]], AfterValidator(require_both_graphs)]
    sequences: Count
    batch_size: Count
    updates: Count
    rounds: Count
    leak_steps: Annotated[int, Field(ge=20)]  # one for each block of the slope
    precision: Literal["32-true", "bf16-mixed", "16-mixed"]
    device: Device
    output: Text | None
    seed: Seed
    runtime: RuntimeOptions
