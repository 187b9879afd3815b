"""Data options with the defaults of conf/, a task with random weights, and its bundle, without composing a config."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from seqclf.bundle.runtime import Classifier
from seqclf.config.command_keys import default_settings
from seqclf.data.prepare_data import prepare
from seqclf.runs.bundle_export import write_bundle
from seqclf.settings.data_settings import DataOptions
from seqclf.training.task import SequenceTask


def data_options(cache: Path, **overrides: Any) -> DataOptions:
    """Data options with overrides. Fields that a test declares are all, unless it says `infer`."""
    infer = not overrides.get("fields")
    return DataOptions.build(**{"infer": infer, "cache_dir": str(cache), "label": "label", **overrides})


def make_task(description: dict[str, Any], **changes: Any) -> SequenceTask:
    torch.manual_seed(0)
    model = default_settings("model", "lstm")
    loss = default_settings("loss", "cross_entropy")
    optimizer = default_settings("optimizer", "adamw")
    sizes = {"hidden_size": 8, "embedding_size": 6}
    return SequenceTask(description, {**model, **sizes, **changes}, loss, optimizer, "recall", 0).eval()


def export_table(folder: Path, table: Any, model: dict[str, Any] | None = None, **options: Any) -> Classifier:
    """The classifier of a bundle FOLDER/bundle that was prepared on a table, with random weights.

    `model`: changes of the network. `options`: data options.
    """
    pq.write_table(table if isinstance(table, pa.Table) else pa.table(table), folder / "train.parquet")
    dataset = prepare(data_options(folder / "cache", train=str(folder / "train.parquet"), **options))
    write_bundle(make_task(dataset.description(), **(model or {})), folder / "bundle", {})
    return Classifier(folder / "bundle", device="cpu", threads=1)
