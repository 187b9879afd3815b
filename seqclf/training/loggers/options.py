"""The options of the loggers: conf/logger/*.yaml explain each key and hold its default."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field

from seqclf.config.options import NonNegative, Options, Text


def split_tags(value: Any) -> Any:
    """Turn `a,b`, which WANDB_TAGS holds, into a list."""
    return [tag for part in value.split(",") if (tag := part.strip())] if isinstance(value, str) else value


Timeout = Annotated[float, Field(ge=1)]  # seconds


class PlainLoggerOptions(Options):
    """The loggers without settings."""

    name: Literal["tensorboard", "csv", "none"]


class WandbOptions(Options):
    """conf/logger/wandb.yaml."""

    name: Literal["wandb"]
    project: Text
    entity: Text | None
    run_name: Text | None
    group: Text | None
    job_type: Text | None
    tags: Annotated[list[Text] | None, BeforeValidator(split_tags)]
    notes: Text | None
    mode: Literal["auto", "online", "offline", "disabled"]
    log_bundle: bool
    timeout: Timeout
    finish_timeout: NonNegative  # seconds


class MlflowOptions(Options):
    """conf/logger/mlflow.yaml."""

    name: Literal["mlflow"]
    tracking_uri: Text | None
    experiment_name: Text
    run_name: Text | None
    group: Text | None
    tags: dict[str, Text] | None
    log_bundle: bool
    timeout: Timeout


LoggerOptions = Annotated[WandbOptions | MlflowOptions | PlainLoggerOptions, Discriminator("name")]
