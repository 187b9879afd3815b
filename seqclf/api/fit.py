"""Functions of the Python API: `fit` (train), `load_data` (prepare data) and `load_config` (compose a config)."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seqclf.api.run import Run
from seqclf.config.build import Config
from seqclf.config.hydra_config import Composition, compose_config, hydra_error
from seqclf.config.override_checks import HydraArguments
from seqclf.data.reading.tables import column_names, is_table, to_arrow
from seqclf.data.storage.cache import store_table
from seqclf.errors import InputError
from seqclf.settings.base import parse_options
from seqclf.settings.data_settings import DataOptions
from seqclf.settings.train_settings import TrainConfig
from seqclf.system import signals
from seqclf.system.run_folder import remove_empty_folder

if TYPE_CHECKING:
    from seqclf.data.storage.dataset import Dataset


@dataclass(frozen=True)
class TrainingSetup:
    """The validated config of a training, and values that the train command would read from its command line.

    `run_folder`: value of `hydra.run.dir`. `names_label`: True if the argument `label` names the label column.
    `arguments`: dict path of a cached table → name of its argument (`data`, `validation` or `test`).
    """

    config: TrainConfig
    run_folder: Path
    names_label: bool
    arguments: dict[Path, str]

    @contextmanager
    def named_arguments(self) -> Iterator[None]:
        """In an InputError that the block raises, replace the path of a cached table by the argument's name."""
        try:
            yield
        except InputError as error:
            raise InputError(*map(self._with_arguments, (error.where, error.problem, error.remedy))) from None

    def _with_arguments(self, part: str | None) -> str | None:
        for path, argument in self.arguments.items():
            part = part and part.replace(f"data.{argument}={path}", argument).replace(str(path), argument)
        if part and self.names_label:
            part = part.replace(f"data.label={self.config.data.label}", f"label='{self.config.data.label}'")
        return part


def training_setup(sources: Mapping[str, Any], label: Any, overrides: Sequence[str]) -> TrainingSetup:
    """Compose and validate the config of a training. Raises InputError for a wrong setting.

    `sources`: dict argument name (`data`, `validation` or `test`) → table, path or None. `label`: None if the overrides
    set it. `overrides`: settings, written as on the command line.
    """
    composition, plain = _composed(sources, label, overrides)
    data = plain["data"]
    data["label"] = data["label"] if label is None else str(label)
    for argument, source in sources.items():
        if source is not None:
            data[_key(argument)] = argument if is_table(source) else _path(source, argument)
    # The config is validated before tables are written to the cache, so that a wrong setting is reported at once.
    config = parse_options(TrainConfig, plain)
    stored = _stored(sources, config.data)
    paths = {_key(argument): str(path) for path, argument in stored}
    config = config.model_copy(update={"data": config.data.model_copy(update=paths)})
    return TrainingSetup(config, composition.run_folder, label is not None, dict(reversed(stored)))


def _stored(sources: Mapping[str, Any], data: DataOptions) -> list[tuple[Path, str]]:
    """Write each table to the cache. Return pairs (path in the cache, argument name)."""
    cache = Path(data.cache_dir).expanduser()
    stored = []
    for argument, source in sources.items():
        if source is not None and is_table(source):
            levels = column_names(source) if data.query is not None else _named_columns(data)
            stored.append((store_table(to_arrow(source, argument, levels), cache, argument), argument))
    return stored


def _key(argument: str) -> str:
    """Return the last part of the config key that an argument sets, such as `train` for `data.train`."""
    return "train" if argument == "data" else argument


def load_config(overrides: Sequence[str] = ()) -> Config:
    """Return the config of a training as a dict. A key without an override has its default in conf/.

    `overrides`: settings, written as on the command line. Raises InputError for a wrong setting.

    >>> model = load_config(["model=gru", "model.hidden_size=32"])["model"]
    >>> model["cell"]
    'gru'
    """
    return _composed({}, None, overrides)[1]


def _composed(sources: Mapping[str, Any], label: Any, overrides: Sequence[str]) -> tuple[Composition, Config]:
    check_overrides(overrides)
    given = {_key(name): name for name, source in sources.items() if source is not None}
    if label is not None:
        given["label"] = "label"
    for text in overrides:
        if text.startswith("-"):
            problem = "is an option of the command line"
            raise InputError(f"overrides: {text}", problem, "for several runs, call in a loop")
        key = text.lstrip("+").partition("=")[0]
        if key.startswith("data.") and key.removeprefix("data.") in given:
            argument = given[key.removeprefix("data.")]
            raise InputError(f"overrides: {text}", f"is what the argument {argument} sets", "remove one of the two")
    group = [] if not sources or any(text.startswith("data=") for text in overrides) else ["data=files"]
    typed = HydraArguments("train", [*group, *overrides])
    try:
        typed.check()
        composition = compose_config("train", typed.for_hydra())
        return composition, composition.plain()
    except (HydraException, OmegaConfBaseException) as error:
        raise hydra_error(error, typed) from None


def check_overrides(overrides: Any) -> None:
    """Raise InputError unless overrides are a list of texts."""
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise InputError(f"overrides={overrides!r}", 'must be a list of texts, such as ["model=gru", "seed=1"]')


def _named_columns(data: DataOptions) -> set[str]:
    """A level of a pandas index becomes a column if its name occurs in the data options."""
    columns = (data.label, data.id, data.group, data.split.column, data.weight, data.cost)
    names = {*columns, *data.group_by, *data.order_by, *map(str, data.fields or {})}
    return {name for name in names if name is not None}


def _path(source: Any, argument: str) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    remedy = "give a data frame of pandas or polars, an Arrow table, or a path"
    raise InputError(argument, f"is of type {type(source).__name__}", remedy)


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
    """Train a classifier, like the command `python -m seqclf.train`. Return the finished run.

    ```python
    run = seqclf.fit(frame, label="fraud", overrides=["model=gru", "trainer.max_epochs=5"])
    run.metrics["validation"]["recall"]
    run.predict(new_frame)
    ```

    `data`, `validation`, `test`: a pandas or polars data frame, an Arrow table, or a value of the config key
    `data.train` (a path, a glob, a URL or a query). Tables are written to the cache. The name of the cache file is the
    hash of the table's content. `label`: name of the label column, None if the overrides set the name. `overrides`: all
    other settings, written as on the command line. `folder`: the run folder. By default, the config key `hydra.run.dir`
    sets the run folder.

    Training uses one device, unless `trainer.devices` or `trainer.strategy` is set. With torchrun, every rank returns
    the run of rank 0. Other ranks may return before rank 0 has finished the evaluation. At the end, the function
    restores the seeds, threads, warnings and signal handlers of the process. If several threads call the function, the
    trainings run one after the other. Raises InputError if the train command would exit with an error, and
    KeyboardInterrupt if a signal ends the training.
    """
    setup = training_setup({"data": data, "validation": validation, "test": test}, label, overrides)
    run = setup.run_folder if folder is None else Path(folder).expanduser().absolute()
    config = _one_device(setup.config)
    from seqclf.runs.ranks import shared_run_folder
    from seqclf.runs.run_training import run_training

    with _TRAINING, setup.named_arguments(), signals.handled():
        try:
            run = shared_run_folder(run)
            run_training(config, run)
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
    """Read, check, split and encode data like `fit`, for a custom training loop. See `fit` for the arguments.

    >>> import pyarrow as pa
    >>> table = pa.table({"events": [[1, 2], [2, 2, 3]] * 10, "label": ["a", "b"] * 10})
    >>> dataset = load_data(table, label="label")
    >>> dataset.classes, {name: len(split.sequences) for name, split in dataset.splits.items()}
    (['a', 'b'], {'train': 16, 'validation': 4})
    """
    from seqclf.data.prepare_data import prepare

    setup = training_setup({"data": data, "validation": validation, "test": test}, label, overrides)
    with setup.named_arguments():
        return prepare(setup.config.data)


def _one_device(config: TrainConfig) -> TrainConfig:
    """Set `trainer.devices=1`, unless the user has: Lightning would start the user's program again for each device."""
    usual = {"devices": "auto", "strategy": "auto", "num_nodes": 1}
    if any(config.trainer.get(name, value) != value for name, value in usual.items()):
        return config
    return config.model_copy(update={"trainer": {**config.trainer, "devices": 1}})
