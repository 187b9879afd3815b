"""Choice of the logger by its name in the config."""

from __future__ import annotations

from pathlib import Path

from seqclf.config.instantiate import Config, locate
from seqclf.errors import InputError
from seqclf.training.loggers.run_logger import RunLogger, warn_without

PACKAGE = "seqclf.training.loggers"
# By name. A module is imported when its logger is chosen. csv and none have none: every run writes metrics.csv.
LOGGERS = {
    "wandb": f"{PACKAGE}.wandb_logger.WandbRun",
    "mlflow": f"{PACKAGE}.mlflow_logger.MlflowRun",
    "tensorboard": f"{PACKAGE}.tensorboard_logger.TensorBoardRun",
}


def open_logger(settings: Config, run: Path, config: Config) -> RunLogger | None:
    """Return the logger of `settings` (conf/logger), or None if there is none or it cannot start.

    `run`: the run folder. `config`: recorded with the run. Raises InputError if its package is not installed.
    """
    name = settings["name"]
    if name not in LOGGERS:
        return None
    kind: type[RunLogger] = locate(LOGGERS[name])
    try:
        return kind.open(settings, run, config)
    except ImportError:
        raise InputError(f"logger={name}", "not installed", f'pip install "seqclf[{name}]"') from None
    except Exception as error:
        warn_without(kind.service, error)
        return None
