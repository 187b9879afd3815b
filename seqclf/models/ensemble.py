"""Several classifiers that vote."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from seqclf.config.instantiate import build


class Ensemble(nn.Module):
    """Classifiers of one design, each from a start of its own, whose probabilities are averaged (Lakshminarayanan et
    al. 2017). In training their logits come apart, (members, B, classes), so that each learns from its own errors."""

    def __init__(self, members: Iterable[nn.Module]):
        super().__init__()
        self.members = nn.ModuleList(members)

    def load_vectors(self, name: str, vectors: np.ndarray) -> None:
        for member in self.members:
            member.load_vectors(name, vectors)  # type: ignore[operator]

    def forward(self, fields: Mapping[str, Tensor], lengths: Tensor, host_lengths: np.ndarray) -> Tensor:
        logits = torch.stack([member(fields, lengths, host_lengths) for member in self.members])
        return logits if self.training else vote(logits)


def build_classifier(model: Mapping[str, Any], fields: Sequence[Mapping[str, Any]], num_classes: int) -> Any:
    """The network of a `_target_` dict, or an ensemble of so many of them as its `members` says."""
    design = {key: value for key, value in model.items() if key != "members"}
    made = [build(design, nn.Module, fields=fields, num_classes=num_classes) for _ in range(model["members"])]
    return made[0] if len(made) == 1 else Ensemble(made)


def vote(logits: Tensor) -> Tensor:
    """(members, B, classes) → logits (B, classes) whose softmax is the mean of the members' probabilities."""
    return logits.float().log_softmax(dim=-1).logsumexp(dim=0) - math.log(len(logits))
