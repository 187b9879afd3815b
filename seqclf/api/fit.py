"""Training from Python: `fit` and `load_data`."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqclf.api.data_config import training_setup
from seqclf.api.run import Run
from seqclf.errors import InputError
from seqclf.system import signals
from seqclf.system.run_folder import remove_empty_folder

if TYPE_CHECKING:
    from seqclf.data.storage.dataset import Dataset
    from seqclf.training.options import TrainConfig

_TRAINING = threading.RLock()


def fit(
    data: Any,
    *,
    label: str | None,
    validation: Any = None,
    test: Any = None,
    overrides: Sequence[str] = (),
    folder: str | PathLike[str] | None = None,
) -> Run:
    """Train a classifier as `python -m seqclf.train` does, and return its run.

    ```python
    run = seqclf.fit(frame, label="fraud", overrides=["model=gru", "trainer.max_epochs=5"])
    run.metrics["validation"]["recall"]
    run.predict(new_frame)
    ```

    `data`, `validation`, `test`: a data frame of pandas or polars, an Arrow table, or what `data.train` takes (a path,
    a glob, a URL, a query). Tables are written to the cache, under the hash of their content. `label`: column of the
    label. None leaves it to the overrides. `overrides`: everything else, as on the command line. `folder`: the run
    folder, by default what `hydra.run.dir` is.

    It trains on one device, unless `trainer.devices` or `trainer.strategy` is set. Under torchrun every rank gets the
    run of rank 0, which may still be evaluating it. Seeds, threads, warnings and signal
    handlers of the process are as before at the end. Calls from several threads train one after another. Raises
    InputError for everything that the command would exit with, and KeyboardInterrupt if a signal ends the training.
    """
    setup = training_setup({"data": data, "validation": validation, "test": test}, label, overrides)
    run = setup.run_folder if folder is None else Path(folder).expanduser().absolute()
    config = _one_device(setup.config, setup.written)
    from seqclf.runs.ranks import shared_run_folder
    from seqclf.runs.steps import run_training

    with _TRAINING, setup.named_arguments(), signals.handled():
        try:
            run = shared_run_folder(run)
            run_training(config, run, setup.written)
        except (InputError, signals.Terminated):
            remove_empty_folder(run)
            raise
    return Run(run)


def load_data(
    data: Any,
    *,
    label: str | None,
    validation: Any = None,
    test: Any = None,
    overrides: Sequence[str] = (),
) -> Dataset:
    """Read, check, split and encode data as `fit` does, for a training loop of your own. See there for the arguments.

    >>> import pyarrow as pa
    >>> table = pa.table({"events": [[1, 2], [2, 2, 3]] * 10, "label": ["a", "b"] * 10})
    >>> dataset = load_data(table, label="label")
    >>> dataset.classes, {name: len(split.sequences) for name, split in dataset.splits.items()}
    (['a', 'b'], {'train': 16, 'validation': 4})
    """
    from seqclf.data.prepare import prepare

    setup = training_setup({"data": data, "validation": validation, "test": test}, label, overrides)
    with setup.named_arguments():
        return prepare(setup.config.data)


def _one_device(config: TrainConfig, written: set[str]) -> TrainConfig:
    """Let a training use one device, unless the user chose them: several would run the program again on each."""
    if {"trainer.devices", "trainer.strategy", "trainer.num_nodes"} & written or config.trainer["devices"] != "auto":
        return config
    return config.model_copy(update={"trainer": {**config.trainer, "devices": 1}})
