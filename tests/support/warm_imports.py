"""Import what commands import, and export a first model, which makes PyTorch import its exporter and fill caches."""

import io

import matplotlib.figure  # noqa: F401
import torch
import tqdm
import wandb  # noqa: F401
from support.config_files import share_config_files
from support.torchlib_registry import share_registry

import seqclf.config.hydra_config
import seqclf.data.prepare_data
import seqclf.models.classifier
import seqclf.runs.bundle_export
import seqclf.runs.run_training
import seqclf.runs.steps
import seqclf.survey.survey
import seqclf.training.check_targets
import seqclf.training.losses  # noqa: F401
from seqclf.config.command_keys import SETTINGS, Command
from seqclf.config.hydra_config import compose_config

share_registry()
share_config_files()
for command in SETTINGS:  # Hydra looks for its plugins once, and config files are read once
    Command(command).defaults()
compose_config("train")
tqdm.tqdm.monitor_interval = 0  # no thread of a progress bar, which a fork would lose
torch.onnx.export(torch.nn.Linear(1, 1).eval(), (torch.ones(1, 1),), io.BytesIO(), dynamo=True, verbose=False)
