"""Config models of the commands that neither train nor report."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from seqclf.config.options import CommandOptions, Count, FullText, Options, Share, Text, Texts
from seqclf.config.targets import read_trust
from seqclf.data.options import DataOptions
from seqclf.evaluation.options import DecisionOptions, ThresholdOption
from seqclf.evaluation.over_time import Period
from seqclf.training.options import CheckpointFile

Device = Literal["auto", "cpu", "cuda"]


class ExportConfig(CommandOptions):
    """Config of the command `export`. See conf/export.yaml for the meaning and default of each key."""

    checkpoint: CheckpointFile | None
    bundle: FullText
    triton: FullText | None
    trust: Annotated[bool | tuple[str, ...], BeforeValidator(read_trust)]


class RayOptions(Options):
    """Keys `ray.*` in the config of the command `predict`. See conf/predict.yaml for the meaning of each key."""

    address: FullText | None
    actors: Count | None
    object_store_mb: Annotated[int, Field(ge=100)]


class PredictConfig(CommandOptions):
    """Config of the command `predict`. See conf/predict.yaml for the meaning and default of each key."""

    bundle: FullText
    input: Text | None
    output: Text | None
    sequence: Text | None
    explain: bool | Literal["tokens"]
    device: Device
    threshold: ThresholdOption
    max_refused: Share | None
    max_far: Share | None
    max_moved: Share | None
    threads: Count | None
    engine: Literal["local", "ray"]
    ray: RayOptions
    header: bool | None
    encoding: Text | None
    quote: Text | None
    delimiter: Text | None


class EvaluateConfig(CommandOptions):
    """Config of the command `evaluate` (see conf/evaluate.yaml). Null values of `data` become those of the bundle."""

    data: dict[str, Any]
    bundle: FullText
    output: Text | None
    report: Text | None
    scores: Text | None
    by: Period | None
    time: Text | None
    device: Device
    threshold: ThresholdOption
    threads: Count | None


class DoctorConfig(CommandOptions):
    """Config of the command `doctor`. See conf/doctor.yaml for the meaning and default of each key."""

    bundle: FullText
    device: Device
    threads: Count | None


class JudgeConfig(CommandOptions):
    """Config of the command `judge` (see conf/judge.yaml). Null values of `decision` become those of the run."""

    run: FullText | None
    scores: FullText | None
    against: FullText | None
    split: FullText | None
    positive: Text | None
    threshold: ThresholdOption
    decision: dict[str, Any]
    output: Text | None


class CompareConfig(CommandOptions):
    """Config of the command `compare`. See conf/compare.yaml for the meaning and default of each key."""

    runs: Texts
    against: FullText | None
    split: FullText | None
    output: Text | None


class DescribeConfig(CommandOptions):
    """Config of the command `describe` (see conf/describe.yaml). Keys of the training are not checked."""

    data: DataOptions
    decision: DecisionOptions
    output: Text | None
    baseline: bool
