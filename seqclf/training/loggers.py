"""Loggers in addition to `metrics.csv`: Weights & Biases or TensorBoard. None of their failures stops a run."""

from __future__ import annotations

import netrc
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger

from seqclf.config.instantiate import Config
from seqclf.errors import InputError
from seqclf.evaluation.metrics import MAIN_METRICS
from seqclf.evaluation.ranking import RANKING_METRICS
from seqclf.training.wandb_summary import RunSummary, flat_scores, log_wandb

MODES = ("auto", "online", "offline", "disabled")


def make_logger(settings: Config, run: Path, config: Config) -> Logger | None:
    """Return the logger of `settings` (conf/logger), or None. `config` is recorded with the run."""
    name = settings["name"]
    if name in ("csv", "none"):
        return None
    if name == "tensorboard":
        try:
            return TensorBoardLogger(run, name="tensorboard", version="")
        except ModuleNotFoundError:
            raise InputError('logger=tensorboard: not installed; pip install "seqclf[tensorboard]"') from None
    if name != "wandb":
        raise InputError(f"logger={name}: must be wandb, tensorboard, csv or none")
    if settings["mode"] not in MODES:
        raise InputError(f"logger.mode={settings['mode']}: must be one of {', '.join(MODES)}")
    return _tolerant(lambda: _wandb(settings, run, config))


def _wandb(settings: Config, run: Path, config: Config) -> WandbLogger:
    os.environ.setdefault("WANDB_SILENT", "true")
    mode = settings["mode"] if settings["mode"] != "auto" else os.environ.get("WANDB_MODE", "online")
    if mode == "online" and not _has_key():
        mode = "offline"  # online, W&B would prompt for a key
    deadline = time.monotonic() + settings["timeout"]
    if mode == "online" and not answers(_server(), settings["timeout"] / 2):
        mode = _go_offline(f"{_server()} does not answer", run)
    try:
        started = _init(settings, run, config, mode, max(1.0, deadline - time.monotonic()))
    except Exception as error:
        if mode != "online":
            raise
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        started = _init(settings, run, config, _go_offline(reason, run), settings["timeout"])
    logger = WandbLogger(experiment=started)
    started.define_metric("epoch", hidden=True)
    for panel in ("train", "validation", "system"):
        started.define_metric(f"{panel}/*", step_metric="epoch")
    for name in ("train/step_loss", "lr"):
        started.define_metric(name, step_metric="trainer/global_step")
    for metric in (*MAIN_METRICS, *RANKING_METRICS):
        summary = "min" if metric == "loss" else "max"
        started.define_metric(f"validation/{metric}", step_metric="epoch", summary=summary)
    return logger


def _init(settings: Config, run: Path, config: Config, mode: str, seconds: float) -> Any:
    import wandb

    return wandb.init(
        project=settings["project"],
        name=settings["run_name"],
        group=settings["group"],
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
    print(f"Weights & Biases: {reason}; the run is recorded offline, {remedy}", file=sys.stderr)
    return "offline"


def _server() -> str:
    """Return the address of the server, from the environment or W&B's settings files."""
    from wandb.sdk import wandb_setup

    return str(wandb_setup.singleton().settings.base_url)


def answers(url: str, seconds: float) -> bool:
    """Return True if a server answers a request in time.

    A thread asks, because a timeout of the request does not cover the name lookup, which may hang as well.
    """
    import requests  # honours proxies and certificates, as W&B does

    answered = threading.Event()

    def ask() -> None:
        with suppress(requests.RequestException):
            if requests.get(url, timeout=seconds, stream=True).status_code < 500:
                answered.set()

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    return answered.is_set()


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


def _tolerant(act: Callable[[], Any]) -> Any:
    try:
        return act()
    except Exception as error:  # logging must never cost a trained model
        warnings.warn(f"Weights & Biases: {error}; the run goes on without it", stacklevel=2)
        return None


def log_verdict(logger: Logger | None, verdict: RunSummary, settings: Config) -> None:
    """Log the final metrics, and to W&B plots, tables and artifacts too."""
    if logger is None:
        return
    if isinstance(logger, WandbLogger):
        online = not logger.experiment.offline and answers(_server(), settings["timeout"] / 2)
        _tolerant(lambda: log_wandb(logger.experiment, verdict, settings["log_bundle"], online))
        return
    logger.log_metrics({f"best/{name}": value for name, value in flat_scores(verdict.evaluation.metrics).items()})
    logger.finalize("success")


def finish(logger: Logger | None) -> None:
    """End the logger's run, so that the next run of a sweep starts a new one."""
    if isinstance(logger, WandbLogger):
        _tolerant(logger.experiment.finish)
