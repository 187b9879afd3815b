"""Schema of the config of the command `train`, which is validated without importing PyTorch."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Required

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Discriminator, Field, model_validator
from typing_extensions import TypedDict

from seqclf.batching.options import BatchingOptions
from seqclf.config.hints import similar_file
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
    read_text,
)
from seqclf.config.override_text import argument
from seqclf.data.options import DataOptions
from seqclf.errors import SECRET, InputError, RefusedValueError
from seqclf.evaluation.metrics import EPOCH_METRICS
from seqclf.evaluation.options import DecisionOptions
from seqclf.models.options import ModelArguments
from seqclf.models.structure.options import Schedule, read_schedule


def split_tags(value: Any) -> Any:
    """Split a comma-separated string into a list of tags. The environment variable WANDB_TAGS has this format."""
    return [tag for part in value.split(",") if (tag := part.strip())] if isinstance(value, str) else value


def refuse_credentials(value: str) -> str:
    """Return the address. Raises RefusedValueError if it holds credentials, which config.yaml would hold too."""
    if re.search(r"https?://[^/@]*@|://[^/@]*:(?!\d+(/|$)).*@", value) or SECRET.search(value):
        raise RefusedValueError("holds credentials", "set it in the environment: MLFLOW_TRACKING_URI")
    return value


Timeout = Annotated[float, Field(ge=1)]  # in seconds
# The W&B server sets the limits of the texts. The limits stand before `read_text`, so that errors count characters.
ServerName = Annotated[str, Field(max_length=128), BeforeValidator(read_text)]
Tag = Annotated[str, Field(min_length=1, max_length=64), BeforeValidator(read_text)]


class PlainLoggerOptions(Options):
    """Options of the loggers without settings of their own."""

    name: Literal["tensorboard", "csv", "none"]


class WandbOptions(Options):
    """Options of the W&B logger (conf/logger/wandb.yaml)."""

    name: Literal["wandb"]
    project: Annotated[str, Field(max_length=128, pattern=r"^[^/\\#?%:]*$"), BeforeValidator(read_text)]
    entity: Text | None
    run_name: ServerName | None
    group: ServerName | None
    job_type: Annotated[str, Field(max_length=64), BeforeValidator(read_text)] | None
    tags: Annotated[list[Tag] | None, BeforeValidator(split_tags)]
    notes: Text | None
    mode: Literal["auto", "online", "offline", "disabled"]
    log_bundle: bool
    upload_rows: bool
    timeout: Timeout
    finish_timeout: NonNegative  # in seconds


class MlflowOptions(Options):
    """Options of the MLflow logger (conf/logger/mlflow.yaml)."""

    name: Literal["mlflow"]
    tracking_uri: Annotated[Text, AfterValidator(refuse_credentials)] | None
    experiment_name: Text
    run_name: Text | None
    group: Text | None
    tags: dict[str, Text] | None
    log_bundle: bool
    upload_rows: bool
    timeout: Timeout


LoggerOptions = Annotated[WandbOptions | MlflowOptions | PlainLoggerOptions, Discriminator("name")]


CHECKPOINT_FILES = "RUN/model.ckpt, or RUN/checkpoints/last.ckpt"


def require_checkpoint_file(value: str) -> str:
    """Reject a path that is not a readable file. PyTorch checks the content later."""
    path = Path(value)
    if path.is_dir():
        saved = [*path.glob("model.ckpt"), *path.glob("checkpoints/last.ckpt"), *path.glob("last.ckpt")]
        # If `path` is a bundle, look for checkpoints of its run.
        saved = saved or [*path.parent.glob("model.ckpt")]
        remedy = f"write {argument('checkpoint', str(saved[0]))}" if saved else f"name a file, {CHECKPOINT_FILES}"
        raise InputError(f"checkpoint={value}", "is a folder", remedy)
    try:
        if path.exists() and not path.is_file():  # opening a FIFO would block
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
# Value of the key `checkpoint` that selects the newest checkpoint of the run folder, and of the keys that
# `training.length` sets
AUTO = "auto"


def _require_resumable(value: str) -> str:
    return value if value == AUTO else require_checkpoint_file(value)


ResumedCheckpoint = Annotated[Text, AfterValidator(_require_resumable)]


class RuntimeOptions(Options):
    """Options of the config block `runtime`."""

    threads: Count | None
    flush_denormal: bool
    rank_timeout: Positive
    on_nan: Literal["stop", "skip"]


class ScheduleOptions(Options):
    """Options of the learning rate schedule (`optimizer.schedule`)."""

    warmup: Share
    decay: Literal["cosine", "linear", "none"]
    floor: Share


class OptimizerArguments(TypedDict, total=False):
    """Options of an optimizer (conf/optimizer/adamw.yaml). The signature of its class decides other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: Required[str]
    lr: Required[Positive]
    weight_decay: NonNegative
    fused: bool
    average: Annotated[float, Field(gt=0, lt=1)] | None
    schedule: Required[ScheduleOptions]


class LossArguments(TypedDict):
    """Options of a loss (conf/loss/*.yaml). The signature and types of the class in `_target_` decide other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: str


# Lightning's precision names. A test compares the names with the signature of Lightning's Trainer.
Precision = Literal[
    64, 32, 16,
    "transformer-engine", "transformer-engine-float16", "16-true", "16-mixed", "bf16-true", "bf16-mixed",
    "32-true", "64-true", "64", "32", "16", "bf16",
]  # fmt: skip
Batches = ZeroOrMore | Share  # the integer 1 is one batch, the float 1.0 is all batches


class CallbackArguments(TypedDict, total=False):
    """Options of a Lightning callback. The signature of its class decides other keys."""

    __pydantic_config__ = ConfigDict(extra="allow", strict=True)  # type: ignore[misc]

    _target_: str


class TrainerArguments(TypedDict, total=False):
    """Arguments of Lightning's Trainer that a config may set. Null selects Lightning's default.

    conf/trainer/default.yaml lists the common arguments; `+trainer.overfit_batches=2` adds another one. `callbacks`:
    list of `_target_` dicts, added to the default callbacks. `pipeline` builds all other objects, such as the logger.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)  # type: ignore[misc]

    accelerator: str
    strategy: str
    devices: Annotated[int, Field(ge=-1)] | str | list[int]
    num_nodes: Count
    precision: Precision | None
    fast_dev_run: Required[bool | ZeroOrMore]
    max_epochs: Required[Limit | Literal["auto"] | None]
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
    check_val_every_n_epoch: Count | Literal["auto"] | None
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


# Dict of Trainer arguments that `pipeline` sets: name of the argument → advice on the config key to set instead.
MADE_BY_PIPELINE = {
    "logger": "choose one by logger=wandb, mlflow, tensorboard, csv or none",
    "plugins": "set trainer.precision, trainer.strategy or trainer.num_nodes",
    "default_root_dir": "set hydra.run.dir=FOLDER",
    "enable_model_summary": "add '+trainer.callbacks=[{_target_: lightning.pytorch.callbacks.ModelSummary}]'",
}


def refuse_made_by_pipeline(trainer: Any) -> Any:
    """Reject arguments of Lightning's Trainer that `pipeline` sets itself, with the key to set instead."""
    taken = [name for name in MADE_BY_PIPELINE if isinstance(trainer, Mapping) and name in trainer]
    if taken:
        raise InputError(f"trainer.{taken[0]}", "is made by the training itself", MADE_BY_PIPELINE[taken[0]])
    return trainer


NOT_OF_RECIPE = ("data", "trainer", "logger", "checkpoint", "start", "overwrite", "export")
NOT_OF_DATA_RECIPE = (
    *("name", "generator", "train", "validation", "test", "labels", "cache_dir", "memory_limit"),
    *("fields", "static", "ignore", "infer", "encoders"),  # the schema has the fields
)
NOT_OF_TRAINER_RECIPE = (
    *("callbacks", "profiler", "model_registry", "accelerator", "devices", "num_nodes", "strategy"),
    *("enable_progress_bar", "fast_dev_run"),
)


def recipe_of(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of the settings of a training that its recipe holds (see `TrainConfig.recipe`)."""
    kept = {key: value for key, value in plain.items() if key not in NOT_OF_RECIPE}
    data = {key: value for key, value in plain["data"].items() if key not in NOT_OF_DATA_RECIPE}
    trainer = {key: value for key, value in plain["trainer"].items() if key not in NOT_OF_TRAINER_RECIPE}
    return {**kept, "data": data, "trainer": trainer}


class TrainConfig(CommandOptions):
    """Config of the command `train`. conf/train.yaml explains each key and sets its default value."""

    data: DataOptions
    model: ModelArguments
    batching: BatchingOptions
    loss: LossArguments
    decision: DecisionOptions
    optimizer: OptimizerArguments
    trainer: Annotated[TrainerArguments, BeforeValidator(refuse_made_by_pipeline)]
    logger: LoggerOptions
    structure: Schedule
    seed: Seed
    checkpoint: ResumedCheckpoint | None
    start: Text | None
    overwrite: bool
    checkpoint_every: Count | None
    monitor: Annotated[str, one_of(*EPOCH_METRICS)] | None
    patience: ZeroOrMore | None
    head_patience: Count | Literal["auto"] | None
    baseline: bool
    baseline_limit: ZeroOrMore
    export: bool
    runtime: RuntimeOptions

    @model_validator(mode="after")
    def check_epochs(self) -> TrainConfig:
        if self.patience is not None and self.monitor is None:
            raise InputError(f"patience={self.patience}", "has no metric to wait for", "set monitor=loss, for example")
        self.check_changes()
        return self

    def recipe(self) -> dict[str, Any]:
        """Return the settings that train such a model on other data: no paths, no callbacks, nothing of the machine."""
        return recipe_of({**self.model_dump(), "runtime": {**self.runtime.model_dump(), "threads": None}})

    def check_changes(self) -> None:
        """Raise InputError for a structure change after the last epoch, if the number of epochs is known."""
        limit = self.trainer["max_epochs"]
        for key, change in read_schedule(self.structure):
            if isinstance(limit, int) and 0 <= limit < change.epoch:
                problem = f"is beyond trainer.max_epochs={limit}"
                raise InputError(f"{key}.epoch={change.epoch}", problem, "raise that, or remove the change")
