"""A small task over random sequences, without files."""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import pyarrow as pa
import pytest
import torch
from torch import multiprocessing

from seqclf.batching.datamodule import SequenceDataModule
from seqclf.data.ragged import Ragged
from seqclf.data.storage.store import Split
from seqclf.training.task import SequenceTask

CLASSES = ["calm", "odd", "wild"]
MODEL = {
    "_target_": "seqclf.models.classifier.EncoderClassifier",
    "encoder": {"_target_": "seqclf.models.rnn.recurrent.Recurrent"},
    "cell": "lstm",
    "embedding_size": 6,
    "hidden_size": 8,
    "layers": 1,
    "bidirectional": True,
    "pooling": "max",
    "layout": "auto",
    "dropout": 0.2,
    "token_dropout": 0.1,
    "number_noise": 0.1,
    "members": 1,
}
LOSS = {"_target_": "seqclf.training.losses.CrossEntropy", "class_weights": None, "label_smoothing": 0.0}
HEADS = {
    "_target_": "seqclf.models.auto.heads_classifier.HeadsClassifier",
    "heads": ["recurrent", "kernels", "statistics"],
    "window": 2,
    "dilations": [1],
    "closed_form": True,
    "embedding_size": 6,
    "projection_size": 6,
    "hidden_size": 6,
    "convolution": 3,
    "dropout": 0.2,
    "feature_dropout": 0.2,
    "members": 2,
}
SILENT = {"dropout": 0.0, "token_dropout": 0.0, "number_noise": 0.0}
OPTIMIZER = {
    "_target_": "torch.optim.AdamW",
    "lr": 0.01,
    "weight_decay": 0.1,
    "schedule": {"warmup": 0.1, "decay": "cosine", "floor": 0.0},
}
DATASET = {
    "classes": CLASSES,
    "positive": None,
    "class_counts": [30, 20, 10],
    "rows": {"train": 60, "validation": 31},
    "sequences": {"order": 0.0, "median": 6, "longest": 20},
    "fields": [{"name": "token", "kind": "category", "size": 12}, {"name": "value", "kind": "number", "width": 2}],
}


# Lightning's advice on loader processes, small data and folders of resumed runs, and torch's on Lightning's trees
QUIET = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers",
    "ignore:.*treespec, LeafSpec",
    "ignore:The number of training batches",
    "ignore:Checkpoint directory",
    "ignore:The dirpath has changed",
    "ignore:Be aware that when using `ckpt_path`",
    "ignore:.*no logger configured",
    "ignore:Total length of `list` across ranks is zero",
)


class StopAfter(pl.Callback):
    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        trainer.should_stop = trainer.current_epoch == self.epoch


class SaveAt(pl.callbacks.Checkpoint):
    """Saves a checkpoint at each of `moments`, `(epoch, batch | "last batch" | "end")`."""

    def __init__(self, folder: Path, moments: list[tuple[int, int | str]]) -> None:
        self.folder, self.moments, self.saved = folder, moments, {}

    def on_train_batch_end(
        self, trainer: pl.Trainer, task: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        last = trainer.fit_loop.epoch_loop.batch_progress.is_last_batch
        self.save(trainer, (trainer.current_epoch, "last batch" if last else batch_idx))

    def on_train_epoch_end(self, trainer: pl.Trainer, task: pl.LightningModule) -> None:
        self.save(trainer, (trainer.current_epoch, "end"))

    def save(self, trainer: pl.Trainer, moment: tuple[int, int | str]) -> None:
        if moment in self.moments:
            self.saved[moment] = self.folder / f"{moment}.ckpt"
            trainer.save_checkpoint(self.saved[moment])


@pytest.fixture
def task() -> Callable[..., SequenceTask]:
    """`task(monitor="loss", model={"layout": "packed"}, …)` returns a task with the settings above for the rest."""

    def make(monitor: str | None = "recall", seed: int = 0, **parts: Any) -> SequenceTask:
        torch.manual_seed(seed)
        defaults = {"dataset": DATASET, "model": MODEL, "loss": LOSS, "optimizer": OPTIMIZER}
        settings = {name: {**default, **parts.get(name, {})} for name, default in defaults.items()}
        if "heads" in parts.get("model", {}):
            settings["model"] = parts["model"]
        return SequenceTask(**settings, monitor=monitor, seed=seed, metrics=parts.get("metrics"))

    return make


@pytest.fixture(scope="session")
def splits() -> dict[str, Split]:
    return {name: make_split(rows, seed) for seed, (name, rows) in enumerate((("train", 60), ("validation", 31)))}


@pytest.fixture(scope="session")
def random_split() -> Callable[[int, int], Split]:
    return make_split


@pytest.fixture
def data_module() -> Callable[..., SequenceDataModule]:
    return make_batches


@pytest.fixture
def batches(splits) -> SequenceDataModule:
    return make_batches(splits)


@pytest.fixture
def long_tailed() -> Callable[..., SequenceDataModule]:
    """`long_tailed(max_tokens=…)` returns training batches of very unequal sizes, with classes sorted by length."""
    split = make_split(200, seed=3)
    tokens = np.random.default_rng(3).lognormal(2.0, 1.0, 200).clip(1, 120).astype(int)
    offsets = np.concatenate([[0], np.cumsum(np.sort(tokens))])
    rows = np.arange(offsets[-1]) % len(split.sequences.fields["token"])
    fields = {name: values[rows] for name, values in split.sequences.fields.items()}
    splits = {"train": split._replace(sequences=Ragged(offsets, fields))}
    return lambda **batching: make_batches(splits, **{"max_sequences": 16, "overhead": None, **batching})


BATCHING = {
    "max_tokens": 120,
    "max_sequences": 9,
    "pool_batches": 3,
    "overhead": 2,
    "evaluation_factor": 2,
    "num_workers": 0,
}


def make_batches(splits: dict[str, Split], **batching: Any) -> SequenceDataModule:
    return SequenceDataModule(splits, **{**BATCHING, **batching}, seed=0)


def make_split(rows: int, seed: int) -> Split:
    generator = np.random.default_rng(seed)
    lengths, labels = generator.integers(1, 20, rows), np.sort(generator.integers(0, 3, rows))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    token_labels = np.repeat(labels, lengths)
    fields = {
        "token": (token_labels * 3 + generator.integers(0, 5, offsets[-1])).astype(np.int32),
        "value": (token_labels[:, None] + generator.standard_normal((offsets[-1], 2))).astype(np.float32),
    }
    return Split(Ragged(offsets, fields), labels, pa.array([str(row) for row in range(rows)]), np.arange(rows))


def start_rank(rank: int, port: int, world_size: int, run: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    variables |= {"GROUP_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "test"}
    os.environ.update({name: str(value) for name, value in variables.items()})
    run(rank, *arguments)


@pytest.fixture
def on_ranks() -> Callable[..., None]:
    """`on_ranks(2, run, …)` calls `run(rank, …)` in two processes with the variables of torchrun."""

    def start(world_size: int, run: Callable[..., None], *arguments: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        # Forks, because new processes would spend seconds on imports.
        arguments = (port, world_size, run, arguments)
        multiprocessing.start_processes(start_rank, arguments, nprocs=world_size, start_method="fork")

    return start


@pytest.fixture
def with_model(task) -> Callable[..., SequenceTask]:
    """`with_model({"_target_": …}, loss={…})`: a task with this network, and the settings above for the rest."""

    def make(model: dict[str, Any], **parts: Any) -> SequenceTask:
        names = ("dataset", "loss", "optimizer", "monitor", "seed")
        return SequenceTask(model=model, **{**{name: task().hparams[name] for name in names}, **parts})

    return make


@pytest.fixture
def with_encoder(task, with_model) -> Callable[..., SequenceTask]:
    """`with_encoder("package.Encoder", members=2)`: a task with this encoder in the usual network."""
    of_lstm = ("cell", "layers", "residual_layers", "bidirectional", "layout")

    def make(target: str, members: int = 1) -> SequenceTask:
        settings = {name: value for name, value in task().hparams["model"].items() if name not in of_lstm}
        return with_model({**settings, "members": members, "encoder": {"_target_": target}})

    return make


@pytest.fixture
def fit(tmp_path, splits) -> Callable[..., pl.Trainer]:
    """`fit(task, callbacks=[…], batching={…}, max_epochs=2)` trains and returns the trainer."""
    usual_splits = splits

    def run(
        module: SequenceTask, checkpoint: Any = None, batching: Any = None, splits: Any = None, **settings: Any
    ) -> pl.Trainer:
        trainer = pl.Trainer(
            default_root_dir=tmp_path,
            accelerator="cpu",
            enable_progress_bar=False,
            enable_model_summary=False,
            **{
                "logger": False,
                "enable_checkpointing": bool(settings.get("callbacks")),
                "max_epochs": 2,
                "num_sanity_val_steps": 0,
                **settings,
            },
        )
        trainer.fit(
            module,
            datamodule=make_batches(splits or usual_splits, **(batching or {})),
            ckpt_path=checkpoint,
            weights_only=True,
        )
        return trainer

    return run
