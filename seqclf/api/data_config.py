"""Config of a training whose data is given in Python: tables or paths, a label, and overrides."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from seqclf.config.composition import Composition, compose_config
from seqclf.config.hydra_command import check_config, user_error
from seqclf.config.override_checks import TypedArguments
from seqclf.config.targets import Config
from seqclf.config.user_keys import keys_written_in
from seqclf.data.options import DataOptions
from seqclf.data.reading.tables import column_names, is_table, to_arrow
from seqclf.data.storage.cache import store_table
from seqclf.errors import InputError
from seqclf.training.options import TrainConfig

COMMAND = "train"
OPTIONS = "seqclf.training.options.TrainConfig"


@dataclass(frozen=True)
class TrainingSetup:
    """A checked config, and what the command line would know besides it.

    `run_folder`: as `hydra.run.dir` names it. `written`: keys that the user wrote. `arguments`: stored tables and the
    arguments that they were given as.
    """

    config: TrainConfig
    run_folder: Path
    written: set[str]
    arguments: dict[Path, str]

    @contextmanager
    def named_arguments(self) -> Iterator[None]:
        """Name the argument, and not its file in the cache, in an InputError that is raised inside."""
        try:
            yield
        except InputError as error:
            raise InputError(*map(self._with_arguments, (error.where, error.problem, error.remedy))) from None

    def _with_arguments(self, part: str | None) -> str | None:
        for path, argument in self.arguments.items():
            part = part and part.replace(f"data.{argument}={path}", argument).replace(str(path), argument)
        return part


def training_setup(sources: Mapping[str, Any], label: Any, overrides: Sequence[str]) -> TrainingSetup:
    """Compose and check the config of a training.

    `sources`: a table, a path or None by argument: `data`, `validation` and `test`. `overrides`: as on the command
    line. Raises InputError.
    """
    composition, plain = _composed(sources, label, overrides)
    data = plain["data"]
    data["label"] = data["label"] if label is None else str(label)
    for argument, source in sources.items():
        if source is not None:
            data[_key(argument)] = argument if is_table(source) else _path(source, argument)
    # Before a table is written: a slip in the config costs no time.
    config = check_config(COMMAND, OPTIONS, plain, composition.overrides, composition.choices.keys())
    assert isinstance(config, TrainConfig)
    stored = _stored(sources, config.data)
    paths = {_key(argument): str(path) for path, argument in stored}
    config = config.model_copy(update={"data": config.data.model_copy(update=paths)})
    return TrainingSetup(config, composition.run_folder, keys_written_in(composition), dict(reversed(stored)))


def _stored(sources: Mapping[str, Any], data: DataOptions) -> list[tuple[Path, str]]:
    """Write the tables among the sources to the cache. Returns the path and the argument of each."""
    cache = Path(data.cache_dir).expanduser()
    stored = []
    for argument, source in sources.items():
        if source is not None and is_table(source):
            levels = column_names(source) if data.query is not None else _named_columns(data)
            stored.append((store_table(to_arrow(source, argument, levels), cache, argument), argument))
    return stored


def _key(argument: str) -> str:
    """Return the key of data.* that an argument sets."""
    return "train" if argument == "data" else argument


def load_config(overrides: Sequence[str] = ()) -> Config:
    """Return the settings of a training as plain values, with the defaults of conf/.

    `overrides`: as on the command line. Raises InputError for one that is wrong.

    >>> load_config(["model=gru", "model.hidden_size=32"])["model"]["cell"]
    'gru'
    """
    return _composed({}, None, overrides)[1]


def _composed(sources: Mapping[str, Any], label: Any, overrides: Sequence[str]) -> tuple[Composition, Config]:
    if isinstance(overrides, str) or not all(isinstance(text, str) for text in overrides):
        raise InputError(f"overrides={overrides!r}", 'must be a list of texts, such as ["model=gru", "seed=1"]')
    for text in overrides:
        if text.startswith("-"):
            raise InputError(
                f"overrides: {text}", "is an option of the command line", "for several runs, call in a loop"
            )
    given = {_key(name): name for name, source in sources.items() if source is not None}
    if label is not None:
        given["label"] = "label"
    for text in overrides:
        key = text.lstrip("+").partition("=")[0]
        if key.startswith("data.") and key.removeprefix("data.") in given:
            argument = given[key.removeprefix("data.")]
            raise InputError(f"overrides: {text}", f"is what the argument {argument} sets", "remove one of the two")
    group = [] if not sources or any(text.startswith("data=") for text in overrides) else ["data=files"]
    typed = TypedArguments(COMMAND, [*group, *overrides], OPTIONS)
    try:
        typed.check()
        composition = compose_config(COMMAND, typed.for_hydra())
        return composition, composition.plain()
    except (HydraException, OmegaConfBaseException) as error:
        raise user_error(error, typed) from None


def _named_columns(data: DataOptions) -> set[str]:
    """Columns that the options name. Levels of a pandas index that they name become columns."""
    columns = (data.label, data.id, data.group, data.split.column)
    names = {*columns, *data.group_by, *data.order_by, *map(str, data.fields or {})}
    return {name for name in names if name is not None}


def _path(source: Any, argument: str) -> str:
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source)
    raise InputError(
        argument,
        f"is of type {type(source).__name__}",
        "give a data frame of pandas or polars, an Arrow table, or a path",
    )
