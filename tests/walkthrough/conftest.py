"""Untrained models over small datasets, and rows inspected by them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import yaml
from support.untrained_task import data_options

from seqclf.config.documentation import CONF
from seqclf.data.prepare import prepare
from seqclf.data.storage.dataset import Dataset
from seqclf.documents.blocks import Document
from seqclf.evaluation.decisions.decision import Decision
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.inspect_rows import inspect_rows
from seqclf.walkthrough.shown_rows import RowReader, ShownRows
from seqclf.walkthrough.stages import Stage, walkthrough_document

FIELDS = {
    "words": {"x": "category"},
    "mixed": {"x": "category", "y": "number"},
    "numbers": {"y": "number"},
    "trees": {"x": "tree"},
    "static": {"x": "category", "y": "number"},
}
STATIC = {"static": {"ward": "category", "age": "number"}}  # by name, as FIELDS
SMALL = ["model.hidden_size=8", "model.embedding_size=6"]


class Inspected(NamedTuple):
    """A task, the rows it was shown, and their stages."""

    task: SequenceTask
    rows: ShownRows
    stages: list[Stage]

    @property
    def titles(self) -> list[str]:
        return [stage.title for stage in self.stages]

    @property
    def document(self) -> Document:
        return walkthrough_document(self.stages, ["row 9: is empty"], {"model": "Classifier"})

    @property
    def modules(self) -> dict[str, Any]:
        """By the path of a module, its stage."""
        return {stage.title.partition(" (")[0]: stage for stage in self.stages if stage.title[0].islower()}

    def stage(self, title: str) -> Any:
        """Return the stage whose title begins so."""
        return next(stage for stage in self.stages if stage.title.startswith(title))


@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def group(name: str, choice: str) -> dict[str, Any]:
    """The settings of a choice of conf/, which Hydra takes half a second to compose."""
    settings = yaml.safe_load((CONF / name / f"{choice}.yaml").read_text(encoding="utf-8"))
    parents = [parent for parent in settings.pop("defaults", []) if parent != "_self_"]
    return {**(group(name, parents[0]) if parents else {}), **settings}


def model_settings(*overrides: str) -> dict[str, Any]:
    """The settings of `model=gru`, `model.layers=2` and so on."""
    typed = dict(text.split("=") for text in [*SMALL, *overrides])
    settings = group("model", typed.pop("model"))
    return settings | {key.removeprefix("model."): yaml.safe_load(value) for key, value in typed.items()}


def tree_text(generator: np.random.Generator, depth: int = 0) -> str:
    if depth == 4 or (depth and generator.random() < 0.4):
        return f"({generator.integers(2)} {generator.choice(list('abc'))})"
    children = " ".join(tree_text(generator, depth + 1) for _ in range(generator.integers(1, 4)))
    return f"({generator.integers(2)} {children})"


@pytest.fixture(scope="session")
def datasets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Dataset]:
    """By name of `FIELDS`, with 60 rows of 1 to 9 tokens in two classes."""
    generator = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("inspected")
    lengths = generator.integers(1, 10, 60)
    columns: dict[str, Any] = {"label": [f"k{row % 2}" for row in range(60)], "id": [f"r{row}" for row in range(60)]}
    columns |= {"ward": [f"w{row % 3}" for row in range(60)], "age": [row / 2 for row in range(60)]}
    columns["x"] = [generator.integers(0, 7, length).tolist() for length in lengths]
    columns["y"] = [generator.normal(size=length).tolist() for length in lengths]
    pq.write_table(pa.table(columns), folder / "lists.parquet")
    pq.write_table(pa.table({**columns, "x": [tree_text(generator) for _ in lengths]}), folder / "trees.parquet")
    return {
        name: prepare(
            data_options(
                folder / "cache",
                train=str(folder / f"{'trees' if name == 'trees' else 'lists'}.parquet"),
                fields=fields,
                static=STATIC.get(name),
                id="id",
            )
        )
        for name, fields in FIELDS.items()
    }


@pytest.fixture(scope="session")
def inspected(datasets: dict[str, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Inspected]:
    """`inspected("words", "model=gru", …)`: four validation rows, or `values`, through an untrained model."""

    def inspect(name: str, *overrides: str, values: list[Any] | None = None) -> Inspected:
        dataset, model = datasets[name], model_settings(*overrides)
        torch.manual_seed(0)
        task = SequenceTask(
            dataset.description(), model, group("loss", "cross_entropy"), group("optimizer", "adamw"), "recall", 0
        )
        reader = RowReader(task.hparams["dataset"])
        if values is None:
            shown = reader.of_split(dataset.splits["validation"], dataset.classes, 4)
        else:
            path = tmp_path_factory.mktemp("values") / "rows.parquet"
            pq.write_table(pa.Table.from_pylist(values), path)
            shown = reader.of_file(str(path), 50)
        return Inspected(task, shown, inspect_rows(task, shown, Decision()))

    return inspect


@pytest.fixture(scope="session")
def lists_file(datasets: dict[str, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six rows, of which the third has no token and the fourth a value that training did not see."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    x = [[1, 2], [3], [], [1, 99], [4, 5, 6], [0]]
    pq.write_table(pa.table({"x": x, "label": ["k0", "k1", "k0", "k1", "k0", "k1"], "id": list("abcdef")}), path)
    return path
