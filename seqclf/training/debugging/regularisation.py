"""A training without regularisation, in which nothing but its learning decides how far the loss falls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from seqclf.batching.datamodule import Batch
from seqclf.config.instantiate import Config

NAMES = ("dropout", "noise", "smoothing")  # arguments that end so take a share or a size, and 0 turns them off
CONSTANT = {"warmup": 0.0, "decay": "none", "floor": 0.0}


def without_regularisation(settings: Mapping[str, Any]) -> Config:
    """Return the settings of a model, a loss or an optimizer with everything turned off that keeps a loss from zero.

    These are dropout, noise and label smoothing by any name that ends so, weight decay, and the schedule of the
    learning rate.

    >>> without_regularisation({"hidden_size": 8, "token_dropout": 0.1, "encoder": {"dropout": 0.5}})
    {'hidden_size': 8, 'token_dropout': 0.0, 'encoder': {'dropout': 0.0}}
    """
    result: Config = {}
    for name, value in settings.items():
        if name == "schedule":
            result[name] = dict(CONSTANT)
        elif isinstance(value, Mapping):
            result[name] = without_regularisation(value)
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and _is_regularisation(name):
            result[name] = 0.0
        else:
            result[name] = value
    return result


def _is_regularisation(name: str) -> bool:
    return name == "weight_decay" or name.endswith(NAMES)


def turn_off_dropout(network: nn.Module) -> None:
    """Set the dropout of PyTorch's modules to 0, for networks whose settings do not name it."""
    for module in network.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(module, (nn.RNNBase, nn.MultiheadAttention)):
            module.dropout = 0.0


def is_random(task: Any, batch: Batch) -> bool:
    """Return True if the logits of a batch still depend on random numbers in training."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        first: Tensor = task(batch)
        torch.manual_seed(1)
        return not torch.allclose(first, task(batch), rtol=1e-3, atol=1e-4, equal_nan=True)
