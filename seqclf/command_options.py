"""The configs of the light commands: `export`, `predict`, `evaluate` and `describe`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from seqclf.batching.options import BatchingOptions
from seqclf.config.options import CommandOptions, Count, FullText, Options, Text
from seqclf.config.targets import read_trust
from seqclf.data.options import DataOptions
from seqclf.evaluation.options import DecisionOptions, ThresholdOption
from seqclf.training.options import CheckpointFile

Device = Literal["auto", "cpu", "cuda"]
Budget = Annotated[float, Field(gt=0, le=1)]


class ExportConfig(CommandOptions):
    """conf/export.yaml, which explains each key and holds its default."""

    checkpoint: CheckpointFile
    bundle: FullText
    trust: Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]


class RayOptions(Options):
    """The keys `ray.*` of conf/predict.yaml."""

    address: FullText | None
    actors: Count | None
    object_store_mb: Annotated[int, Field(ge=100)]


class PredictConfig(CommandOptions):
    """conf/predict.yaml, which explains each key and holds its default."""

    bundle: FullText
    input: Text | None
    output: Text | None
    csv_guard: bool
    sequence: Text | None
    explain: bool | Literal["tokens"]
    device: Device
    threshold: ThresholdOption
    budget: Budget | None
    threads: Count | None
    engine: Literal["local", "ray"]
    ray: RayOptions
    header: bool | None
    encoding: Text | None
    quote: Text | None
    delimiter: Text | None


class EvaluateConfig(CommandOptions):
    """conf/evaluate.yaml, which explains each key and holds its default.

    `data` stays a plain mapping: what it leaves null comes from the bundle, and only then is it read as `DataOptions`.
    """

    data: dict[str, Any]
    bundle: FullText
    output: Text | None
    report: Text | None
    device: Device
    threshold: ThresholdOption
    budget: Budget | None
    threads: Count | None


class DescribeConfig(CommandOptions):
    """conf/describe.yaml, which explains each key and holds its default.

    The keys that experiments set for training only are not checked here.
    """

    data: DataOptions
    batching: BatchingOptions
    decision: DecisionOptions
    output: Text | None
    baseline: bool
