"""Weights & Biases. A server that hangs, refuses or is away delays a run by seconds, and it is recorded offline."""

from __future__ import annotations

import netrc
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

from seqclf.config.targets import Config
from seqclf.errors import first_line
from seqclf.training.loggers.run_logger import FinishedRun, RunLogger, answers, shown_names
from seqclf.training.loggers.wandb_content import log_artifacts, log_result

BY_EPOCH = ("train/*", "validation/*", "system/*")
BY_STEP = ("train/step_loss", "train/gradient_norm", "lr")


class _Curves(WandbLogger):
    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        super().log_metrics(shown_names(metrics), step)


class WandbRun(RunLogger):
    """A run of W&B, online or offline.

    Every score has one name. Its history is the curve by epoch, and its summary the score of the exported model.
    """

    service = "Weights & Biases"

    def __init__(self, run: Any, settings: Config):
        self.run = run  # of `wandb.init`
        self.settings = settings
        self.curves = _Curves(experiment=run)
        run.define_metric("epoch", hidden=True)
        for names, axis in ((BY_EPOCH, "epoch"), (BY_STEP, "trainer/global_step")):
            for name in names:
                run.define_metric(name, step_metric=axis)

    @classmethod
    def open(cls, settings: Config, run: Path, config: Config) -> WandbRun:
        os.environ.setdefault("WANDB_SILENT", "true")
        mode = settings["mode"] if settings["mode"] != "auto" else os.environ.get("WANDB_MODE") or "online"
        if mode == "online" and not _has_key():
            mode = "offline"  # online, W&B would prompt for a key
        deadline = time.monotonic() + settings["timeout"]
        if mode == "online" and not answers(_server(), settings["timeout"] / 2):
            mode = _go_offline(f"{_server()} does not answer", run)
        try:
            return cls(_init(settings, run, config, mode, max(1.0, deadline - time.monotonic())), settings)
        except Exception as error:
            if mode != "online":
                raise
            mode = _go_offline(first_line(error), run)
            return cls(_init(settings, run, config, mode, settings["timeout"]), settings)

    def _log_result(self, finished: FinishedRun) -> None:
        log_result(self.run, finished)
        online = not self.run.offline and answers(_server(), self.settings["timeout"] / 2)
        log_artifacts(self.run, finished, self.settings["log_bundle"], online)

    def _close(self, failed: bool) -> None:
        self.run.finish(exit_code=int(failed))  # so that the next run of a multirun starts anew


def _init(settings: Config, run: Path, config: Config, mode: str, seconds: float) -> Any:
    import wandb

    return wandb.init(
        project=settings["project"] or None,
        entity=settings["entity"] or None,
        name=settings["run_name"] or None,
        group=settings["group"] or None,
        tags=settings["tags"],
        job_type=settings["job_type"],
        notes=settings["notes"],
        # A resumed run continues its curves.
        id=_earlier_id(config.get("checkpoint")),
        resume="allow",
        dir=str(run),
        mode=mode,  # type: ignore[arg-type]
        config=config,
        settings=wandb.Settings(
            console="off", silent=True, init_timeout=seconds, finish_timeout=settings["finish_timeout"]
        ),
        # The runs of a multirun share a process.
        reinit="finish_previous",
    )


def _go_offline(reason: str, run: Path) -> str:
    remedy = f"`wandb sync {run / 'wandb'}/offline-run-*` uploads it"
    print(f"{WandbRun.service}: {reason}; the run is recorded offline, {remedy}", file=sys.stderr)
    return "offline"


def _server() -> str:
    """Return the address of the server, from the environment or W&B's settings files."""
    from wandb.sdk import wandb_setup

    return str(wandb_setup.singleton().settings.base_url)


def _earlier_id(checkpoint: str | None) -> str | None:
    """Return the id of the W&B run that wrote a checkpoint (RUN/checkpoints/last.ckpt), so that it is continued."""
    if checkpoint is None:
        return None
    files = Path(checkpoint).absolute().parent.parent.glob("wandb/*run-*/run-*.wandb")
    latest = max(files, key=lambda path: path.stat().st_mtime, default=None)
    return None if latest is None else latest.stem.removeprefix("run-")


def _has_key() -> bool:
    """Return True if there is an API key, in the environment or in ~/.netrc."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai").split("://")[-1].split("/")[0]
    try:
        return netrc.netrc().authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False
