"""The config of `train`, checked without PyTorch: its root, the optimizer, the loss and the trainer."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, model_validator
from typing_extensions import TypedDict

from seqclf.batching.options import BatchingOptions
from seqclf.config.options import (
    CommandOptions,
    Count,
    Limit,
    NonNegative,
    Options,
    Positive,
    Seed,
    Share,
    Text,
    ZeroOrMore,
    one_of,
)
from seqclf.config.override_text import argument
from seqclf.config.suggestions import similar_file
from seqclf.data.options import DataOptions
from seqclf.errors import InputError
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.evaluation.options import DecisionOptions
from seqclf.models.options import ModelArguments
from seqclf.models.structure.options import Schedule, read_schedule
from seqclf.training.debugging.options import DebugOptions
from seqclf.training.loggers.options import LoggerOptions

CHECKPOINT_FILES = "RUN/checkpoints/best.ckpt, or last.ckpt to resume"


def require_checkpoint_file(value: str) -> str:
    """Refuse a path that is no readable checkpoint file. Its content is checked when PyTorch reads it."""
    path = Path(value)
    if path.is_dir():
        saved = [*path.glob("checkpoints/best.ckpt"), *path.glob("best.ckpt"), *path.glob("checkpoints/last.ckpt")]
        saved = saved or [*path.parent.glob("checkpoints/best.ckpt")]  # of the run whose bundle was named
        remedy = f"write {argument('checkpoint', str(saved[0]))}" if saved else f"name a file, {CHECKPOINT_FILES}"
        raise InputError(f"checkpoint={value}", "is a folder", remedy)
    try:
        if path.exists() and not path.is_file():  # to open a FIFO is to wait for its writer
            raise InputError(f"checkpoint={value}", "is not a regular file", f"give {CHECKPOINT_FILES}")
        with path.open("rb"):
            pass
    except FileNotFoundError:
        remedy = similar_file(value) or f"give {CHECKPOINT_FILES}"
        raise InputError(f"checkpoint={value}", "no such file", remedy) from None
    except OSError as error:
        raise InputError(f"checkpoint={value}", f"cannot be read ({error.strerror})", "name another file") from None
    if not zipfile.is_zipfile(path):  # torch.save writes a zip archive
        raise InputError(f"checkpoint={value}", "is not a seqclf checkpoint", f"give {CHECKPOINT_FILES}")
    return value


CheckpointFile = Annotated[Text, AfterValidator(require_checkpoint_file)]
AUTO = "auto"  # value of `checkpoint`: the newest one of the run folder


def _require_resumable(value: str) -> str:
    return value if value == AUTO else require_checkpoint_file(value)


ResumedCheckpoint = Annotated[Text, AfterValidator(_require_resumable)]


class RuntimeOptions(Options):
    """The block runtime of conf/train.yaml and conf/bench.yaml."""

    threads: Count | None
    flush_denormal: bool


class TrainRuntimeOptions(RuntimeOptions):
    """The block runtime of conf/train.yaml."""

    rank_timeout: Positive
    on_nan: Literal["stop", "skip"]


class ScheduleOptions(Options):
    """optimizer.schedule: the learning rate over the steps of a training."""

    warmup: Share
    decay: Literal["cosine", "linear", "none"]
    floor: Share


class OptimizerArguments(TypedDict, total=False):
    """conf/optimizer/adamw.yaml. Other keys are compared with the signature of `_target_` once that is imported."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    lr: Required[Positive]
    weight_decay: NonNegative
    fused: bool
    schedule: Required[ScheduleOptions]


class LossArguments(TypedDict):
    """conf/loss/*.yaml. Other keys are checked by the signature and types of `_target_` once that is imported."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: str


# Lightning's names, which a test compares with its signature.
Precision = Literal[
    64, 32, 16,
    "transformer-engine", "transformer-engine-float16", "16-true", "16-mixed", "bf16-true", "bf16-mixed",
    "32-true", "64-true", "64", "32", "16", "bf16",
]  # fmt: skip
Batches = ZeroOrMore | Share  # 1 is one batch, 1.0 is all of them


class CallbackArguments(TypedDict, total=False):
    """A callback of Lightning and its arguments, which are compared with its signature once it is imported."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: str


class TrainerArguments(TypedDict, total=False):
    """The arguments of Lightning's Trainer that a config can hold. Null leaves a choice to Lightning.

    conf/trainer/default.yaml holds the usual ones, `+trainer.overfit_batches=2` adds another. `callbacks` are
    `_target_` dicts, which come after the callbacks of every run. The other objects are made by `pipeline`.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)  # type: ignore[misc]

    accelerator: str
    strategy: str
    devices: Annotated[int, Field(ge=-1)] | str | list[int]
    num_nodes: Count
    precision: Precision | None
    fast_dev_run: Required[bool | ZeroOrMore]
    max_epochs: Required[Limit | None]
    min_epochs: ZeroOrMore | None
    max_steps: Limit
    min_steps: ZeroOrMore | None
    max_time: str | dict[str, int] | None
    limit_train_batches: Batches | None
    limit_val_batches: Batches | None
    limit_test_batches: Batches | None
    limit_predict_batches: Batches | None
    overfit_batches: Batches
    val_check_interval: Batches | str | dict[str, int] | None
    check_val_every_n_epoch: Count | None
    num_sanity_val_steps: Annotated[int, Field(ge=-1)] | None
    log_every_n_steps: ZeroOrMore | None
    enable_checkpointing: bool | None
    enable_progress_bar: Required[bool | None]
    accumulate_grad_batches: Count
    gradient_clip_val: NonNegative | None
    gradient_clip_algorithm: Literal["norm", "value"] | None
    deterministic: bool | Literal["warn"] | None
    benchmark: bool | None
    inference_mode: bool
    use_distributed_sampler: bool
    profiler: Literal["simple", "advanced", "pytorch", "xla"] | None
    detect_anomaly: bool
    barebones: bool
    sync_batchnorm: bool
    reload_dataloaders_every_n_epochs: ZeroOrMore
    enable_autolog_hparams: bool
    model_registry: str | None
    callbacks: list[CallbackArguments] | None


# Arguments of Lightning's Trainer that `pipeline` sets, and the keys that decide them.
MADE_BY_PIPELINE = {
    "logger": "choose one by logger=wandb, mlflow, tensorboard, csv or none",
    "plugins": "set trainer.precision, trainer.strategy or trainer.num_nodes",
    "default_root_dir": "set hydra.run.dir=FOLDER",
    "enable_model_summary": "add '+trainer.callbacks=[{_target_: lightning.pytorch.callbacks.ModelSummary}]'",
}


def refuse_made_by_pipeline(trainer: Any) -> Any:
    """Refuse arguments of Lightning's Trainer that `pipeline` sets, and name the key to set instead."""
    taken = [name for name in MADE_BY_PIPELINE if isinstance(trainer, Mapping) and name in trainer]
    if taken:
        raise InputError(f"trainer.{taken[0]}", "is made by the training itself", MADE_BY_PIPELINE[taken[0]])
    return trainer


class TrainConfig(CommandOptions):
    """conf/train.yaml, which explains each key and holds its default."""

    data: DataOptions
    model: ModelArguments
    batching: BatchingOptions
    loss: LossArguments
    decision: DecisionOptions
    optimizer: OptimizerArguments
    trainer: Annotated[TrainerArguments, BeforeValidator(refuse_made_by_pipeline)]
    logger: LoggerOptions
    debug: DebugOptions
    structure: Schedule
    seed: Seed
    checkpoint: ResumedCheckpoint | None
    overwrite: bool
    checkpoint_every: Count | None
    monitor: Annotated[str, one_of(*EPOCH_METRICS)]
    patience: ZeroOrMore | None
    baseline: bool
    baseline_limit: ZeroOrMore
    export: bool
    runtime: TrainRuntimeOptions

    @model_validator(mode="after")
    def check_epochs(self) -> TrainConfig:
        """Refuse a change of the structure that no epoch would make."""
        limit = self.trainer["max_epochs"]
        for key, epoch, _ in read_schedule(self.structure):
            if limit is not None and 0 <= limit < epoch:
                raise InputError(
                    f"{key}.epoch={epoch}", f"is beyond trainer.max_epochs={limit}", "raise that, or remove the change"
                )
        return self
