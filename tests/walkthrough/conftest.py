"""Untrained models over small datasets, rows inspected by them, and a walkthrough of made-up numbers."""

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
from seqclf.evaluation.decision import Decision
from seqclf.training.module import SequenceTask
from seqclf.walkthrough.document import Walkthrough
from seqclf.walkthrough.inspect_rows import Inspection, inspect_rows
from seqclf.walkthrough.shown_rows import RowReader, ShownRows
from seqclf.walkthrough.stages import (
    ROW_NAME,
    ClassScores,
    EncodedRows,
    FieldTokens,
    MemberScores,
    PaddedBatch,
    Part,
    RawRows,
    RowVectors,
    Stage,
    TokenPairs,
    TokenScores,
    TokenVectors,
    TreeLevels,
    active_rows,
    varying_channels,
)

FIELDS = {
    "words": {"x": "category"},
    "mixed": {"x": "category", "y": "number"},
    "numbers": {"y": "number"},
    "trees": {"x": "tree"},
}
SMALL = ["model.hidden_size=8", "model.embedding_size=6"]


class Inspected(NamedTuple):
    """A task, the rows it was shown, and their stages."""

    task: SequenceTask
    rows: ShownRows
    result: Inspection

    def stage(self, title: str) -> Any:
        """Return the stage whose title begins so."""
        return next(stage for stage in self.result.stages if stage.title.startswith(title))


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
                id="id",
            )
        )
        for name, fields in FIELDS.items()
    }


@pytest.fixture(scope="session")
def inspected(datasets: dict[str, Dataset]) -> Callable[..., Inspected]:
    """`inspected("words", "model=gru", …)`: four validation rows through an untrained model with these overrides."""

    def inspect(name: str, *overrides: str, rows: int = 4) -> Inspected:
        dataset, model = datasets[name], model_settings(*overrides)
        torch.manual_seed(0)
        task = SequenceTask(
            dataset.description(), model, group("loss", "cross_entropy"), group("optimizer", "adamw"), "recall", 0
        )
        shown = RowReader(task.hparams["dataset"]).of_split(dataset.splits["validation"], dataset.classes, rows)
        return Inspected(task, shown, inspect_rows(task, shown, Decision()))

    return inspect


@pytest.fixture(scope="session")
def lists_file(datasets: dict[str, Dataset], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six rows, of which the third has no token and the fourth a value that training did not see."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    x = [[1, 2], [3], [], [1, 99], [4, 5, 6], [0]]
    pq.write_table(pa.table({"x": x, "label": ["k0", "k1", "k0", "k1", "k0", "k1"], "id": list("abcdef")}), path)
    return path


EPOCHS = [
    {"epoch": 0, "step": 3, "train/loss": 1.5, "train/accuracy": 0.25, "train/recall": 0.25}
    | {"validation/loss": 1.25, "validation/accuracy": 0.5, "validation/recall": 0.375},
    {"epoch": 1, "step": 6, "train/loss": 0.5, "train/accuracy": 0.75, "train/recall": 0.75}
    | {"validation/loss": 0.25, "validation/accuracy": 1.0, "validation/recall": 0.875},
]
MODEL = {"_target_": "x", "cell": "lstm", "bidirectional": True, "pooling": "max", "members": 1}


def stages_of(lengths, classes, channels=6, words=("<b>&", "", "a", "nothing to do with it")):
    """A stage of every kind for rows of these lengths."""
    generator = np.random.default_rng(0)
    lengths = np.array(lengths)
    rows, longest = len(lengths), int(lengths.max())
    tokens = [
        [words[(row + position) % len(words)] for position in range(length)] for row, length in enumerate(lengths)
    ]
    encoded = [[str(len(token)) for token in row] for row in tokens]
    vectors = generator.normal(size=(rows, longest, channels)).astype(np.float32)
    vectors[np.arange(longest) >= lengths[:, None]] = np.nan  # padding, which nothing reads
    parts = [Part("forward", 0, channels // 2), Part("backward", channels // 2, channels)]
    shown = varying_channels(vectors, lengths, parts)
    scores = np.nan_to_num(np.abs(vectors[..., 0]))
    labels = [str(index) if index else None for index in range(rows)]
    names = [f"class {index}" for index in range(classes)]
    probabilities = generator.dirichlet(np.ones(classes), rows)
    predicted = probabilities.argmax(axis=1)
    raw = [{ROW_NAME: f"id r{row}", "tokens": " ".join(of_row)} for row, of_row in enumerate(tokens)]
    unknown = [np.array([not token for token in row]) for row in tokens]
    fields = [[FieldTokens("tokens", *of)] for of in zip(tokens, encoded, unknown, strict=True)]
    cells = [[*row, *[""] * (longest - len(row))] for row in encoded]
    parents = np.array([[*range(1, length), -1, *[-1] * (longest - length)] for length in lengths])
    depths = np.array([[*range(length - 1, -1, -1), *[longest] * (longest - length)] for length in lengths])
    inputs = [("tokens", "int64", (rows, longest))]
    contents = {
        "Raw rows": RawRows(raw, labels, lengths),
        "Encoded tokens": EncodedRows(fields),
        "Padded batch": PaddedBatch("tokens", cells, lengths, active_rows(lengths), inputs),
        "Vectors": TokenVectors(vectors, lengths, shown, parts, tokens),
        "Fewer vectors": TokenVectors(vectors, lengths, shown, parts, None),
        "Stop": TokenScores(
            "probability to stop", scores, lengths, tokens, lengths - 1, ["halts", *["end"] * (rows - 1)]
        ),
        "Pairs": TokenPairs(np.full((rows, longest, longest), 1 / longest), lengths, tokens),
        "Levels": TreeLevels(parents, depths, lengths, tokens),
        "Pooled": RowVectors(np.nan_to_num(vectors[:, 0]), shown, parts),
        "Members": MemberScores(np.stack([probabilities] * 2), probabilities, names),
        "Logits": ClassScores(np.log(probabilities), names, predicted, labels, False),
        "Labels": ClassScores(probabilities, names, predicted, labels, True),
    }
    return [
        Stage(
            title,
            f"About {title}.",
            content,
            *(((), ()) if isinstance(content, TreeLevels) else ((rows, longest), ("rows", "tokens"))),
            module="module.name",
            note=f"Note on {title}.",
        )
        for title, content in contents.items()
    ]


@pytest.fixture
def epochs():
    """The rows of metrics.csv of two epochs."""
    return EPOCHS


@pytest.fixture
def walkthrough():
    """`walkthrough(lengths=[3, 1, 4], classes=3, …)`: its content."""

    def build(lengths=(3, 1, 4), classes=3, history=(), refused=("row 9: is empty",), model=MODEL, **options):
        return Walkthrough(
            stages=stages_of(lengths, classes, **options),
            refused=list(refused),
            model=model,
            weights=1234,
            checkpoint="RUN/checkpoints/best.ckpt",
            history=list(history),
            best_epoch=1,
            bundle_error=3e-7,
        )

    return build
