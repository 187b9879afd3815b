"""Import what commands import, and export a first model, which makes PyTorch import its exporter and fill caches."""

import io

import matplotlib.figure  # noqa: F401
import torch
import tqdm
import wandb  # noqa: F401
from support.torchlib_registry import share_registry

import seqclf.bundle.options
import seqclf.config.command
import seqclf.data.prepare
import seqclf.evaluate_run
import seqclf.export_bundle
import seqclf.models.classifier
import seqclf.pipeline
import seqclf.survey.survey
import seqclf.training.check_targets
import seqclf.training.losses  # noqa: F401

share_registry()
tqdm.tqdm.monitor_interval = 0  # no thread of a progress bar, which a fork would lose
torch.onnx.export(torch.nn.Linear(1, 1).eval(), (torch.ones(1, 1),), io.BytesIO(), dynamo=True, verbose=False)
