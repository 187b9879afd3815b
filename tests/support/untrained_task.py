"""Data options with the defaults of conf/, and a task with random weights, without composing a config."""

from pathlib import Path
from typing import Any

import torch
import yaml

from seqclf.config.documentation import CONF
from seqclf.data.options import DataOptions
from seqclf.training.module import SequenceTask


def data_options(cache: Path, **overrides: Any) -> DataOptions:
    defaults = yaml.safe_load((CONF / "data" / "files.yaml").read_text(encoding="utf-8"))
    return DataOptions.build(**{**defaults, "cache_dir": str(cache), "label": "label", **overrides})


def make_task(description: dict[str, Any], **changes: Any) -> SequenceTask:
    torch.manual_seed(0)
    model = yaml.safe_load((CONF / "model" / "lstm.yaml").read_text(encoding="utf-8"))
    loss = yaml.safe_load((CONF / "loss" / "cross_entropy.yaml").read_text(encoding="utf-8"))
    optimizer = yaml.safe_load((CONF / "optimizer" / "adamw.yaml").read_text(encoding="utf-8"))
    sizes = {"hidden_size": 8, "embedding_size": 6}
    return SequenceTask(description, {**model, **sizes, **changes}, loss, optimizer, "recall", 0).eval()
